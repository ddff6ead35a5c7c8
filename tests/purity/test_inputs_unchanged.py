"""No public function changes what it is given, and equal calls give equal results."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import kvsched_fp
from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    Event,
    GrammarFailed,
    GrammarReady,
    InvalidEvent,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SetPauseState,
    StepResult,
    UpdateDrafts,
    UpdateDraftsInFlight,
    add_request,
    explain,
    fail_grammar,
    finish_requests,
    grammar_rows,
    initial_state,
    reset_prefix_cache,
    schedule,
    set_grammar,
    set_pause_state,
    step,
    update,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.state import live_request_ids
from tests.unit.worlds import make_result

from .histories import NUM_HISTORIES, history, make_new_request

NEW = RequestId("new")
GRAMMAR = AutomatonGrammar((((7, 0),),))

Calls = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]


def _to_step(state: SchedulerState) -> Calls:
    for event in (
        AddRequest(make_new_request(state)),
        Schedule(),
        SetPauseState(PauseState.PAUSED_NEW),
        ResetPrefixCache(reset_running_requests=True),
        UpdateDrafts(_drafts(state)),
        *(UpdateDraftsInFlight(output.step_id, _drafts(state)) for output in state.in_flight),
    ):
        yield (state, event), {}
    for answer in (GrammarReady(NEW, GRAMMAR), GrammarFailed(NEW, "none")):
        for constrained in _with_a_constrained_one(state):
            yield (constrained, answer), {}


def _drafts(state: SchedulerState) -> OrderedMap[RequestId, tuple[int, ...]]:
    """Draft as much as may be, for all that may have drafts."""
    drafts = (5,) * state.config.num_spec_tokens
    free = [name for name in live_request_ids(state) if not state.requests[name].needs_grammar]
    return OrderedMap(dict.fromkeys(free, drafts))


def _with_a_constrained_one(state: SchedulerState) -> Iterator[SchedulerState]:
    """Add a request that needs a grammar, where the model samples."""
    if state.config.runner_type is not RunnerType.POOLING:
        yield add_request(state, make_new_request(state, needs_grammar=True))


def _to_finish_requests(state: SchedulerState) -> Calls:
    yield (state, None), {}
    for request_id in live_request_ids(state):
        yield (state, (request_id,)), {}


def _to_update(state: SchedulerState) -> Calls:
    if not state.in_flight:
        return
    result = make_result(state, state.in_flight[0])
    if state.config.runner_type is RunnerType.POOLING:
        pooled = tuple(result.sampled_token_ids)
        result = StepResult(step_id=result.step_id, pooled_request_ids=pooled)
    elif state.config.runner_type is RunnerType.DIFFUSION:
        result = StepResult(step_id=result.step_id)
    yield (state, result), {}


def _to_grammar_rows(state: SchedulerState) -> Calls:
    for output in state.in_flight:
        yield (state, output), {}


def _to_update_drafts(state: SchedulerState) -> Calls:
    yield (state, _drafts(state)), {}


def _to_update_drafts_in_flight(state: SchedulerState) -> Calls:
    for output in state.in_flight:
        yield (state, output.step_id, _drafts(state)), {}


CALLS: dict[Callable[..., Any], Callable[[SchedulerState], Calls]] = {
    add_request: lambda state: iter([((state, make_new_request(state)), {})]),
    fail_grammar: lambda state: (((made, NEW, "none"), {}) for made in _with_a_constrained_one(state)),
    grammar_rows: _to_grammar_rows,
    set_grammar: lambda state: (((made, NEW, GRAMMAR), {}) for made in _with_a_constrained_one(state)),
    update_drafts: _to_update_drafts,
    update_drafts_in_flight: _to_update_drafts_in_flight,
    explain: lambda state: iter([((state,), {}), ((state,), {"throttle_prefills": True})]),
    finish_requests: _to_finish_requests,
    initial_state: lambda state: iter([((state.config,), {})]),
    reset_prefix_cache: lambda state: iter([((state,), {}), ((state,), {"reset_running_requests": True})]),
    schedule: lambda state: iter([((state,), {}), ((state,), {"throttle_prefills": True})]),
    set_pause_state: lambda state: iter([((state, pause), {}) for pause in PauseState]),
    step: _to_step,
    update: _to_update,
}
"""Every public function, and calls of it that make sense in a state."""


def test_every_public_function_is_called() -> None:
    """Every function that the package exports is in the table of this file."""
    exported = {getattr(kvsched_fp, name) for name in kvsched_fp.__all__}

    assert {function for function in exported if inspect.isfunction(function)} == CALLS.keys()


def test_every_event_is_in_a_history() -> None:
    """Every kind of event of the alphabet comes up in some history."""
    kinds = {type(moment.event) for number in range(NUM_HISTORIES) for moment in history(number)}

    assert set(get_args(Event)) == kinds


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_a_call_changes_no_input_and_can_be_repeated(function: Callable[..., Any], number: int) -> None:
    """[M-STATE-01, M-STEP-02] A call leaves its arguments equal to a deep copy; a second gives the same."""
    num_calls = 0
    for moment in history(number):
        for args, kwargs in CALLS[function](moment.before):
            kept = copy.deepcopy((args, kwargs))
            first = function(*args, **kwargs)

            assert kept == (args, kwargs)
            assert hash(kept[0]) == hash(args)
            assert first == function(*args, **kwargs)
            assert first == function(*kept[0], **kept[1])
            num_calls += 1
    pools = history(number)[0].before.config.runner_type is RunnerType.POOLING

    assert (num_calls == 0) is (pools and function in {fail_grammar, set_grammar})


@pytest.mark.parametrize("number", range(NUM_HISTORIES))
def test_a_refused_call_changes_no_input(number: int) -> None:
    """[M-STEP-01] An event that is refused leaves the state equal to a deep copy."""
    for moment in history(number):
        state = moment.before
        kept = copy.deepcopy(state)
        with pytest.raises(InvalidEvent):
            update(state, StepResult(step_id=StepId(-1)))
        with pytest.raises(InvalidEvent):
            finish_requests(state, (*live_request_ids(state), RequestId("nobody")))

        assert kept == state
        assert hash(kept) == hash(state)
