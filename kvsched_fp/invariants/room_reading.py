"""Who would give way to whom, and whether that is enough: what a state says about room for a request."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kvsched_fp.config import Quirk, SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import GroupTable
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


def lacks_blocks(state: SchedulerState, request_id: RequestId) -> bool:
    """Tell whether a running request lacks blocks even if all give way who do so before it."""
    return falls_short(state, request_id, who_gives_way(state, request_id))


def falls_short(state: SchedulerState, request_id: RequestId, givers: Iterable[RequestId]) -> bool:
    """Tell whether what is free, or held by `givers` alone, is too little for a request that holds blocks.

    Its need is that of all known tokens, with placeholders, drafts and lookahead.
    """
    config = state.config
    held = Counter(block_id for tables in state.kv.tables.values() for block_id in _blocks_of(tables))
    theirs = Counter(block_id for name in givers for block_id in _blocks_of(state.kv.tables[name]))
    num_room = state.kv.pool.num_free_blocks + sum(
        held[block_id] == num for block_id, num in theirs.items()
    )
    request, progress = state.requests[request_id], state.progress[request_id]
    num_tokens = (
        len(request.prompt_token_ids) + len(progress.output_token_ids) + config.num_lookahead_tokens
    )
    num_tokens += progress.num_output_placeholders + len(progress.spec_token_ids)
    num_blocks = -(-min(num_tokens, config.max_model_len) // config.block_size)
    tables = state.kv.tables[request_id]
    return sum(max(num_blocks - table.block_ids.length, 0) for table in tables) > num_room


def holders_with_input(state: SchedulerState) -> list[RequestId]:
    """List who waits with blocks in hand, and not for input, first in line first."""
    return [
        request_id
        for request_id in state.kv_holding_waiting
        if state.progress[request_id].status is not RequestStatus.WAITING_FOR_INPUT
    ]


def who_may_give_back(state: SchedulerState, request_id: RequestId) -> list[RequestId]:
    """List the other holders that have input and nothing in flight; nobody with the quirk of D-16."""
    if Quirk.KEEPS_BLOCKS_WHILE_WAITING in state.config.quirks:
        return []
    return [
        other
        for other in state.kv_holding_waiting
        if other != request_id
        and state.progress[other].status is RequestStatus.WAITING
        and not state.progress[other].num_in_flight_tokens
    ]


def all_fall_short(state: SchedulerState, holder_id: RequestId) -> bool:
    """Tell whether a holder lacks blocks even if all who run give way, and all give back who may."""
    return falls_short(state, holder_id, [*state.running, *who_may_give_back(state, holder_id)])


def who_gives_way(state: SchedulerState, request_id: RequestId) -> list[RequestId]:
    """List the running requests that are preempted before this one: those behind it, or less important."""
    place = state.running.index(request_id)
    if state.config.policy is SchedulingPolicy.FCFS:
        return list(state.running[place + 1 :])
    ranks = {
        name: (state.requests[name].priority, state.requests[name].arrival_time) for name in state.running
    }
    own = ranks[request_id]
    first_goes = Quirk.OLDEST_OF_EQUALS_GIVES_WAY in state.config.quirks
    equals = state.running[:place] if first_goes else state.running[place + 1 :]
    return [name for name in state.running if ranks[name] > own or (name in equals and ranks[name] == own)]


def who_goes_last(state: SchedulerState) -> RequestId:
    """Give the running request to which all others give way. There must be one."""
    return max(state.running, key=lambda request_id: len(who_gives_way(state, request_id)))


def _blocks_of(tables: tuple[GroupTable, ...]) -> Iterator[int]:
    for table in tables:
        yield from table.block_ids
