"""For every invariant of the other events, a step that breaks it and as little else as possible."""

from collections.abc import Callable
from typing import Any

import attrs

from kvsched_fp import (
    AddRequest,
    Emitted,
    EngineOutput,
    FinishReason,
    FinishRequests,
    PauseState,
    ResetPrefixCache,
    SchedulerState,
    SetPauseState,
    schedule,
)
from kvsched_fp.ids import BlockId, BlockKey, RequestId
from kvsched_fp.invariants import Step
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import PrefixCacheStats
from kvsched_fp.progress import PrefillStats
from kvsched_fp.queues import FCFSQueue, queue_entry
from tests.unit.worlds import make_request, make_state

from .good import (
    A,
    B,
    Changed,
    D,
    E,
    answer,
    busy_config,
    busy_state,
    change,
    change_told,
    run,
    with_kv,
    with_pool,
    with_progress,
    with_request,
    with_table,
)

STRANGER = RequestId("stranger")


def _added() -> Step:
    return run(busy_state(), AddRequest(make_request("f", 5)))


def _after_added(**changes: Any) -> Changed:
    sound = _added()
    return change(sound, after=attrs.evolve(sound.after, **changes))


def _counts_a_step() -> Changed:
    return _after_added(prefill_capacity_bound=not _added().after.prefill_capacity_bound)


def _loses_a_step() -> Changed:
    return _after_added(in_flight=())


def _forgets_who_finished() -> Changed:
    sound = _added()
    return change(sound, before=attrs.evolve(sound.before, finished_request_ids=(STRANGER,)))


def _tells_without_an_update() -> Changed:
    return _after_added(emitted=Emitted())


def _goes_on_by_itself() -> Changed:
    return _after_added(pause_state=PauseState.PAUSED_ALL)


def _does_not_count_the_request() -> Changed:
    return _after_added(num_added=_added().before.num_added)


def _added_in_front() -> Changed:
    sound = _added()
    queue = FCFSQueue()
    for request_id in (RequestId("f"), D, E):
        queue = queue.add(queue_entry(sound.after.requests[request_id]))
    return _after_added(waiting=queue)


def _another_request() -> Changed:
    sound = _added()
    return change(sound, after=with_request(sound.after, A, priority=9))


def _counters_of_somebody_else() -> Changed:
    sound = _added()
    return change(sound, after=with_progress(sound.after, A, num_preemptions=5))


def _shorter_table() -> Changed:
    sound = _added()
    return change(sound, after=with_table(sound.after, A, block_ids=(BlockId(1),)))


def _index_changes_in_silence() -> Changed:
    sound = _added()
    cached = sound.after.kv.pool.cached
    key = next(iter(cached))
    return change(
        sound, after=with_pool(sound.after, cached=cached.delete(key).set(BlockKey(bytes(20)), cached[key]))
    )


def _answered() -> Step:
    return run(busy_state(), answer(busy_state()))


def _output_of(sound: Step, request_id: RequestId) -> EngineOutput:
    return next(
        output
        for client in sound.after.emitted.clients.values()
        for output in client.outputs
        if output.request_id == request_id
    )


def _told(request_id: RequestId, **changes: Any) -> Changed:
    """Change what client 0, whose requests are `a` and `b`, is told about one of them."""
    sound = _answered()
    outputs = [
        attrs.evolve(output, **changes) if output.request_id == request_id else output
        for output in sound.after.emitted.clients[0].outputs
    ]
    return change_told(sound, 0, *outputs)


def _told_twice() -> Changed:
    sound = _answered()
    return change_told(sound, 0, _output_of(sound, A), _output_of(sound, A), _output_of(sound, B))


def _told_another_token() -> Changed:
    return _told(A, new_token_ids=(999,))


def _not_told() -> Changed:
    sound = _answered()
    return change_told(sound, 0, _output_of(sound, B))


def _told_an_end_that_is_none() -> Changed:
    return _told(A, finish_reason=FinishReason.STOP)


def _behind_the_end() -> Changed:
    sound = _answered()
    token_id = _output_of(sound, A).new_token_ids[-1]
    return _with_params(sound, stop_token_ids=frozenset({token_id}))


def _another_end_first() -> Changed:
    sound = run(_ending(), answer(_ending()))
    return _with_params(sound, eos_token_id=_output_of(sound, A).new_token_ids[-1])


def _ending() -> SchedulerState:
    """Make a state in which `a` ends for its length with the step in flight."""
    return schedule(make_state(busy_config(), make_request("a", 6, max_tokens=1)))[0]


def _with_params(sound: Step, **changes: Any) -> Changed:
    params = attrs.evolve(sound.before.requests[A].sampling_params, **changes)
    return change(sound, before=with_request(sound.before, A, sampling_params=params))


def _still_in_flight() -> Changed:
    sound = _answered()
    return change(sound, after=with_progress(sound.after, A, num_in_flight_tokens=1))


def _output_that_was_not_told() -> Changed:
    sound = _answered()
    output = sound.before.progress[A].output_token_ids
    return change(sound, after=with_progress(sound.after, A, output_token_ids=output))


def _stats_told_twice() -> Changed:
    return _told(A, prefill_stats=PrefillStats())


def _running_in_another_order() -> Changed:
    sound = _answered()
    return change(sound, after=attrs.evolve(sound.after, running=sound.after.running[::-1]))


def _finished_set_not_told() -> Changed:
    sound = _answered()
    finished: OrderedMap[int, tuple[RequestId, ...]] = OrderedMap({0: (STRANGER,)})
    return change(sound, before=attrs.evolve(sound.before, finished_by_client=finished))


def _wrong_figures() -> Changed:
    sound = _answered()
    stats = sound.after.emitted.clients[0].scheduler_stats
    assert stats is not None
    return change_told(sound, 0, scheduler_stats=attrs.evolve(stats, num_running_requests=7))


def _events_go_out_twice() -> Changed:
    sound = _answered()
    state = busy_state(num_blocks=13)
    pending = state.kv.pending_events
    assert pending
    return change(sound, after=with_kv(sound.after, pending_events=pending))


def _look_up_not_counted() -> Changed:
    stats = PrefixCacheStats(requests=1)
    sound = _added()
    return change(sound, after=with_kv(sound.after, prefix_cache_stats=stats))


def _creation_not_told() -> Changed:
    sound = run(_ending(), answer(_ending()))
    output = _output_of(sound, A)
    assert output.prefill_stats is not None
    stats = attrs.evolve(output.prefill_stats, num_cache_creation_tokens=0)
    return change_told(sound, 0, attrs.evolve(output, prefill_stats=stats))


def _key_is_lost() -> Changed:
    sound = _added()
    cached = sound.after.kv.pool.cached
    return change(sound, after=with_pool(sound.after, cached=cached.delete(next(iter(cached)))))


def _end_not_told() -> Changed:
    sound = run(busy_state(), FinishRequests((D,)))
    return change(sound, after=attrs.evolve(sound.after, finished_request_ids=()))


def _pause_changes_more() -> Changed:
    sound = run(busy_state(), SetPauseState(PauseState.PAUSED_NEW))
    return change(sound, after=attrs.evolve(sound.after, num_added=sound.after.num_added + 1))


def _reset_while_held() -> Changed:
    return change(run(busy_state(), ResetPrefixCache()), outcome=True)


def _reset_keeps_the_output() -> Changed:
    sound = run(busy_state(), ResetPrefixCache(reset_running_requests=True))
    return change(sound, after=with_progress(sound.after, B, drop_stale_output=False))


def _somebody_comes() -> Changed:
    sound = run(busy_state(), ResetPrefixCache())
    requests = sound.after.requests.set(RequestId("x"), make_request("x"))
    return change(sound, after=attrs.evolve(sound.after, requests=requests))


def _waiting_in_another_order() -> Changed:
    sound = run(busy_state(), ResetPrefixCache())
    queue = FCFSQueue()
    for request_id in (E, D):
        queue = queue.add(queue_entry(sound.after.requests[request_id]))
    return change(sound, after=attrs.evolve(sound.after, waiting=queue))


BROKEN_RESULTS: dict[str, Callable[[], Changed]] = {
    "INV-STEP-03": _counts_a_step,
    "INV-STEP-04": _loses_a_step,
    "INV-STEP-07": _forgets_who_finished,
    "INV-RESULT-01": _told_twice,
    "INV-RESULT-02": _told_another_token,
    "INV-RESULT-03": _not_told,
    "INV-RESULT-04": _told_an_end_that_is_none,
    "INV-RESULT-05": _still_in_flight,
    "INV-RESULT-06": _output_that_was_not_told,
    "INV-RESULT-07": _stats_told_twice,
    "INV-RESULT-08": _running_in_another_order,
    "INV-RESULT-09": _finished_set_not_told,
    "INV-RESULT-10": _wrong_figures,
    "INV-RESULT-11": _tells_without_an_update,
    "INV-STOP-01": _behind_the_end,
    "INV-STOP-02": _another_end_first,
    "INV-FIGURE-01": _look_up_not_counted,
    "INV-FIGURE-03": _creation_not_told,
    "INV-EVENT-01": _events_go_out_twice,
    "INV-EVENT-03": _key_is_lost,
    "INV-EVENT-04": _index_changes_in_silence,
    "INV-ADD-01": _does_not_count_the_request,
    "INV-ADD-02": _added_in_front,
    "INV-FINISH-01": _end_not_told,
    "INV-PAUSE-01": _pause_changes_more,
    "INV-PAUSE-02": _goes_on_by_itself,
    "INV-RESET-01": _reset_while_held,
    "INV-RESET-02": _reset_keeps_the_output,
    "INV-KEEP-01": _another_request,
    "INV-KEEP-02": _somebody_comes,
    "INV-KEEP-03": _counters_of_somebody_else,
    "INV-KEEP-04": _shorter_table,
    "INV-KEEP-05": _waiting_in_another_order,
}
"""Invariant id -> how to make the step."""
