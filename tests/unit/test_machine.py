"""The machine is one total function over the events."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    InvalidEvent,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    add_request,
    explain,
    fail_grammar,
    finish_requests,
    reset_prefix_cache,
    schedule,
    set_grammar,
    set_pause_state,
    step,
    update,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.ids import RequestId, StepId
from tests.unit.refusal import refused
from tests.unit.worlds import make_config, make_request, make_result, make_state, run_steps


def busy_state() -> SchedulerState:
    """Make a state with one step in flight."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    return schedule(add_request(state, make_request("b")))[0]


def test_each_event_is_one_function() -> None:
    """[M-STEP-01] `step` gives what the function of the event gives, and the outcome beside it."""
    state = busy_state()
    result = make_result(state, state.in_flight[0])
    request = make_request("c")
    ids = [RequestId("a")]

    assert schedule(state) == step(state, Schedule())
    assert schedule(state, throttle_prefills=True) == step(state, Schedule(throttle_prefills=True))
    assert (update(state, result), None) == step(state, Update(result))
    assert (add_request(state, request), None) == step(state, AddRequest(request))
    assert (finish_requests(state, ids), None) == step(state, FinishRequests(ids))
    assert (finish_requests(state, None), None) == step(state, FinishRequests(None))
    assert (set_pause_state(state, PauseState.PAUSED_ALL), None) == step(
        state, SetPauseState(PauseState.PAUSED_ALL)
    )
    assert reset_prefix_cache(state) == step(state, ResetPrefixCache())
    assert reset_prefix_cache(state, reset_running_requests=True) == step(state, ResetPrefixCache(True))


def test_each_event_of_a_running_engine_is_one_function() -> None:
    """[M-STEP-01] So are drafts and grammars."""
    config = make_config(num_spec_tokens=2)
    state = schedule(make_state(config, make_request("a"), make_request("g", needs_grammar=True)))[0]
    drafts = {RequestId("a"): (5, 6)}
    waiting, grammar = RequestId("g"), AutomatonGrammar([[]])

    assert (update_drafts(state, drafts), None) == step(state, UpdateDrafts(drafts))
    assert (update_drafts_in_flight(state, StepId(1), drafts), None) == step(
        state, UpdateDraftsInFlight(StepId(1), drafts)
    )
    assert (set_grammar(state, waiting, grammar), None) == step(state, GrammarReady(waiting, grammar))
    assert (fail_grammar(state, waiting, "no"), None) == step(state, GrammarFailed(waiting, "no"))


def test_times_are_passed_on() -> None:
    """[M-STEP-01] The time of an event is that of what happens to requests by it."""
    state = make_state(make_config(log_request_events=True))
    for event in (AddRequest(make_request("a"), 1.0), Schedule(time=2.0), ResetPrefixCache(True, 3.0)):
        state, _ = step(state, event)

    assert [1.0, 2.0, 3.0] == [event.time for event in state.progress[RequestId("a")].events]


def test_time_of_an_update_is_passed_on() -> None:
    """[M-STEP-01] A session that goes on is queued with the update that stopped it."""
    state = make_state(make_config(log_request_events=True))
    session = {"max_tokens": 1, "resumable": True}
    for request in (make_request("a", 4, **session), make_request("a", 2, **session)):
        state, _ = step(state, AddRequest(request, 1.0))
    state, _ = step(state, Schedule(time=2.0))
    state, _ = step(state, Update(make_result(state, state.in_flight[0]), 3.0))
    [told] = state.emitted.clients[0].outputs

    assert [1.0, 2.0, 3.0] == [event.time for event in told.events]


def test_throttle_and_status_are_passed_on() -> None:
    """[M-STEP-01] The fields of an event count."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    state = add_request(state, make_request("b"))

    assert step(state, Schedule())[1] != step(state, Schedule(throttle_prefills=True))[1]


BAD = [
    (AddRequest(make_request("a")), "request_id", "a"),
    (AddRequest(make_request("c", 65)), "prompt_token_ids", "65 tokens"),
    (FinishRequests(["z"]), "request_ids", "z"),
    (Update(StepResult(step_id=StepId(9))), "step_id", 9),
    (Update(StepResult(step_id=StepId(2), sampled_token_ids={"z": (1,)})), "sampled_token_ids", "z"),
    (Update(StepResult(step_id=StepId(2), sampled_token_ids={"a": (-1,)})), "sampled_token_ids", -1),
    (UpdateDrafts({"z": ()}), "draft_token_ids", "z"),
    (UpdateDraftsInFlight(StepId(9), {}), "step_id", 9),
    (GrammarReady(RequestId("a"), AutomatonGrammar([[]])), "request_id", "a"),
    (GrammarFailed(RequestId("z"), "no"), "request_id", "z"),
    (None, "event", None),
    ("schedule", "event", "schedule"),
    (Schedule, "event", Schedule),
]


@pytest.mark.parametrize(("event", "field", "value"), BAD, ids=lambda part: str(part)[:40])
def test_event_that_makes_no_sense_is_refused(event: Any, field: str, value: object) -> None:
    """[M-STEP-01] It raises InvalidEvent, and the state that the caller holds is what it was."""
    state = busy_state()
    with refused(InvalidEvent, field, value, "", state=state):
        step(state, event)


def test_what_is_no_event_is_told_what_one_is() -> None:
    """[M-STEP-01] The error names the alphabet."""
    with refused(InvalidEvent, "event", 5, "an event of kvsched_fp.events.Event"):
        step(busy_state(), 5)  # type: ignore[arg-type]


TAKEN: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "request": (add_request, AddRequest, "a Request"),
    "pause_state": (set_pause_state, SetPauseState, "PauseState.PAUSED_NEW"),
    "reset_running_requests": (reset_prefix_cache, ResetPrefixCache, "True or False"),
    "result": (update, Update, "a StepResult"),
    "throttle_prefills": (schedule, Schedule, "True or False"),
}
"""Per field: the function that takes it, the event that holds it, and what both allow."""


@pytest.mark.parametrize("field", TAKEN)
@pytest.mark.parametrize("value", ["yes", "unpaused", None, 0, 1])
def test_function_refuses_what_its_event_refuses(field: str, value: object) -> None:
    """[M-STEP-01] A value of the wrong type never gets in, with an event or without."""
    function, event, allowed = TAKEN[field]
    state = busy_state()
    with refused(InvalidEvent, field, value, allowed, state=state):
        function(state, **{field: value})
    with refused(InvalidEvent, field, value, allowed):
        event(value)


@pytest.mark.parametrize("time", ["now", None, float("inf")])
def test_function_refuses_the_time_that_its_event_refuses(time: Any) -> None:
    """[M-STEP-01] Whether or not anything would happen at it."""
    state = busy_state()
    result = make_result(state, state.in_flight[0])
    calls: list[Callable[[], Any]] = [
        lambda: schedule(state, time=time),
        lambda: update(state, result, time=time),
        lambda: add_request(state, make_request("c"), time=time),
        lambda: reset_prefix_cache(state, time=time),
    ]
    for call in calls:
        with refused(InvalidEvent, "time", time, "a finite number", state=state):
            call()


@pytest.mark.parametrize("value", [5, None, [1]])
def test_function_refuses_drafts_and_grammars_that_their_events_refuse(value: Any) -> None:
    """[M-STEP-01] With an event or without."""
    state = busy_state()
    with refused(InvalidEvent, "draft_token_ids", value, "a mapping", state=state):
        update_drafts(state, value)
    with refused(InvalidEvent, "draft_token_ids", value, "a mapping", state=state):
        update_drafts_in_flight(state, StepId(2), value)
    with refused(InvalidEvent, "grammar", value, "accept_tokens", state=state):
        set_grammar(state, RequestId("a"), value)
    with refused(InvalidEvent, "message", value, "a text", state=state):
        fail_grammar(state, RequestId("a"), value)


def test_explain_takes_what_schedule_takes() -> None:
    """A question about a step that cannot be planned is refused like the step."""
    state = busy_state()
    with refused(InvalidEvent, "throttle_prefills", "yes", "True or False", state=state):
        explain(state, throttle_prefills="yes")  # type: ignore[arg-type]


def test_refused_event_can_be_followed_by_a_good_one() -> None:
    """[M-STEP-01] Nothing is half done: the machine goes on as if the bad event had not come."""
    state = busy_state()
    untouched = copy.deepcopy(state)
    with pytest.raises(InvalidEvent):
        step(state, Update(StepResult(step_id=StepId(2), sampled_token_ids={"a": (1,), "b": (-1,)})))
    good = Update(make_result(state, state.in_flight[0]))

    assert step(untouched, good) == step(state, good)


def test_equal_events_give_equal_results() -> None:
    """[M-STEP-02] Results and requests that are equal, not the same, lead to the same state."""
    states = [step(busy_state(), AddRequest(make_request("c")))[0] for _ in range(2)]

    assert states[0] == states[1]
    assert hash(states[0]) == hash(states[1])
