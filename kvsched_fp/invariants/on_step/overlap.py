"""Steps that are planned while others are in flight: placeholders, and who has to wait."""

from kvsched_fp.config import RunnerType
from kvsched_fp.events import Schedule
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request, RequestStatus, canvas_width


@step_invariant(
    "INV-ASYNC-01",
    Cost.CHEAP,
    "With asynchronous scheduling, a row that samples gets a placeholder for each token that it may "
    "bring: the sampled one and its drafts. No other row does.",
    "The next step is planned behind what this one will bring.",
    Schedule,
)
def _rows_expect_their_tokens(step: Step) -> str | None:
    config, spec_token_ids = step.before.config, step.output.scheduled_spec_token_ids
    for request_id, _, _, earlier, progress, _ in step.rows:
        num_expected = 0
        if config.async_scheduling and not progress.is_prefill_chunk:
            num_drafts = len(spec_token_ids.get(request_id, ()))
            num_expected = config.num_sampled_tokens_per_step + num_drafts
        if progress.num_output_placeholders != earlier.num_output_placeholders + num_expected:
            return (
                f"row {request_id} may bring {num_expected} tokens, its placeholders went from "
                f"{earlier.num_output_placeholders} to {progress.num_output_placeholders}"
            )
    return None


@step_invariant(
    "INV-ASYNC-02",
    Cost.CHEAP,
    "No request is decoded before its turn in the pipeline; with the V2 runner, a row that samples has its "
    "next turn as many steps later as the pipeline has stages.",
    "Its last token is on its way through the stages.",
    Schedule,
)
def _turns_are_kept(step: Step) -> str | None:
    config, step_id = step.before.config, step.output.step_id
    sets_turns = config.async_scheduling and config.use_v2_model_runner
    for request_id, _, _, earlier, progress, _ in step.rows:
        ran = earlier.status is RequestStatus.RUNNING
        if ran and step_id < earlier.next_decode_eligible_step:
            return f"row {request_id} had to wait for step {earlier.next_decode_eligible_step}"
        next_turn = earlier.next_decode_eligible_step
        if sets_turns and not progress.is_prefill_chunk:
            next_turn = step_id + config.pipeline_parallel_size
        if progress.next_decode_eligible_step != next_turn:
            return (
                f"row {request_id} has its next turn in step {progress.next_decode_eligible_step}, not "
                f"{next_turn}, with {config.pipeline_parallel_size} stages"
            )
    return None


@step_invariant(
    "INV-ASYNC-03",
    Cost.CHEAP,
    "No step is planned for a request that is sure to end with the steps in flight: by max_tokens even if "
    "all its drafts are rejected, or with the last step of its only canvas.",
    "What came of it would be thrown away.",
    Schedule,
    reports=("vLLM #27922", "vLLM #29542"),
)
def _nothing_behind_a_sure_end(step: Step) -> str | None:
    for request_id, _, request, earlier, _, _ in step.rows:
        if earlier.status is RequestStatus.RUNNING and _is_sure_to_end(step, request, earlier):
            return (
                f"row {request_id} is planned with {earlier.num_computed_tokens} tokens computed, "
                f"{earlier.num_output_placeholders} of them placeholders; its prompt has "
                f"{len(request.prompt_token_ids)}, max_tokens is {request.sampling_params.max_tokens}, "
                f"max_denoise_steps {request.max_denoise_steps}"
            )
    return None


def must_wait(step: Step, request: Request, earlier: Progress) -> bool:
    """Tell whether a running request may not be in this step, whatever there is to compute."""
    return step.output.step_id < earlier.next_decode_eligible_step or _is_sure_to_end(
        step, request, earlier
    )


def _is_sure_to_end(step: Step, request: Request, earlier: Progress) -> bool:
    num_placeholders = earlier.num_output_placeholders
    if num_placeholders == 0:
        return False
    # One token is sure to come for each step in flight but drafts; what is computed behind them is one
    # less.
    num_sure = earlier.num_computed_tokens - num_placeholders + 2 - len(request.prompt_token_ids)
    if num_sure >= request.sampling_params.max_tokens:
        return True
    config, max_steps = step.before.config, request.max_denoise_steps
    if config.runner_type is not RunnerType.DIFFUSION or max_steps is None:
        return False
    return num_placeholders >= max_steps * canvas_width(request, config.num_spec_tokens)


INVARIANTS: tuple[StepInvariant, ...] = (
    _rows_expect_their_tokens,
    _turns_are_kept,
    _nothing_behind_a_sure_end,
)
"""In the order in which they are checked."""
