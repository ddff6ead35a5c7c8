"""What the opened state notes about requests. Its opening and closing is tested in `tests/purity/`."""

from kvsched_fp import (
    SchedulerState,
    add_request,
    fail_grammar,
    reset_prefix_cache,
    schedule,
    update,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.progress import RequestEvent, RequestEventType
from tests.unit.worlds import make_config, make_request, make_result, make_state

A, B = map(RequestId, "ab")
QUEUED, SCHEDULED, PREEMPTED = RequestEventType


def told_events(state: SchedulerState) -> dict[RequestId, tuple[RequestEvent, ...]]:
    """Give the events that the last update told, per request."""
    return {output.request_id: output.events for output in state.emitted.clients[0].outputs}


def preempted_and_back(*, log_request_events: bool) -> list[dict[RequestId, tuple[RequestEvent, ...]]]:
    """Let `a` be queued, scheduled, preempted by a reset and scheduled again, and list what is told."""
    state = make_state(make_config(log_request_events=log_request_events))
    state = add_request(state, make_request("a", max_tokens=3), time=1.0)
    state, first = schedule(state, time=2.0)
    state = update(state, make_result(state, first), time=3.0)
    told = [told_events(state)]
    state, _ = reset_prefix_cache(state, reset_running_requests=True, time=4.0)
    state, second = schedule(state, time=5.0)
    state = update(state, make_result(state, second), time=6.0)
    told.append(told_events(state))
    state, third = schedule(state, time=7.0)
    state = update(state, make_result(state, third), time=8.0)
    return [*told, told_events(state)]


def test_events_of_a_request_are_told_with_its_next_output() -> None:
    """Each once, with the time of the event that made it happen; running on is none."""
    assert [
        {A: (RequestEvent(QUEUED, 1.0), RequestEvent(SCHEDULED, 2.0))},
        {A: (RequestEvent(PREEMPTED, 4.0), RequestEvent(SCHEDULED, 5.0))},
        {A: ()},
    ] == preempted_and_back(log_request_events=True)


def test_events_of_a_request_are_not_kept_unless_asked_for() -> None:
    """Without `log_request_events` there are none."""
    assert [{A: ()}] * 3 == preempted_and_back(log_request_events=False)


def test_next_input_of_a_session_is_queued_with_the_output_before() -> None:
    """The update that begins it tells so at once."""
    state = make_state(make_config(log_request_events=True))
    session = make_request("a", max_tokens=1, resumable=True)
    state = add_request(add_request(state, session, time=1.0), session, time=2.0)
    state, output = schedule(state, time=3.0)
    state = update(state, make_result(state, output), time=4.0)

    assert (QUEUED, SCHEDULED, QUEUED) == tuple(event.type for event in told_events(state)[A])
    assert 4.0 == told_events(state)[A][-1].time
    assert () == state.progress[A].events


def test_request_that_cannot_have_its_grammar_tells_its_events() -> None:
    """Its error is its only output."""
    state = make_state(make_config(log_request_events=True))
    state = add_request(state, make_request("b", needs_grammar=True), time=1.0)
    state, output = schedule(fail_grammar(state, B, "no"))

    assert {B: (RequestEvent(QUEUED, 1.0),)} == told_events(update(state, make_result(state, output)))
