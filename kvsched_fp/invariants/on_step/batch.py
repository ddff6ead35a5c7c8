"""The rows of a planned step."""

from kvsched_fp.config import Quirk, RunnerType, SchedulingPolicy
from kvsched_fp.events import Schedule
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.budgets import (
    is_used_up,
    may_hold_prompts,
    room_for_a_row,
    threshold,
    usage,
)
from kvsched_fp.invariants.on_step.overlap import must_wait
from kvsched_fp.invariants.room_reading import lacks_blocks
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request, RequestStatus, canvas_width
from kvsched_fp.state import SchedulerState


@step_invariant(
    "INV-BATCH-01",
    Cost.CHEAP,
    "Every scheduled id runs when the step is planned.",
    "A victim that stays in the batch computes into blocks that it has given back.",
    Schedule,
    reports=("vLLM #23347",),
)
def _rows_run(step: Step) -> str | None:
    running = set(step.after.running)
    if running.issuperset(step.output.num_scheduled_tokens):
        return None
    strangers = [request_id for request_id in step.output.num_scheduled_tokens if request_id not in running]
    return f"scheduled requests {strangers} do not run"


@step_invariant(
    "INV-BATCH-02",
    Cost.CHEAP,
    "The rows stand in the order of the running requests.",
    "The order of the batch is the order of service, and of the results.",
    Schedule,
)
def _rows_are_in_order(step: Step) -> str | None:
    running = iter(step.after.running)
    for request_id in step.output.num_scheduled_tokens:
        if request_id not in running:  # goes through the iterator up to the id
            return (
                f"row {request_id} is out of order: the batch is {list(step.output.num_scheduled_tokens)}, "
                f"running are {list(step.after.running)}"
            )
    return None


@step_invariant(
    "INV-BATCH-03",
    Cost.CHEAP,
    "A row has at least one token, and ends within what is known of the request, its placeholders and the "
    "drafts of the row; and within max_model_len, or what is known of a session.",
    "There is nothing behind those to compute.",
    Schedule,
)
def _rows_are_within_the_known(step: Step) -> str | None:
    max_model_len = step.before.config.max_model_len
    spec_token_ids = step.output.scheduled_spec_token_ids
    for request_id, num_tokens, request, earlier, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        num_drafts = len(spec_token_ids.get(request_id, ()))
        num_there = num_known + earlier.num_output_placeholders + num_drafts
        if num_tokens <= 0 or progress.num_computed_tokens > num_there:
            return (
                f"request {request_id} got {num_tokens} tokens and has {progress.num_computed_tokens} "
                f"computed, of {num_there}: {num_known} known, {num_drafts} drafts, the others "
                "placeholders"
            )
        if progress.num_computed_tokens > max(max_model_len, num_known):
            return (
                f"request {request_id} has {progress.num_computed_tokens} tokens computed, "
                f"max_model_len is {max_model_len}"
            )
    return None


@step_invariant(
    "INV-BATCH-04",
    Cost.CHEAP,
    "A row's tokens count as computed and as in flight at once.",
    "The next step is planned before this one comes back.",
    Schedule,
)
def _rows_are_counted(step: Step) -> str | None:
    admitted = set(step.admitted)
    for request_id, num_tokens, _, earlier, progress, _ in step.rows:
        num_computed_tokens = progress.num_computed_tokens - num_tokens
        if progress.num_in_flight_tokens != earlier.num_in_flight_tokens + num_tokens or (
            request_id not in admitted and num_computed_tokens != earlier.num_computed_tokens
        ):
            return (
                f"{num_tokens} tokens take {request_id} from {earlier.num_computed_tokens} computed and "
                f"{earlier.num_in_flight_tokens} in flight to {progress.num_computed_tokens} and "
                f"{progress.num_in_flight_tokens}"
            )
    return None


@step_invariant(
    "INV-BATCH-05",
    Cost.CHEAP,
    "The slots of a row cover every token up to the row's end and the lookahead, in every group; a table "
    "grows no further.",
    "A token without a slot is written into somebody else's memory; a block that is taken too early is "
    "missing for others.",
    Schedule,
    reports=("vLLM PR #57104",),
)
def _slots_cover_rows(step: Step) -> str | None:
    config, tables_before = step.before.config, step.before.kv.tables
    block_size, lookahead, most = config.block_size, config.num_lookahead_tokens, config.max_model_len
    for request_id, _, _, _, progress, tables in step.rows:
        num_slots = progress.num_computed_tokens + lookahead
        num_needed = -(-(num_slots if num_slots < most else most) // block_size)
        earlier = tables_before.get(request_id, ())
        for group_index, table in enumerate(tables):
            num_blocks = len(table.block_ids)
            if num_blocks != num_needed and (
                not earlier or num_blocks != max(num_needed, len(earlier[group_index].block_ids))
            ):
                return (
                    f"request {request_id} has {num_blocks} blocks of {block_size} for {num_slots} tokens, "
                    f"{lookahead} of them lookahead"
                )
        if not tables:
            return f"request {request_id} has no blocks"
    return None


@step_invariant(
    "INV-BATCH-06",
    Cost.CHEAP,
    "A row is marked as a chunk exactly while known tokens or placeholders of it are not computed.",
    "A chunk samples nothing, and is what is held back when prompts are.",
    Schedule,
)
def _chunks_are_marked(step: Step) -> str | None:
    for request_id, _, request, earlier, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        num_there = num_known + earlier.num_output_placeholders
        if progress.is_prefill_chunk != (progress.num_computed_tokens < num_there):
            return (
                f"request {request_id} with {progress.num_computed_tokens} of {num_there} tokens computed, "
                f"{num_known} of them known, has is_prefill_chunk {progress.is_prefill_chunk}"
            )
    return None


@step_invariant(
    "INV-BATCH-07",
    Cost.CHEAP,
    "A row is cut, drafts included, only by a budget that is then used up, by the long-prefill threshold, "
    "before the last position of max_model_len, or as far from the end of the prompt as the drafter reads; "
    "one for which others were preempted also by what those had.",
    "What is not given to anybody is lost. The length of a row is decided before its blocks are found, so "
    "it gains nothing from the tokens of its victims.",
    Schedule,
    reports=("vLLM #23347",),
)
def _rows_are_cut_for_a_reason(step: Step) -> str | None:
    if is_used_up(step):
        return None
    config, most = step.before.config, threshold(step)
    lookahead = config.num_prefill_lookahead_tokens
    for request_id, num_tokens, request, earlier, progress, _ in step.rows:
        num_computed_tokens = progress.num_computed_tokens
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        if (
            num_computed_tokens < _num_wanted(step, request_id, num_known, earlier)
            and num_tokens != most
            and num_computed_tokens != config.max_model_len - config.num_sampled_tokens_per_step
            and num_known - num_computed_tokens != (lookahead or None)
            and not (step.victims and _took_blocks(step, request_id))
        ):
            return (
                f"request {request_id} was cut to {num_tokens} tokens; {usage(step)}, the threshold is "
                f"{most}"
            )
    return None


def _num_wanted(step: Step, request_id: RequestId, num_known: int, earlier: Progress) -> int:
    """Count what there is of a request to compute: for one that ran, placeholders and drafts too."""
    if earlier.status is not RequestStatus.RUNNING:
        return num_known
    num_drafts = len(earlier.spec_token_ids)
    config = step.before.config
    if config.runner_type is RunnerType.DIFFUSION and config.async_scheduling:
        width = canvas_width(step.before.requests[request_id], config.num_spec_tokens)
        num_drafts = min(num_drafts, width)
    return num_known + earlier.num_output_placeholders + num_drafts


def _took_blocks(step: Step, request_id: RequestId) -> bool:
    cached = step.output.scheduled_cached_requests
    return cached.new_block_ids[cached.request_ids.index(request_id)] is not None


@step_invariant(
    "INV-BATCH-08",
    Cost.CHEAP,
    "A running request without a row has nothing left to compute, or a budget is used up, or prompts are "
    "held back, or it waits for its turn in the pipeline, or its end is sure, or its prompt would end "
    "where the drafter still reads, and what it lacks does not fit whole, or somebody gave a row back; "
    "without the quirk PREEMPTS_IN_VAIN, or all blocks that are free or held by those who run are too few "
    "for it.",
    "Every running request is looked at, each once.",
    Schedule,
    reports=("vLLM #49097", "vLLM PR #26765", "vLLM #48039"),
)
def _nobody_is_passed_over(step: Step) -> str | None:
    scheduled, after = step.output.num_scheduled_tokens, step.after
    if len(step.rows) == len(after.running) or is_used_up(step):
        return None
    for request_id in after.running:
        if request_id not in scheduled and could_go_on(step, request_id, after):
            return f"request {request_id} runs, has tokens to compute and got none; {usage(step)}"
    return None


def could_go_on(step: Step, request_id: RequestId, room: SchedulerState) -> bool:
    """Tell whether a request that ran had something to compute in a step, and nothing to wait for.

    Whether it lacked blocks, without the quirk PREEMPTS_IN_VAIN, the tables in `room` say.
    """
    config, request = step.before.config, step.before.requests[request_id]
    earlier = step.before.progress[request_id]
    num_known = len(request.prompt_token_ids) + len(earlier.output_token_ids)
    num_left = num_known - earlier.num_computed_tokens
    num_wanted = min(_num_wanted(step, request_id, num_known, earlier), _last_position(step, request))
    return (
        num_wanted > earlier.num_computed_tokens
        and not (may_hold_prompts(step) and earlier.is_prefill_chunk)
        and not must_wait(step, request, earlier)
        and not _may_lack_an_end(step, request, num_left)
        and (Quirk.PREEMPTS_IN_VAIN in config.quirks or not lacks_blocks(room, request_id))
    )


@step_invariant(
    "INV-BATCH-09",
    Cost.CHEAP,
    "While prompts are held back (the engine says so, or the interval is not over), something decodes and "
    "capacity was not short, no piece of prompt is computed, and nobody is admitted with more than one "
    "token to compute.",
    "The decodes would wait for the prompt.",
    Schedule,
)
def _held_prompts_wait(step: Step) -> str | None:
    before = step.before
    interval = before.config.local_prefill_interval
    num_steps = before.num_executed_steps + 1 - before.last_prefill_step
    in_interval = interval > 1 and num_steps < interval
    if before.prefill_capacity_bound or not (step.event.throttle_prefills or in_interval):
        return None
    if all(before.progress[request_id].is_prefill_chunk for request_id in before.running):
        return None
    for row in step.rows:
        if _has_prompt(*row[:5]):
            return f"request {row[0]} got {row[1]} tokens of prompt while prompts are held back"
    return None


@step_invariant(
    "INV-BATCH-10",
    Cost.CHEAP,
    "With an interval, a step that computes a piece of a prompt, or admits somebody with more than one "
    "token to compute, begins the interval, and no other does; but one in which a victim was in its prompt "
    "may, by priority, since what it got may have been taken back.",
    "The interval is counted from the last step with prompt in it.",
    Schedule,
)
def _prompts_begin_the_interval(step: Step) -> str | None:
    before, after = step.before, step.after
    if before.config.local_prefill_interval == 1:
        return None  # INV-COUNT-03
    stays, begins = before.last_prefill_step, after.num_executed_steps
    expected = {begins if any(_has_prompt(*row[:5]) for row in step.rows) else stays}
    if before.config.policy is SchedulingPolicy.PRIORITY:
        expected.update(begins for victim_id in step.victims if before.progress[victim_id].is_prefill_chunk)
    if after.last_prefill_step in expected:
        return None
    return (
        f"the last step with prompt is {after.last_prefill_step}, it was {stays}, this one is {begins}; "
        f"the rows are {dict(step.output.num_scheduled_tokens)}, new are {step.admitted}"
    )


def _has_prompt(
    _request_id: RequestId, num_tokens: int, request: Request, earlier: Progress, progress: Progress
) -> bool:
    """Tell whether a row is a piece of a prompt, or begins with more than one token to compute."""
    if earlier.status is RequestStatus.RUNNING:
        return earlier.is_prefill_chunk
    start = progress.num_computed_tokens - num_tokens
    return len(request.prompt_token_ids) + len(progress.output_token_ids) - start > 1


def _may_lack_an_end(step: Step, request: Request, num_left: int) -> bool:
    """Tell whether a prompt of which the drafter reads all that is left may have had too little room.

    Where a victim gave its row back, how much there was when the request was looked at cannot be told.
    """
    if not 0 < num_left <= step.before.config.num_prefill_lookahead_tokens:
        return False
    room = min(room_for_a_row(step), threshold(step) or num_left)
    may_be_computed = request.num_prompt_tokens <= _last_position(step, request)
    return bool(step.victims) or num_left > room or not may_be_computed


def _last_position(step: Step, request: Request) -> int:
    """Give the last position that a running request may compute, since what it samples must fit, too.

    The end of a prompt may be computed all the same, without the quirk that leaves it.
    """
    config = step.before.config
    leaves_last = Quirk.LEAVES_LAST_PROMPT_TOKEN in config.quirks
    if request.num_prompt_tokens == config.max_model_len and not leaves_last:
        return config.max_model_len
    return config.max_model_len - config.num_sampled_tokens_per_step


INVARIANTS: tuple[StepInvariant, ...] = (
    _rows_run,
    _rows_are_in_order,
    _rows_are_within_the_known,
    _rows_are_counted,
    _slots_cover_rows,
    _chunks_are_marked,
    _rows_are_cut_for_a_reason,
    _nobody_is_passed_over,
    _held_prompts_wait,
    _prompts_begin_the_interval,
)
"""In the order in which they are checked."""
