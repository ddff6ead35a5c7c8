"""The rows of a planned step, and the budgets that pay for them."""

from kvsched_fp.events import PauseState, Schedule
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.state import num_waiting_requests


@step_invariant(
    "INV-BUDGET-01",
    Cost.CHEAP,
    "The total of a step is the sum of its rows.",
    "The model runner sizes its input by the total; a victim's share that was not given back shows here.",
    Schedule,
)
def _total_is_the_sum(step: Step) -> str | None:
    total = sum(step.output.num_scheduled_tokens.values())
    if step.output.total_num_scheduled_tokens == total:
        return None
    return f"the rows have {total} tokens, the total says {step.output.total_num_scheduled_tokens}"


@step_invariant(
    "INV-BUDGET-02",
    Cost.CHEAP,
    "The rows keep within the token budget, the input budget and max_num_seqs.",
    "The model runner's buffers end there.",
    Schedule,
)
def _budgets_are_kept(step: Step) -> str | None:
    config, total = step.before.config, sum(step.output.num_scheduled_tokens.values())
    budget = min(config.token_budget, config.max_num_batched_tokens)
    if total <= budget and len(step.rows) <= config.max_num_seqs:
        return None
    return f"{len(step.rows)} rows of {config.max_num_seqs} have {total} tokens of {budget}"


@step_invariant(
    "INV-BUDGET-03",
    Cost.CHEAP,
    "While all is paused, nothing is scheduled.",
    "The engine relies on it before it changes weights.",
    Schedule,
)
def _pause_is_kept(step: Step) -> str | None:
    if step.before.pause_state is not PauseState.PAUSED_ALL or not step.rows:
        return None
    return f"{len(step.rows)} rows were scheduled while all is paused: {[row[0] for row in step.rows]}"


@step_invariant(
    "INV-BUDGET-04",
    Cost.CHEAP,
    "While several requests are live, no row is longer than the long-prefill threshold.",
    "One long prompt would keep all others waiting.",
    Schedule,
)
def _long_prefill_is_cut(step: Step) -> str | None:
    threshold = _threshold(step)
    if threshold == 0:
        return None
    for request_id, num_tokens in step.output.num_scheduled_tokens.items():
        if num_tokens > threshold:
            return f"request {request_id} got {num_tokens} tokens, the threshold is {threshold}"
    return None


@step_invariant(
    "INV-BATCH-01",
    Cost.CHEAP,
    "Every scheduled id runs when the step is planned.",
    "A victim that stays in the batch computes into blocks that it has given back.",
    Schedule,
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
    "A row has at least one token, and ends within what is known of the request and within max_model_len.",
    "There is nothing behind the known tokens to compute.",
    Schedule,
)
def _rows_are_within_the_known(step: Step) -> str | None:
    max_model_len = step.before.config.max_model_len
    for request_id, num_tokens, request, _, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        if num_tokens <= 0 or progress.num_computed_tokens > num_known:
            return (
                f"request {request_id} got {num_tokens} tokens and has {progress.num_computed_tokens} of "
                f"{num_known} known tokens computed"
            )
        if progress.num_computed_tokens > max_model_len:
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
    "The slots of a row cover every token up to the row's end and the lookahead, in every group.",
    "A token without a slot is written into somebody else's memory.",
    Schedule,
)
def _slots_cover_rows(step: Step) -> str | None:
    config = step.before.config
    block_size, lookahead, most = config.block_size, config.num_lookahead_tokens, config.max_model_len
    for request_id, _, _, _, progress, tables in step.rows:
        num_slots = progress.num_computed_tokens + lookahead
        for table in tables:
            if len(table.block_ids) * block_size < (num_slots if num_slots < most else most):
                return (
                    f"request {request_id} has {len(table.block_ids)} blocks of {block_size} for "
                    f"{num_slots} tokens, {lookahead} of them lookahead"
                )
        if not tables:
            return f"request {request_id} has no blocks"
    return None


@step_invariant(
    "INV-BATCH-06",
    Cost.CHEAP,
    "A row is marked as a chunk exactly while known tokens of it are not computed.",
    "A chunk samples nothing, and is what is held back when prompts are.",
    Schedule,
)
def _chunks_are_marked(step: Step) -> str | None:
    for request_id, _, request, _, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        if progress.is_prefill_chunk != (progress.num_computed_tokens < num_known):
            return (
                f"request {request_id} with {progress.num_computed_tokens} of {num_known} known tokens "
                f"computed has is_prefill_chunk {progress.is_prefill_chunk}"
            )
    return None


@step_invariant(
    "INV-BATCH-07",
    Cost.CHEAP,
    "A row is cut only by a budget that is then used up, by the long-prefill threshold, or before the last "
    "position of max_model_len; one for which others were preempted also by what those had.",
    "What is not given to anybody is lost. The length of a row is decided before its blocks are found, so "
    "it gains nothing from the tokens of its victims.",
    Schedule,
)
def _rows_are_cut_for_a_reason(step: Step) -> str | None:
    total, budget = step.output.total_num_scheduled_tokens, _budget(step)
    if total == budget:
        return None
    last, threshold = step.before.config.max_model_len - 1, _threshold(step)
    for request_id, num_tokens, _, _, progress, _ in step.rows:
        num_computed_tokens = progress.num_computed_tokens
        if (
            progress.is_prefill_chunk
            and num_tokens != threshold
            and num_computed_tokens != last
            and not (step.victims and _took_blocks(step, request_id))
        ):
            return (
                f"request {request_id} was cut to {num_tokens} tokens; {total} of {budget} are used, the "
                f"threshold is {threshold}"
            )
    return None


def _took_blocks(step: Step, request_id: RequestId) -> bool:
    cached = step.output.scheduled_cached_requests
    return cached.new_block_ids[cached.request_ids.index(request_id)] is not None


@step_invariant(
    "INV-BATCH-08",
    Cost.CHEAP,
    "A running request without a row has no known token left to compute, or a budget is used up, or "
    "prompts are held back.",
    "Every running request is looked at, each once.",
    Schedule,
)
def _nobody_is_passed_over(step: Step) -> str | None:
    scheduled, after = step.output.num_scheduled_tokens, step.after
    if len(step.rows) == len(after.running) or step.output.total_num_scheduled_tokens == _budget(step):
        return None
    config = step.before.config
    may_hold = step.event.throttle_prefills or config.prefill_schedule_interval > 1
    for request_id in after.running:
        if request_id in scheduled:
            continue
        progress = after.progress[request_id]
        num_known = len(after.requests[request_id].prompt_token_ids) + len(progress.output_token_ids)
        num_left = min(num_known, config.max_model_len - 1) - progress.num_computed_tokens
        if num_left > 0 and not (may_hold and progress.is_prefill_chunk):
            return (
                f"request {request_id} runs, has {num_left} tokens to compute and got none; "
                f"{step.output.total_num_scheduled_tokens} of {_budget(step)} are used"
            )
    return None


def _budget(step: Step) -> int:
    config = step.before.config
    if step.before.pause_state is PauseState.PAUSED_ALL:
        return 0
    return min(config.token_budget, config.max_num_batched_tokens)


def _threshold(step: Step) -> int:
    """Give the most tokens of a row while several requests are live; 0 for no limit."""
    config = step.before.config
    num_requests = len(step.before.running) + num_waiting_requests(step.before)
    if config.long_prefill_token_threshold == 0 or num_requests <= 1:
        return 0
    if config.long_prefill_token_threshold_adaptive:
        return max(config.long_prefill_token_threshold, config.max_num_batched_tokens // num_requests)
    return config.long_prefill_token_threshold


INVARIANTS: tuple[StepInvariant, ...] = (
    _total_is_the_sum,
    _budgets_are_kept,
    _pause_is_kept,
    _long_prefill_is_cut,
    _rows_run,
    _rows_are_in_order,
    _rows_are_within_the_known,
    _rows_are_counted,
    _slots_cover_rows,
    _chunks_are_marked,
    _rows_are_cut_for_a_reason,
    _nobody_is_passed_over,
)
"""In the order in which they are checked."""
