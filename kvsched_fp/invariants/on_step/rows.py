"""What the model runner is told about each row of a planned step."""

from collections.abc import Iterator
from itertools import chain

from kvsched_fp.events import Schedule
from kvsched_fp.ids import BlockId, RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.pool_reading import elements_from
from kvsched_fp.progress import known_tokens
from kvsched_fp.state import SchedulerState


@step_invariant(
    "INV-ROW-01",
    Cost.CHEAP,
    "Every row is described exactly once, as a new request or as a known one; the running ones come first, "
    "in the order of the batch.",
    "The runner finds no data for a row, or moves one that is not scheduled.",
    Schedule,
)
def _described_once(step: Step) -> str | None:
    output = step.output
    new = [data.request_id for data in output.scheduled_new_requests]
    cached = output.scheduled_cached_requests.request_ids
    num_running = len(step.rows) - len(step.admitted)
    described = {*new, *cached}
    if (
        len(new) + len(cached) == len(described) == len(step.rows)
        and described == output.num_scheduled_tokens.keys()
        and cached[:num_running] == tuple(output.num_scheduled_tokens)[:num_running]
    ):
        return None
    return f"rows {list(output.num_scheduled_tokens)}, told as new: {new}, as known: {list(cached)}"


@step_invariant(
    "INV-ROW-02",
    Cost.CHEAP,
    "The columns of the known rows are of equal length; each says how many tokens were computed before the "
    "step, and how many sampled, placeholders included.",
    "The runner places the new tokens by these figures.",
    Schedule,
)
def _known_rows_are_true(step: Step) -> str | None:
    cached, scheduled = step.output.scheduled_cached_requests, step.output.num_scheduled_tokens
    columns = (cached.request_ids, cached.num_computed_tokens, cached.num_output_tokens)
    if not len(cached.new_block_ids) == len(columns[0]) == len(columns[1]) == len(columns[2]):
        return f"the columns have {list(map(len, columns))} and {len(cached.new_block_ids)} entries"
    progress_of, progress_before = step.after.progress, step.before.progress
    for request_id, num_computed_tokens, num_output_tokens in zip(*columns, strict=True):
        progress = progress_of[request_id]
        num_sampled = len(progress.output_token_ids) + progress_before[request_id].num_output_placeholders
        num_tokens = scheduled[request_id]
        if (
            num_computed_tokens + num_tokens != progress.num_computed_tokens
            or num_output_tokens != num_sampled
        ):
            return (
                f"row {request_id} of {num_tokens} tokens says {num_computed_tokens} computed, "
                f"{num_output_tokens} sampled; the state says {progress.num_computed_tokens} with the row, "
                f"{num_sampled} sampled"
            )
    return None


@step_invariant(
    "INV-ROW-03",
    Cost.CHEAP,
    "A known row's new blocks are what its tables grew by; a resumed row brings all its blocks.",
    "The runner's copy of the table must stay the scheduler's.",
    Schedule,
)
def _new_blocks_are_told(step: Step) -> str | None:
    cached = step.output.scheduled_cached_requests
    tables_before, tables_after = step.before.kv.tables, step.after.kv.tables
    resumed = frozenset(cached.resumed_request_ids)
    for request_id, told in zip(cached.request_ids, cached.new_block_ids, strict=True):
        after = tables_after[request_id]
        if told is None:
            if request_id not in resumed and after is tables_before.get(request_id):
                continue
            told = ((),) * len(after)  # noqa: PLW2901  None is short for nothing new
        before = () if request_id in resumed else tables_before[request_id]
        known = [len(table.block_ids) for table in before] or [0] * len(after)
        for group_index, table in enumerate(after):
            if told[group_index] != elements_from(table.block_ids, known[group_index]):
                return (
                    f"row {request_id}, group {group_index}: had {known[group_index]} blocks, told "
                    f"{told[group_index]}, has {list(table.block_ids)}"
                )
    return None


@step_invariant(
    "INV-ROW-04",
    Cost.CHEAP,
    "A row that is sent whole has the prompt, all its blocks, how many tokens were computed before, its "
    "adapter, and whether it pools.",
    "The runner knows nothing else of it.",
    Schedule,
)
def _whole_rows_are_true(step: Step) -> str | None:
    for data in step.output.scheduled_new_requests:
        request_id = data.request_id
        num_tokens = step.output.num_scheduled_tokens[request_id]
        if data.block_ids != step.after.kv.block_ids(request_id):
            return f"row {request_id}: told {data.block_ids}, has {step.after.kv.block_ids(request_id)}"
        request = step.after.requests[request_id]
        prompt = request.prompt_token_ids
        if data.lora != request.lora or data.pooling is not request.pooling:
            return f"row {request_id} has the adapter {data.lora} or pools, and the request does not"
        if data.prompt_token_ids is not prompt and data.prompt_token_ids != prompt:
            return f"row {request_id} has another prompt than the request"
        computed = step.after.progress[request_id].num_computed_tokens
        if data.num_computed_tokens + num_tokens != computed:
            return (
                f"row {request_id} of {num_tokens} tokens says {data.num_computed_tokens} computed; "
                f"the state says {computed} with the row"
            )
    return None


@step_invariant(
    "INV-ROW-05",
    Cost.CHEAP,
    "V2: no row is marked as resumed, and a row sent whole has all known tokens. V1: a known row has them "
    "if it was not in the step before.",
    "A runner that has given up a row needs its tokens again.",
    Schedule,
)
def _shape_fits_the_runner(step: Step) -> str | None:
    output, cached = step.output, step.output.scheduled_cached_requests
    told = {request_id: len(token_ids) for request_id, token_ids in cached.all_token_ids.items()}
    expected: list[str] = []
    if step.before.config.use_v2_model_runner:
        if cached.resumed_request_ids:
            return f"V2: {cached.resumed_request_ids} are marked as resumed"
        for data in output.scheduled_new_requests:
            told[data.request_id] = -1 if data.prefill_token_ids is None else len(data.prefill_token_ids)
            expected.append(data.request_id)
    else:
        for data in output.scheduled_new_requests:
            if data.prefill_token_ids is not None:
                return f"V1: {data.request_id} is sent with prefill_token_ids"
        in_step_before = step.before.prev_step_request_ids
        expected = [request_id for request_id in cached.request_ids if request_id not in in_step_before]
    if list(told) != expected:
        return f"all known tokens of {list(told)} were told, {expected} need them"
    for request_id, _, request, _, progress, _ in step.rows:
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        if told.get(request_id, num_known) != num_known:
            return f"row {request_id} has {num_known} known tokens, {told[request_id]} were told"
    return None


@step_invariant(
    "INV-ROW-06",
    Cost.CHEAP,
    "With the V1 runner, the rows of the last step are remembered.",
    "They decide whose tokens the next step repeats.",
    Schedule,
)
def _rows_are_remembered(step: Step) -> str | None:
    if step.before.config.use_v2_model_runner:
        return None
    if step.after.prev_step_request_ids == step.output.num_scheduled_tokens.keys():
        return None
    return (
        f"rows {list(step.output.num_scheduled_tokens)}, remembered "
        f"{sorted(step.after.prev_step_request_ids)}"
    )


@step_invariant(
    "INV-ROW-07",
    Cost.CHEAP,
    "If the runner asks for it, the blocks to zero are named: every block that a row took from the free "
    "list, and no block that was held all along.",
    "What is left of a former holder must not be read; what somebody computed must not be lost.",
    Schedule,
)
def _new_blocks_are_zeroed(step: Step) -> str | None:
    block_ids = step.output.new_block_ids_to_zero
    if not step.before.config.needs_kv_cache_zeroing:
        return None if block_ids is None else f"blocks {block_ids} are to be zeroed, and nobody asked"
    if block_ids == ():
        return "an empty list of blocks to zero, not None"
    named = set(block_ids or ())
    taken = set(_taken_blocks(step))
    if not taken <= named:
        return f"blocks {sorted(taken - named)} are new, {sorted(named)} are to be zeroed"
    who_lost = (*step.victims, *step.gave_back)
    given_back = {block_id for loser in who_lost for block_id in _all_blocks(step.before, loser)}
    ref_counts = step.before.kv.pool.ref_counts
    for block_id in named:
        if ref_counts[block_id] != 0 and block_id not in given_back:
            return f"block {block_id} is to be zeroed, and was held before the step"
    return None


@step_invariant(
    "INV-ROW-08",
    Cost.CHEAP,
    "With pipeline parallelism and without asynchronous scheduling, the known rows bring the known tokens "
    "that they compute; without the one or with the other, none does.",
    "The first stage does not see what the last one samples.",
    Schedule,
)
def _first_stage_is_told(step: Step) -> str | None:
    config, cached = step.before.config, step.output.scheduled_cached_requests
    if config.pipeline_parallel_size == 1 or config.async_scheduling:
        return f"tokens {cached.new_token_ids} for nobody" if cached.new_token_ids else None
    if len(cached.new_token_ids) != len(cached.request_ids):
        return f"{len(cached.request_ids)} known rows, tokens of {len(cached.new_token_ids)}"
    columns = (cached.request_ids, cached.num_computed_tokens, cached.new_token_ids)
    for request_id, start, told in zip(*columns, strict=True):
        request, progress = step.after.requests[request_id], step.after.progress[request_id]
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        end = min(start + step.output.num_scheduled_tokens[request_id], num_known)
        if told != known_tokens(request, progress, start, end):
            return f"row {request_id} computes the known tokens from {start} to {end}, told are {told}"
    return None


@step_invariant(
    "INV-ROW-09",
    Cost.CHEAP,
    "The step says whether any row samples under a grammar, and whether such a row still waits for a "
    "token of a step before.",
    "Their bitmasks cannot be made without it.",
    Schedule,
)
def _grammars_are_announced(step: Step) -> str | None:
    under_grammar = [
        (request_id, earlier.num_output_placeholders)
        for request_id, _, request, earlier, progress, _ in step.rows
        if request.needs_grammar and not progress.is_prefill_chunk
    ]
    waits = any(num_placeholders > 0 for _, num_placeholders in under_grammar)
    output = step.output
    told = (output.has_structured_output_requests, output.pending_structured_output_tokens)
    if told == (bool(under_grammar), waits):
        return None
    return f"the rows {under_grammar} (with placeholders) sample under a grammar, told were {told}"


def _taken_blocks(step: Step) -> Iterator[int]:
    cached = step.output.scheduled_cached_requests
    for request_id, told in zip(cached.request_ids, cached.new_block_ids, strict=True):
        if told is not None and request_id not in cached.resumed_request_ids:
            yield from chain.from_iterable(told)
    for request_id in step.admitted:
        num_hit_tokens = (
            step.after.progress[request_id].num_computed_tokens
            - step.output.num_scheduled_tokens[request_id]
        )
        held = step.before.kv.tables.get(request_id)
        for group_index, table in enumerate(step.after.kv.tables[request_id]):
            num_had = num_hit_tokens // step.before.config.block_size
            if held is not None:
                num_had = len(held[group_index].block_ids)
            yield from elements_from(table.block_ids, num_had)


def _all_blocks(state: SchedulerState, request_id: RequestId) -> Iterator[BlockId]:
    return chain.from_iterable(state.kv.block_ids(request_id) or ())


INVARIANTS: tuple[StepInvariant, ...] = (
    _described_once,
    _known_rows_are_true,
    _new_blocks_are_told,
    _whole_rows_are_true,
    _shape_fits_the_runner,
    _rows_are_remembered,
    _new_blocks_are_zeroed,
    _first_stage_is_told,
    _grammars_are_announced,
)
"""In the order in which they are checked."""
