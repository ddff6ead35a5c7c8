"""For every invariant of a state, a state that breaks it and as little else as possible."""

from collections.abc import Callable

import attrs
from pyrsistent import pset

from kvsched_fp import RequestStatus, SchedulerState, SchedulingPolicy, add_request, schedule, update
from kvsched_fp.ids import BlockId, BlockKey, RequestId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import PrefixCacheStats
from kvsched_fp.progress import PrefillStats, RequestEvent, RequestEventType
from kvsched_fp.queues import FCFSQueue, PriorityQueue, QueueEntry
from tests.unit.worlds import make_config, make_request, make_result, make_state

from .good import (
    A,
    B,
    C,
    D,
    E,
    busy_state,
    deferred_state,
    with_integer,
    with_kv,
    with_object,
    with_pool,
    with_progress,
    with_ref_count,
    with_request,
    with_table,
)
from .good_features import (
    adapted_state,
    ahead_state,
    answered,
    constrained_state,
    drafting_state,
    parked_state,
)

STRANGER = RequestId("stranger")
FOREIGN_KEY = BlockKey(bytes(20))


def _queue(state: SchedulerState, *request_ids: RequestId) -> FCFSQueue:
    queue = FCFSQueue()
    for request_id in request_ids:
        request = state.requests[request_id]
        queue = queue.add(QueueEntry(request.priority, request.arrival_time, request_id))
    return queue


def _one_too_few_running() -> SchedulerState:
    return attrs.evolve(busy_state(), running=(A, B))


def _too_many_running() -> SchedulerState:
    state = busy_state()
    return attrs.evolve(state, config=attrs.evolve(state.config, max_num_active_seqs=2))


def _twice_in_the_queues() -> SchedulerState:
    return attrs.evolve(busy_state(), running=(A, B, B))


def _filed_under_another_id() -> SchedulerState:
    state = busy_state()
    return attrs.evolve(state, progress=state.progress.delete(D).set(STRANGER, state.progress[D]))


def _waiting_while_running() -> SchedulerState:
    return with_progress(busy_state(), C, status=RequestStatus.WAITING)


def _deferred_while_running() -> SchedulerState:
    return attrs.evolve(busy_state(), deferred=pset([A]))


def _entry_with_another_priority() -> SchedulerState:
    state = busy_state()
    queue = FCFSQueue().add(QueueEntry(7, 3.0, D)).add(QueueEntry(1, 4.0, E))
    return attrs.evolve(state, waiting=queue)


def _unsorted_by_priority() -> SchedulerState:
    state = busy_state(policy=SchedulingPolicy.PRIORITY)
    entries = tuple(state.waiting.entries)  # type: ignore[attr-defined]
    return attrs.evolve(state, waiting=PriorityQueue(entries[::-1]))


def _later_one_first() -> SchedulerState:
    state = busy_state()
    return attrs.evolve(state, waiting=_queue(state, E, D))


def _computed_more_than_known() -> SchedulerState:
    return with_progress(busy_state(), C, num_computed_tokens=8)


def _fresh_with_a_preemption() -> SchedulerState:
    return with_progress(busy_state(), D, num_preemptions=1)


def _preempted_and_not_counted() -> SchedulerState:
    return with_progress(deferred_state(), B, num_preemptions=0)


def _running_with_nothing_computed() -> SchedulerState:
    return with_progress(busy_state(), C, num_computed_tokens=0)


def _chunk_without_a_rest() -> SchedulerState:
    return with_progress(busy_state(), C, is_prefill_chunk=True)


def _live_behind_its_end() -> SchedulerState:
    state = busy_state()
    params = attrs.evolve(state.requests[C].sampling_params, max_tokens=1)
    return with_request(state, C, sampling_params=params)


def _stats_after_the_output() -> SchedulerState:
    return with_progress(busy_state(), C, prefill_stats=PrefillStats())


def _lost_step() -> SchedulerState:
    return attrs.evolve(deferred_state(), in_flight=deferred_state().in_flight[::2])


def _charged_twice() -> SchedulerState:
    return with_progress(busy_state(), C, num_in_flight_tokens=2)


def _running_with_stale_output() -> SchedulerState:
    return with_progress(busy_state(), C, num_stale_output_tokens=1)


def _missing_hash() -> SchedulerState:
    return with_progress(busy_state(), D, block_hashes=())


def _more_free_blocks_than_there_are() -> SchedulerState:
    return with_pool(busy_state(), num_free_blocks=13)


def _held_null_block() -> SchedulerState:
    return with_ref_count(busy_state(), 0, 1)


def _one_reference_too_few() -> SchedulerState:
    return with_ref_count(busy_state(), 1, 1)


def _one_free_block_too_few() -> SchedulerState:
    state = busy_state()
    return with_pool(state, num_free_blocks=state.kv.pool.num_free_blocks - 1)


def _wrong_backward_link() -> SchedulerState:
    state = busy_state()
    last = state.kv.pool.free_blocks()[-1]
    return with_pool(state, prev_free=with_integer(state.kv.pool.prev_free, last, last))


def _one_block_in_two_places() -> SchedulerState:
    # c lists its first block twice, and its second one is free: nothing but the double entry is wrong.
    state = with_ref_count(busy_state(), 7, 2)
    state = with_table(state, C, block_ids=(BlockId(7), BlockId(7)))
    return _with_front_of_free_list(with_ref_count(state, 8, 0), 8)


def _shared_with_another_salt() -> SchedulerState:
    first = make_request("a", 9)
    state, output = schedule(make_state(make_config(), first))
    state = update(state, make_result(state, output))
    state = add_request(state, make_request("b", 9, tokens=first.prompt_token_ids))
    return with_request(schedule(state)[0], B, cache_salt="theirs")


def _shared_without_a_key() -> SchedulerState:
    # c's second block, which is not full, becomes b's third.
    state = with_ref_count(with_ref_count(busy_state(), 6, 0), 8, 2)
    state = with_table(state, B, block_ids=(BlockId(1), BlockId(2), BlockId(8)))
    return _with_front_of_free_list(state, 6)


def _with_front_of_free_list(state: SchedulerState, block_id: int) -> SchedulerState:
    pool = state.kv.pool
    front = pool.next_free[pool.num_blocks]
    next_free = with_integer(with_integer(pool.next_free, block_id, front), pool.num_blocks, block_id)
    prev_free = with_integer(with_integer(pool.prev_free, front, block_id), block_id, pool.num_blocks)
    return with_pool(
        state, next_free=next_free, prev_free=prev_free, num_free_blocks=pool.num_free_blocks + 1
    )


def _tables_of_a_waiting_request() -> SchedulerState:
    state = busy_state()
    return with_kv(state, tables=state.kv.tables.set(D, ()))


def _too_few_slots() -> SchedulerState:
    state = with_ref_count(busy_state(), 8, 0)
    return _with_front_of_free_list(with_table(state, C, block_ids=(BlockId(7),)), 8)


def _one_block_too_many() -> SchedulerState:
    state = busy_state(num_lookahead_tokens=4)
    return attrs.evolve(state, config=attrs.evolve(state.config, num_lookahead_tokens=0))


def _index_without_caching() -> SchedulerState:
    state = busy_state(enable_prefix_caching=False)
    pool = state.kv.pool
    last = pool.free_blocks()[-1]
    keys = with_object(pool.keys, last, FOREIGN_KEY)
    return with_pool(state, cached=pool.cached.set(FOREIGN_KEY, last), keys=keys)


def _block_under_a_foreign_key() -> SchedulerState:
    state = busy_state()
    return with_pool(state, cached=state.kv.pool.cached.set(FOREIGN_KEY, BlockId(8)))


def _key_that_is_not_in_the_index() -> SchedulerState:
    state = busy_state()
    return with_pool(state, keys=with_object(state.kv.pool.keys, 8, FOREIGN_KEY))


def _key_of_other_tokens() -> SchedulerState:
    state = busy_state()
    pool = state.kv.pool
    key = pool.keys[7]
    assert key is not None
    cached = pool.cached.delete(key).set(FOREIGN_KEY, BlockId(7))
    return with_pool(state, cached=cached, keys=with_object(pool.keys, 7, FOREIGN_KEY))


def _full_block_that_is_not_cached() -> SchedulerState:
    state = busy_state()
    pool = state.kv.pool
    key = pool.keys[7]
    assert key is not None
    state = with_pool(state, cached=pool.cached.delete(key), keys=with_object(pool.keys, 7, None))
    return with_table(state, C, num_cached_blocks=0)


def _cached_block_in_front_of_an_empty_one() -> SchedulerState:
    state = busy_state()
    pool = state.kv.pool
    front = pool.free_blocks()[0]
    return with_pool(
        state,
        cached=pool.cached.set(FOREIGN_KEY, front),
        keys=with_object(pool.keys, front, FOREIGN_KEY),
    )


def _more_executed_than_planned() -> SchedulerState:
    return attrs.evolve(busy_state(), num_executed_steps=100)


def _equal_add_numbers() -> SchedulerState:
    state = busy_state()
    return attrs.evolve(state, add_numbers=state.add_numbers.set(E, state.add_numbers[D]))


def _stats_without_logging() -> SchedulerState:
    state = with_kv(busy_state(), prefix_cache_stats=PrefixCacheStats(requests=1))
    return attrs.evolve(state, config=attrs.evolve(state.config, log_stats=False))


def _waiting_for_a_grammar_and_not_deferred() -> SchedulerState:
    return attrs.evolve(constrained_state(), deferred=pset())


def _with_computed_tokens_among_those_without() -> SchedulerState:
    state = parked_state()
    return attrs.evolve(state, waiting=_queue(state, A), kv_holding_waiting=FCFSQueue())


def _one_adapter_too_many() -> SchedulerState:
    state = adapted_state()
    return attrs.evolve(state, config=attrs.evolve(state.config, max_loras=1))


def _scheduled_before_it_is_queued() -> SchedulerState:
    state = parked_state()
    queued, scheduled = (
        RequestEvent(kind, 0.0) for kind in (RequestEventType.QUEUED, RequestEventType.SCHEDULED)
    )
    return with_progress(state, B, events=(scheduled, queued, scheduled))


def _one_placeholder_too_many() -> SchedulerState:
    state = ahead_state()
    num_placeholders = state.progress[A].num_output_placeholders
    return with_progress(state, A, num_output_placeholders=num_placeholders + 1)


def _two_tokens_behind() -> SchedulerState:
    state = answered(ahead_state())
    return with_progress(state, A, num_computed_tokens=state.progress[A].num_computed_tokens - 1)


def _one_draft_too_many() -> SchedulerState:
    return with_progress(ahead_state(), A, spec_token_ids=(1, 2, 3))


def _never_decoded_again() -> SchedulerState:
    return with_progress(ahead_state(), A, next_decode_eligible_step=99)


def _computed_ahead_of_nothing() -> SchedulerState:
    return with_progress(drafting_state(), A, num_computed_tokens=8)


def _waiting_for_input_and_not_counted() -> SchedulerState:
    return attrs.evolve(parked_state(), num_waiting_for_input=0)


def _input_for_no_session() -> SchedulerState:
    return with_progress(parked_state(), B, chunks=(None,))


def _stopped_with_nothing_left() -> SchedulerState:
    return with_progress(parked_state(), A, num_computed_tokens=7)


def _prompt_that_is_too_long() -> SchedulerState:
    state = make_state(make_config(), make_request("a", 7))
    return attrs.evolve(state, config=attrs.evolve(state.config, max_model_len=6))


def _running_without_its_grammar() -> SchedulerState:
    return with_progress(constrained_state(), A, grammar=None)


def _error_of_one_that_runs() -> SchedulerState:
    return attrs.evolve(constrained_state(), grammar_errors=OrderedMap({A: "no such grammar"}))


def _drafts_without_a_drafter() -> SchedulerState:
    return with_progress(busy_state(), D, spec_token_ids=(1,))


BROKEN_STATES: dict[str, Callable[[], SchedulerState]] = {
    "INV-QUEUE-01": _one_too_few_running,
    "INV-QUEUE-02": _too_many_running,
    "INV-QUEUE-03": _twice_in_the_queues,
    "INV-QUEUE-04": _filed_under_another_id,
    "INV-QUEUE-05": _waiting_while_running,
    "INV-QUEUE-06": _deferred_while_running,
    "INV-QUEUE-07": _entry_with_another_priority,
    "INV-QUEUE-08": _unsorted_by_priority,
    "INV-QUEUE-09": _later_one_first,
    "INV-QUEUE-10": _waiting_for_a_grammar_and_not_deferred,
    "INV-QUEUE-11": _with_computed_tokens_among_those_without,
    "INV-QUEUE-12": _one_adapter_too_many,
    "INV-PROGRESS-01": _computed_more_than_known,
    "INV-PROGRESS-02": _fresh_with_a_preemption,
    "INV-PROGRESS-03": _preempted_and_not_counted,
    "INV-PROGRESS-04": _running_with_nothing_computed,
    "INV-PROGRESS-05": _chunk_without_a_rest,
    "INV-PROGRESS-06": _live_behind_its_end,
    "INV-PROGRESS-07": _stats_after_the_output,
    "INV-PROGRESS-08": _scheduled_before_it_is_queued,
    "INV-FLIGHT-01": _lost_step,
    "INV-FLIGHT-02": _charged_twice,
    "INV-FLIGHT-03": _running_with_stale_output,
    "INV-HASH-01": _missing_hash,
    "INV-AHEAD-01": _one_placeholder_too_many,
    "INV-AHEAD-02": _two_tokens_behind,
    "INV-AHEAD-03": _one_draft_too_many,
    "INV-AHEAD-04": _never_decoded_again,
    "INV-AHEAD-05": _computed_ahead_of_nothing,
    "INV-SESSION-01": _waiting_for_input_and_not_counted,
    "INV-SESSION-02": _input_for_no_session,
    "INV-SESSION-03": _stopped_with_nothing_left,
    "INV-SESSION-04": _prompt_that_is_too_long,
    "INV-GRAMMAR-01": _running_without_its_grammar,
    "INV-GRAMMAR-02": _error_of_one_that_runs,
    "INV-BLOCK-01": _more_free_blocks_than_there_are,
    "INV-BLOCK-02": _held_null_block,
    "INV-BLOCK-03": _one_reference_too_few,
    "INV-BLOCK-04": _one_free_block_too_few,
    "INV-BLOCK-05": _wrong_backward_link,
    "INV-BLOCK-06": _one_block_in_two_places,
    "INV-BLOCK-07": _shared_without_a_key,
    "INV-BLOCK-08": _shared_with_another_salt,
    "INV-TABLE-01": _tables_of_a_waiting_request,
    "INV-TABLE-02": _too_few_slots,
    "INV-TABLE-03": _one_block_too_many,
    "INV-CACHE-01": _block_under_a_foreign_key,
    "INV-CACHE-02": _key_that_is_not_in_the_index,
    "INV-CACHE-03": _key_of_other_tokens,
    "INV-CACHE-04": _full_block_that_is_not_cached,
    "INV-CACHE-05": _index_without_caching,
    "INV-CACHE-06": _cached_block_in_front_of_an_empty_one,
    "INV-COUNT-01": _more_executed_than_planned,
    "INV-COUNT-02": _equal_add_numbers,
    "INV-COUNT-03": _stats_without_logging,
    "INV-COUNT-04": _drafts_without_a_drafter,
}
"""Invariant id -> how to make the state."""
