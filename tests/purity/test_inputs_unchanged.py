"""No public function changes what it is given, and equal calls give equal results."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import kvsched_fp
from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    InvalidEvent,
    PauseState,
    Request,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerState,
    SetPauseState,
    StepResult,
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
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.state import live_request_ids
from tests.unit.worlds import make_result

from .histories import NUM_HISTORIES, history

NEW = Request(
    request_id=RequestId("new"), prompt_token_ids=(7, 7, 7), sampling_params=SamplingParams(max_tokens=2)
)

CONSTRAINED = attrs.evolve(NEW, request_id=RequestId("constrained"), needs_grammar=True)
GRAMMAR = AutomatonGrammar((((7, 0),),))

Calls = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]


def _to_step(state: SchedulerState) -> Calls:
    for event in (
        AddRequest(NEW),
        Schedule(),
        SetPauseState(PauseState.PAUSED_NEW),
        ResetPrefixCache(reset_running_requests=True),
    ):
        yield (state, event), {}


def _to_finish_requests(state: SchedulerState) -> Calls:
    yield (state, None), {}
    for request_id in live_request_ids(state):
        yield (state, (request_id,)), {}


def _to_update(state: SchedulerState) -> Calls:
    if state.in_flight:
        yield (state, make_result(state, state.in_flight[0])), {}


def _to_grammar_rows(state: SchedulerState) -> Calls:
    for output in state.in_flight:
        yield (state, output), {}


def _to_update_drafts(state: SchedulerState) -> Calls:
    yield (state, OrderedMap(dict.fromkeys(live_request_ids(state), ()))), {}


def _to_update_drafts_in_flight(state: SchedulerState) -> Calls:
    for output in state.in_flight:
        yield (state, output.step_id, OrderedMap(dict.fromkeys(live_request_ids(state), (5,)))), {}


CALLS: dict[Callable[..., Any], Callable[[SchedulerState], Calls]] = {
    add_request: lambda state: iter([((state, NEW), {})]),
    fail_grammar: lambda state: iter(
        [((add_request(state, CONSTRAINED), CONSTRAINED.request_id, "no"), {})]
    ),
    grammar_rows: _to_grammar_rows,
    set_grammar: lambda state: iter(
        [((add_request(state, CONSTRAINED), CONSTRAINED.request_id, GRAMMAR), {})]
    ),
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

    assert num_calls


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
