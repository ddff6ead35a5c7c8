"""For every invariant of a planned step, a step that breaks it and as little else as possible."""

from collections.abc import Callable
from typing import Any

import attrs

from kvsched_fp import (
    AddRequest,
    PauseState,
    RequestStatus,
    Schedule,
    SchedulingPolicy,
    schedule,
    step,
    update,
)
from kvsched_fp.config import ALL_QUIRKS
from kvsched_fp.ids import BlockId, RequestId
from kvsched_fp.invariants import Step
from kvsched_fp.kvcache.kv_events import BlockStored
from kvsched_fp.progress import PrefillStats
from kvsched_fp.queues import FCFSQueue, queue_entry
from tests.unit.worlds import (
    make_config,
    make_request,
    make_result,
    make_state,
    make_waiting_for_a_session,
    run_together,
)

from .broken_holders import sessions_with_input
from .good import (
    A,
    B,
    C,
    Changed,
    D,
    E,
    busy_state,
    change,
    change_output,
    pressed_state,
    ready_state,
    run,
    with_config,
    with_kv,
    with_progress,
    with_request,
    with_table,
)

STRANGER = RequestId("stranger")


def _sound(**changes: Any) -> Step:
    """Make a step with the rows `a`, `b` and `c`, and `d` and `e` admitted."""
    return run(ready_state(**{"max_num_seqs": 5} | changes), Schedule())


def _preempting(**changes: Any) -> Step:
    """Make a step with the row `a`, in which `b` is preempted."""
    return run(pressed_state(**changes), Schedule())


def _gives_nothing() -> Changed:
    return change(_sound(), outcome=None)


def _does_not_count() -> Changed:
    sound = _sound()
    num_executed_steps = sound.before.num_executed_steps
    return change(sound, after=attrs.evolve(sound.after, num_executed_steps=num_executed_steps))


def _forgets_who_finished() -> Changed:
    sound = _sound()
    return change(sound, before=attrs.evolve(sound.before, finished_request_ids=(STRANGER,)))


def _forgets_who_was_preempted() -> Changed:
    sound = _sound()
    return change(sound, before=attrs.evolve(sound.before, preempted_request_ids=(STRANGER,)))


def _total_too_large() -> Changed:
    sound = _sound()
    return change_output(sound, total_num_scheduled_tokens=sound.output.total_num_scheduled_tokens + 1)


def _over_budget() -> Changed:
    return with_config(_sound(), max_num_batched_tokens=8)


def _goes_on_while_paused() -> Changed:
    sound = _sound()
    return change(sound, before=attrs.evolve(sound.before, pause_state=PauseState.PAUSED_ALL))


def _longer_than_the_threshold() -> Changed:
    return with_config(_sound(), long_prefill_token_threshold=5)


def _row_of_somebody_who_does_not_run() -> Changed:
    sound = _sound()
    return change(sound, after=attrs.evolve(sound.after, running=(B, B, C, D, E)))


def _rows_in_another_order() -> Changed:
    sound = _sound()
    return change(sound, after=attrs.evolve(sound.after, running=(B, A, C, D, E)))


def _row_beyond_the_known() -> Changed:
    sound = _sound()
    return change(sound, after=with_progress(sound.after, C, num_computed_tokens=9))


def _row_that_is_not_in_flight() -> Changed:
    sound = _sound()
    return change(sound, after=with_progress(sound.after, C, num_in_flight_tokens=0))


def _row_without_slots() -> Changed:
    sound = _sound()
    return change(sound, after=with_table(sound.after, C, block_ids=(BlockId(7),)))


def _row_marked_as_a_chunk() -> Changed:
    sound = _sound()
    return change(sound, after=with_progress(sound.after, C, is_prefill_chunk=True))


def _row_cut_for_nothing() -> Changed:
    ready = ready_state(max_num_seqs=5)
    config = attrs.evolve(ready.config, max_num_batched_tokens=5)
    sound = run(attrs.evolve(ready, config=config), Schedule())
    return with_config(sound, max_num_batched_tokens=6)


def _passed_over() -> Changed:
    sound = run(busy_state(), Schedule())
    output = sound.before.progress[A].output_token_ids.append(1)
    return change(sound, before=with_progress(sound.before, A, output_token_ids=output))


def _prompt_that_is_not_held() -> Changed:
    sound = _sound()
    return change(sound, event=Schedule(throttle_prefills=True))


def _prompt_that_does_not_count() -> Changed:
    sound = run(make_state(make_config(prefill_schedule_interval=2), make_request("a", 6)), Schedule())
    return change(sound, after=attrs.evolve(sound.after, last_prefill_step=sound.before.last_prefill_step))


def _row_described_twice() -> Changed:
    sound = _sound()
    new = sound.output.scheduled_new_requests
    return change_output(sound, scheduled_new_requests=(*new, new[0]))


def _with_columns(sound: Step, **changes: Any) -> Changed:
    columns = attrs.evolve(sound.output.scheduled_cached_requests, **changes)
    return change_output(sound, scheduled_cached_requests=columns)


def _wrong_number_of_output_tokens() -> Changed:
    return _with_columns(_sound(), num_output_tokens=(1, 1, 2))


def _block_that_is_not_in_the_table() -> Changed:
    return _with_columns(_sound(), new_block_ids=(None, None, ((BlockId(12),),)))


def _whole_row(**changes: Any) -> Changed:
    sound = _sound()
    first, *others = sound.output.scheduled_new_requests
    return change_output(sound, scheduled_new_requests=(attrs.evolve(first, **changes), *others))


def _another_number_of_computed_tokens() -> Changed:
    return _whole_row(num_computed_tokens=1)


def _not_all_known_tokens() -> Changed:
    return _whole_row(prefill_token_ids=(1, 2, 3))


def _batch_not_remembered() -> Changed:
    sound = _sound(use_v2_model_runner=False)
    return change(sound, after=attrs.evolve(sound.after, prev_step_request_ids=frozenset()))


def _nothing_to_zero() -> Changed:
    return change_output(_sound(), new_block_ids_to_zero=None)


def _admitted_while_running() -> Changed:
    sound = _sound()
    return change(sound, before=with_progress(sound.before, D, status=RequestStatus.RUNNING))


def _admitted_while_paused() -> Changed:
    sound = _sound()
    return change(sound, before=attrs.evolve(sound.before, pause_state=PauseState.PAUSED_NEW))


def _admitted_and_preempted() -> Changed:
    return change_output(_sound(), preempted_request_ids=(A,))


def _overtaken() -> Changed:
    sound = _sound(max_num_seqs=4)
    requests = sound.before.requests
    waiting = FCFSQueue().add(queue_entry(requests[E])).add(queue_entry(requests[D]))
    return change(sound, before=attrs.evolve(sound.before, waiting=waiting))


def _admitted_with_late_output() -> Changed:
    sound = _sound()
    return change(sound, before=with_progress(sound.before, D, num_stale_output_tokens=1))


def _hit_that_was_not_asked_for() -> Changed:
    prefix = tuple(range(4))
    state = run_together(make_config(), make_request("a", 6, tokens=prefix))
    sound = run(step(state, AddRequest(make_request("b", 6, tokens=prefix)))[0], Schedule())
    params = attrs.evolve(sound.after.requests[B].sampling_params, skip_reading_prefix_cache=True)
    return change(sound, after=with_request(sound.after, B, sampling_params=params))


def _chunk_without_chunking() -> Changed:
    # 5 of 6 tokens, where 5 is all but the last position, so that nothing else is wrong.
    sound = run(make_state(make_config(max_num_batched_tokens=5), make_request("a", 6)), Schedule())
    return with_config(sound, enable_chunked_prefill=False, max_num_batched_tokens=6, max_model_len=6)


def _below_the_watermark() -> Changed:
    return with_config(_sound(), watermark=0.5)


def _gone_but_not_a_victim() -> Changed:
    return change_output(_preempting(), preempted_request_ids=())


def _running_in_another_order() -> Changed:
    sound = run(busy_state(), Schedule())
    return change(sound, after=attrs.evolve(sound.after, running=(B, A, C)))


def _victim_with_computed_tokens() -> Changed:
    sound = _preempting()
    return change(sound, after=with_progress(sound.after, B, num_computed_tokens=4))


def _victim_that_is_not_the_last() -> Changed:
    sound = _preempting()
    return change(sound, before=attrs.evolve(sound.before, running=(B, A)))


def _victim_that_is_more_important() -> Changed:
    sound = _preempting(policy=SchedulingPolicy.PRIORITY)
    return change(sound, before=with_request(sound.before, B, priority=-1))


def _victims_for_nobody() -> Changed:
    config = make_config(
        usable_blocks=4,
        max_model_len=40,
        allow_undersized_pool=True,
        scheduler_reserve_full_isl=False,
        long_prefill_token_threshold=8,
    )
    state = make_state(config, make_request("a", 30), make_request("b", 3))
    state, _ = schedule(state)
    return with_config(run(schedule(state)[0], Schedule()), quirks=())


def _equals_that_take_turns() -> Changed:
    config = make_config(usable_blocks=4, policy=SchedulingPolicy.PRIORITY, max_num_batched_tokens=8)
    state = make_state(config, make_request("a", 7), make_request("b", 7))
    for _ in range(2):
        state, output = schedule(state)
        state = update(state, make_result(state, output))
    for _ in range(8):
        before, (state, output) = state, schedule(state)
        if output.preempted_request_ids:
            break
        state = update(state, make_result(state, output))
    return with_config(run(before, Schedule()), quirks=())


def _waiting_for_who_waits() -> Changed:
    sound = run(make_waiting_for_a_session(has_input=False), Schedule())
    status = RequestStatus.WAITING
    before, after = (with_progress(it, RequestId("s"), status=status) for it in (sound.before, sound.after))
    return change(sound, before=before, after=after)


def _late_output_dropped_for_nothing() -> Changed:
    sound = _preempting()
    return change(sound, after=with_progress(sound.after, B, drop_stale_output=True))


def _blocks_given_back_for_nobody() -> Changed:
    return with_config(run(sessions_with_input(quirks=()), Schedule()), quirks=ALL_QUIRKS)


def _two_that_wait_for_each_other() -> Changed:
    return with_config(run(sessions_with_input(quirks=ALL_QUIRKS), Schedule()), quirks=())


def _events_that_do_not_replay() -> Changed:
    sound = _sound()
    return change(sound, after=with_kv(sound.after, pending_events=sound.before.kv.pending_events))


def _stored_with_other_tokens() -> Changed:
    sound = _sound()
    *events, last = sound.after.kv.pending_events
    assert isinstance(last, BlockStored)
    changed = attrs.evolve(last, token_ids=last.token_ids[::-1])
    return change(sound, after=with_kv(sound.after, pending_events=(*events, changed)))


def _prefill_not_noted() -> Changed:
    sound = _sound()
    return change(sound, after=with_progress(sound.after, D, prefill_stats=PrefillStats()))


BROKEN_SCHEDULES: dict[str, Callable[[], Changed]] = {
    "INV-STEP-01": _gives_nothing,
    "INV-STEP-02": _does_not_count,
    "INV-STEP-05": _forgets_who_finished,
    "INV-STEP-06": _forgets_who_was_preempted,
    "INV-BUDGET-01": _total_too_large,
    "INV-BUDGET-02": _over_budget,
    "INV-BUDGET-03": _goes_on_while_paused,
    "INV-BUDGET-04": _longer_than_the_threshold,
    "INV-BATCH-01": _row_of_somebody_who_does_not_run,
    "INV-BATCH-02": _rows_in_another_order,
    "INV-BATCH-03": _row_beyond_the_known,
    "INV-BATCH-04": _row_that_is_not_in_flight,
    "INV-BATCH-05": _row_without_slots,
    "INV-BATCH-06": _row_marked_as_a_chunk,
    "INV-BATCH-07": _row_cut_for_nothing,
    "INV-BATCH-08": _passed_over,
    "INV-BATCH-09": _prompt_that_is_not_held,
    "INV-BATCH-10": _prompt_that_does_not_count,
    "INV-ROW-01": _row_described_twice,
    "INV-ROW-02": _wrong_number_of_output_tokens,
    "INV-ROW-03": _block_that_is_not_in_the_table,
    "INV-ROW-04": _another_number_of_computed_tokens,
    "INV-ROW-05": _not_all_known_tokens,
    "INV-ROW-06": _batch_not_remembered,
    "INV-ROW-07": _nothing_to_zero,
    "INV-ADMIT-01": _admitted_while_running,
    "INV-ADMIT-02": _admitted_while_paused,
    "INV-ADMIT-03": _admitted_and_preempted,
    "INV-ADMIT-04": _overtaken,
    "INV-ADMIT-05": _admitted_with_late_output,
    "INV-ADMIT-06": _hit_that_was_not_asked_for,
    "INV-ADMIT-07": _chunk_without_chunking,
    "INV-ADMIT-08": _below_the_watermark,
    "INV-PREEMPT-01": _gone_but_not_a_victim,
    "INV-PREEMPT-02": _running_in_another_order,
    "INV-PREEMPT-03": _victim_with_computed_tokens,
    "INV-PREEMPT-04": _victim_that_is_not_the_last,
    "INV-PREEMPT-05": _victim_that_is_more_important,
    "INV-PREEMPT-06": _victims_for_nobody,
    "INV-PREEMPT-07": _equals_that_take_turns,
    "INV-PREEMPT-08": _waiting_for_who_waits,
    "INV-PREEMPT-09": _late_output_dropped_for_nothing,
    "INV-HOLD-01": _blocks_given_back_for_nobody,
    "INV-HOLD-02": _two_that_wait_for_each_other,
    "INV-FIGURE-02": _prefill_not_noted,
    "INV-EVENT-02": _events_that_do_not_replay,
    "INV-EVENT-05": _stored_with_other_tokens,
}
"""Invariant id -> how to make the step."""
