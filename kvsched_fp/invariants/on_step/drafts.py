"""The drafts of a planned step: which rows verify some, and which are proposed next."""

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import Schedule
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request, RequestStatus

_UNKNOWN = -1
"""A draft that only the worker knows."""


@step_invariant(
    "INV-DRAFT-01",
    Cost.CHEAP,
    "The drafts of a row are what it computes behind the known tokens and the placeholders: for a row "
    "that ran, the first of those that the request had; for one that is admitted, such as only the worker "
    "knows.",
    "The worker puts them there.",
    Schedule,
    reports=("vLLM #23347",),
)
def _drafts_are_behind_the_known(step: Step) -> str | None:
    scheduled = step.output.scheduled_spec_token_ids
    if not scheduled.keys() <= step.output.num_scheduled_tokens.keys():
        return f"drafts of {list(scheduled)}, rows of {list(step.output.num_scheduled_tokens)}"
    for request_id, _, request, earlier, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        num_there = num_known + earlier.num_output_placeholders
        num_drafts = max(progress.num_computed_tokens - num_there, 0)
        drafts = (_UNKNOWN,) * num_drafts
        if earlier.status is RequestStatus.RUNNING:
            drafts = earlier.spec_token_ids[:num_drafts]
        if scheduled.get(request_id, ()) != drafts or len(drafts) != num_drafts:
            return (
                f"row {request_id} ends {num_drafts} tokens behind the {num_there} that are there, with "
                f"the drafts {scheduled.get(request_id, ())} of {earlier.spec_token_ids}"
            )
    return None


@step_invariant(
    "INV-DRAFT-02",
    Cost.CHEAP,
    "A row has at most num_spec_tokens drafts, and no more than tokens.",
    "The model runner has no room for one more.",
    Schedule,
)
def _drafts_are_few(step: Step) -> str | None:
    most, scheduled = step.before.config.num_spec_tokens, step.output.num_scheduled_tokens
    for request_id, drafts in step.output.scheduled_spec_token_ids.items():
        if not 0 < len(drafts) <= min(most, scheduled[request_id]):
            return (
                f"row {request_id} of {scheduled[request_id]} tokens has {len(drafts)} drafts, {most} are "
                "proposed"
            )
    return None


@step_invariant(
    "INV-DRAFT-03",
    Cost.CHEAP,
    "Drafts are used up by the step that could verify them. With asynchronous scheduling, a row that "
    "samples gets as many placeholders for the next ones as the step asks for.",
    "What they stand behind is not the end any more.",
    Schedule,
)
def _drafts_are_used_up(step: Step) -> str | None:
    is_async, num_next = step.before.config.async_scheduling, step.output.num_spec_tokens_to_schedule
    for request_id, _, _, earlier, progress, _ in step.rows:
        expected = () if earlier.status is RequestStatus.RUNNING else earlier.spec_token_ids
        if is_async and not progress.is_prefill_chunk:
            expected = (_UNKNOWN,) * num_next
        if progress.spec_token_ids != expected:
            return (
                f"row {request_id} had the drafts {earlier.spec_token_ids} and has "
                f"{progress.spec_token_ids}; the step asks for {num_next}"
            )
    return None


@step_invariant(
    "INV-DRAFT-04",
    Cost.CHEAP,
    "A step asks for num_spec_tokens drafts, or for what is set for a batch of its size.",
    "Large batches have no time for drafts.",
    Schedule,
)
def _as_many_as_the_batch_allows(step: Step) -> str | None:
    expected = _num_to_propose(step.before.config, len(step.rows))
    if step.output.num_spec_tokens_to_schedule == expected:
        return None
    return (
        f"{step.output.num_spec_tokens_to_schedule} drafts are asked for behind {len(step.rows)} rows, not "
        f"{expected}"
    )


def _num_to_propose(config: SchedulerConfig, batch_size: int) -> int:
    ranges = config.num_spec_tokens_per_batch_size
    if ranges is None or batch_size == 0:
        return config.num_spec_tokens
    _, _, num_drafts = max(entry for entry in ranges if entry[0] <= batch_size)
    return min(num_drafts, config.num_spec_tokens)


@step_invariant(
    "INV-DRAFT-05",
    Cost.CHEAP,
    "Drafts are skipped exactly if the runner can and no row can use them: each is a piece of prompt with "
    "more to come, or surely samples its last token. A victim's row still counts.",
    "Drafting for nobody costs time; not drafting costs the next step.",
    Schedule,
)
def _skipped_if_nobody_can_use_them(step: Step) -> str | None:
    config, told = step.before.config, step.output.skip_drafts
    can_skip = config.num_spec_tokens > 0 and config.num_lookahead_tokens > 0 and config.use_v2_model_runner
    users = [row[0] for row in step.rows if _can_use_drafts(row[2], row[3], row[4])] if can_skip else []
    if told == (can_skip and not users) or (can_skip and not told and step.victims):
        return None
    return f"drafts are skipped: {told}, the runner can: {can_skip}, {users} can use them"


def _can_use_drafts(request: Request, earlier: Progress, progress: Progress) -> bool:
    num_output = len(progress.output_token_ids)
    if progress.num_computed_tokens < len(request.prompt_token_ids) + num_output:
        return False
    num_sure = num_output + 1 + (earlier.num_output_placeholders > 0)
    return num_sure < request.sampling_params.max_tokens


@step_invariant(
    "INV-DRAFT-06",
    Cost.CHEAP,
    "A piece of prompt does not end within num_prefill_lookahead_tokens of the end.",
    "The drafter reads that far ahead, and would take its own guesses for prompt.",
    Schedule,
)
def _pieces_leave_what_the_drafter_reads(step: Step) -> str | None:
    lookahead = step.before.config.num_prefill_lookahead_tokens
    if lookahead == 0:
        return None
    for request_id, _, request, _, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        num_left = num_known - progress.num_computed_tokens
        if 0 < num_left < lookahead:
            return f"row {request_id} leaves {num_left} tokens, the drafter reads {lookahead} ahead"
    return None


@step_invariant(
    "INV-DRAFT-07",
    Cost.CHEAP,
    "Exactly who is admitted with one token to compute, beside nothing but decodes, is padded with drafts "
    "to their uniform size, if that fits into max_model_len and the size does not depend on the batch.",
    "A batch of decodes of one size runs faster.",
    Schedule,
    reports=("vLLM PR #53962",),
)
def _new_decodes_are_padded(step: Step) -> str | None:
    config = step.before.config
    if config.num_spec_tokens == 0:
        return None
    admitted = set(step.admitted)
    others = [row[3] for row in step.rows if row[0] not in admitted]
    beside_prompts = any(earlier.is_prefill_chunk for earlier in others)
    num_sampled = config.num_sampled_tokens_per_step
    for request_id, num_tokens, request, _, progress, _ in step.rows:
        if request_id not in admitted:
            continue
        num_before = progress.num_computed_tokens - num_tokens
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        is_decode = num_known - num_before == 1 and (others or num_before > 0) and not beside_prompts
        fits = num_before + 1 + config.num_spec_tokens + num_sampled <= config.max_model_len
        pads = config.num_spec_tokens_per_batch_size is None and num_sampled > 0
        num_drafts = config.num_spec_tokens if is_decode and fits and pads else 0
        num_found = len(step.output.scheduled_spec_token_ids.get(request_id, ()))
        if num_found != num_drafts or (num_drafts and num_tokens != 1 + num_drafts):
            return (
                f"{request_id} is admitted with {num_tokens} tokens behind {num_before} of {num_known} "
                f"known ones, {num_found} of them drafts, not {num_drafts}"
            )
    return None


INVARIANTS: tuple[StepInvariant, ...] = (
    _drafts_are_behind_the_known,
    _drafts_are_few,
    _drafts_are_used_up,
    _as_many_as_the_batch_allows,
    _skipped_if_nobody_can_use_them,
    _pieces_leave_what_the_drafter_reads,
    _new_decodes_are_padded,
)
"""In the order in which they are checked."""
