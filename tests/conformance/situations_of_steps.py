"""What happened in a planned step."""

from collections.abc import Iterator

from kvsched_fp import PauseState, RequestStatus, SchedulerState, SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.pool import as_tuple
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.state import num_waiting_requests


def count_decisions(before: SchedulerState, after: SchedulerState) -> int:
    """Count what one step decided: rows of the batch, and preemptions."""
    output = after.in_flight[-1]
    return len(output.num_scheduled_tokens) + len(_preempted(before, output))


def situations_of_step(before: SchedulerState, after: SchedulerState) -> Iterator[str]:
    """Name what happened in the step that led from `before` to `after`."""
    output = after.in_flight[-1]
    preempted = _preempted(before, output)
    yield from _of_preemption(before, output, preempted)
    for request_id in output.num_scheduled_tokens:
        if after.progress[request_id].is_prefill_chunk:
            yield "a prompt in pieces"
        if request_id not in before.running:
            yield from _of_admission(before, after, request_id)
    threshold = before.config.long_prefill_token_threshold
    if 0 < threshold < max(output.num_scheduled_tokens.values(), default=0) and len(before.requests) == 1:
        yield "a lone request above the threshold"
    if not output.num_scheduled_tokens and before.requests:
        yield "an empty step with requests there"
    if before.pause_state is PauseState.PAUSED_NEW and num_waiting_requests(before):
        yield "a step while new requests were paused"
    if before.pause_state is PauseState.PAUSED_ALL and before.requests:
        yield "a step while everything was paused"
    if output.new_block_ids_to_zero:
        yield "blocks to zero"
    if any(after.progress[request_id].num_stale_output_tokens for request_id in after.deferred):
        yield "waited for stale output"
    yield from _of_pool(before, after)


def _of_preemption(
    before: SchedulerState, output: SchedulerOutput, preempted: list[RequestId]
) -> Iterator[str]:
    served = [index for index, name in enumerate(before.running) if name in output.num_scheduled_tokens]
    for request_id in preempted:
        if before.config.policy is SchedulingPolicy.FCFS:
            yield "preempted, first come first served"
        else:
            yield "preempted, by priority"
        if served and before.running.index(request_id) < served[-1]:
            yield "preempted, though ahead of one that was served"
    if len(preempted) > 1:
        yield "several preempted in one step"


def _of_admission(before: SchedulerState, after: SchedulerState, request_id: RequestId) -> Iterator[str]:
    config = before.config
    was_preempted = before.progress[request_id].status is RequestStatus.PREEMPTED
    if was_preempted:
        yield "resumed, V2 output" if config.use_v2_model_runner else "resumed, V1 output"
    num_scheduled = after.in_flight[-1].num_scheduled_tokens[request_id]
    num_hit = after.progress[request_id].num_computed_tokens - num_scheduled
    if num_hit:
        yield "prefix hit"
        num_known = num_known_tokens(after.requests[request_id], after.progress[request_id])
        if num_hit + config.block_size >= num_known:
            yield "prefix hit on everything but the last block"
        if was_preempted:
            yield "prefix hit after a preemption"
        if len(config.kv_cache_groups) > 1:
            yield "prefix hit with several groups"


def _of_pool(before: SchedulerState, after: SchedulerState) -> Iterator[str]:
    pool = after.kv.pool
    if any(len(as_tuple(blocks)) > 1 for blocks in pool.cached.values()):
        yield "a hash cached twice"
    if any(len(table.block_ids) > 256 for tables in after.kv.tables.values() for table in tables):
        yield "a table of more than 256 blocks"
    if max(pool.ref_counts) > 1:
        yield "a block held twice"
    if any(key not in pool.cached for key in before.kv.pool.cached):
        yield "evicted from the prefix index"


def _preempted(before: SchedulerState, output: SchedulerOutput) -> list[RequestId]:
    """List who was preempted by the step itself, not by a reset ahead of it."""
    return [request_id for request_id in output.preempted_request_ids if request_id in before.running]
