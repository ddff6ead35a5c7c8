"""The invariants of a step."""

import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    InvariantViolation,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    step,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.invariants import (
    CATALOGUE,
    Cost,
    StateInvariant,
    StepInvariant,
    check_cheap,
    check_full_step,
)
from kvsched_fp.invariants.evidence import Stumble
from tests.unit.worlds import make_request

from .broken_drafts import BROKEN_DRAFTS
from .broken_results import BROKEN_RESULTS
from .broken_schedules import BROKEN_SCHEDULES
from .broken_sessions import BROKEN_SESSIONS
from .good import A, B, answer, busy_state, deferred_state, pressed_state, ready_state
from .good_features import (
    ONLY_ONES,
    ahead_state,
    answered,
    computing_state,
    constrained_state,
    diffusing_state,
    drafting_state,
    failing_state,
    lookahead_state,
    more_input,
    parked_state,
    pipelined_state,
    stopping_state,
    verifying_state,
)

STEP_INVARIANTS = {entry.invariant_id: entry for entry in CATALOGUE if isinstance(entry, StepInvariant)}
BROKEN_STEPS = BROKEN_SCHEDULES | BROKEN_RESULTS | BROKEN_DRAFTS | BROKEN_SESSIONS


def _num_cheap(event: Event) -> int:
    return sum(
        isinstance(entry, StateInvariant)
        or (isinstance(entry, StepInvariant) and type(event) in entry.events)
        for entry in CATALOGUE
        if entry.cost is Cost.CHEAP
    )


def _sound_steps() -> dict[str, tuple[SchedulerState, Event]]:
    busy = busy_state()
    v1 = ready_state(max_num_seqs=5, use_v2_model_runner=False)
    return {
        "admits": (ready_state(max_num_seqs=5), Schedule()),
        "admits, v1": (v1, Schedule()),
        "has nothing to do": (busy, Schedule()),
        "preempts": (pressed_state(), Schedule()),
        "preempts by priority": (pressed_state(policy=SchedulingPolicy.PRIORITY), Schedule()),
        "takes results in": (busy, answer(busy)),
        "delivers late output": (deferred_state(), answer(deferred_state())),
        "adds": (busy, AddRequest(make_request("f", 5))),
        "ends all": (busy, FinishRequests(None)),
        "pauses": (busy, SetPauseState(PauseState.PAUSED_ALL)),
        "cannot reset": (busy, ResetPrefixCache()),
        "resets": (busy, ResetPrefixCache(reset_running_requests=True)),
    } | _sound_steps_with_features()


def _sound_steps_with_features() -> dict[str, tuple[SchedulerState, Event]]:
    verifying, ahead, stopping, failing = (
        verifying_state(),
        ahead_state(),
        stopping_state(),
        failing_state(),
    )
    pooling, encoding = computing_state(RunnerType.POOLING), computing_state(RunnerType.ENCODER_ONLY)
    pooled = StepResult(step_id=pooling.current_step, pooled_request_ids=(A, B))
    in_flight = ahead.in_flight[-1].step_id
    return {
        "verifies drafts": (drafting_state(), Schedule(time=2.0)),
        "accepts a draft": (verifying, answer(verifying, a=(1, 9))),
        "goes ahead": (ahead, Schedule()),
        "comes back behind others": (ahead, answer(ahead)),
        "rejects drafts": (answered(ahead), answer(answered(ahead), a=(5,))),
        "keeps drafts": (verifying, UpdateDrafts({B: (4,)})),
        "gets drafts in flight": (ahead, UpdateDraftsInFlight(in_flight, {A: (4,)})),
        "is sure to end": (diffusing_state(), Schedule()),
        "leaves what the drafter reads": (lookahead_state(), Schedule()),
        "tells the first stage": (pipelined_state(), Schedule()),
        "pools": (pooling, Update(pooled)),
        "encodes": (encoding, Update(StepResult(step_id=encoding.current_step))),
        "stores input": (stopping, more_input()),
        "goes on with input": (stopping, answer(stopping)),
        "begins with input": (parked_state(), more_input()),
        "ends a session": (parked_state(), more_input(is_end=True)),
        "gets a grammar": (constrained_state(), GrammarReady(B, ONLY_ONES)),
        "cannot have a grammar": (constrained_state(), GrammarFailed(B, "no such grammar")),
        "follows a grammar": (constrained_state(), answer(constrained_state(), a=(1,))),
        "breaks a grammar": (constrained_state(), answer(constrained_state(), a=(2,))),
        "ends for want of a grammar": (failing, answer(failing, a=(1,))),
    }


@pytest.mark.parametrize("name", _sound_steps())
def test_a_sound_step_keeps_every_invariant(name: str) -> None:
    """A sound step keeps every invariant, and all that are about its event are checked."""
    before, event = _sound_steps()[name]
    after, outcome = step(before, event)

    assert _num_cheap(event) == check_cheap(before, event, after, outcome)
    assert sum(type(event) in entry.events for entry in STEP_INVARIANTS.values()) == check_full_step(
        before, event, after, outcome
    )


@pytest.mark.parametrize("invariant_id", STEP_INVARIANTS)
def test_a_broken_step_is_reported(invariant_id: str) -> None:
    """A step that breaks one invariant is reported with its id, and with evidence."""
    broken = BROKEN_STEPS[invariant_id]()
    check = check_cheap if STEP_INVARIANTS[invariant_id].cost is Cost.CHEAP else check_full_step

    with pytest.raises(InvariantViolation) as violation:
        check(*broken)

    assert (invariant_id, True) == (violation.value.invariant_id, bool(violation.value.evidence))
    assert not isinstance(violation.value.evidence, Stumble)
