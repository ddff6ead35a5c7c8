"""The invariants of a step."""

import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    InvariantViolation,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    step,
)
from kvsched_fp.invariants import CATALOGUE, Cost, StepInvariant, check_cheap, check_full_step
from tests.unit.worlds import make_request

from .broken_drafts import BROKEN_DRAFTS
from .broken_results import BROKEN_RESULTS
from .broken_schedules import BROKEN_SCHEDULES
from .broken_sessions import BROKEN_SESSIONS
from .good import answer, busy_state, deferred_state, pressed_state, ready_state

STEP_INVARIANTS = {entry.invariant_id: entry for entry in CATALOGUE if isinstance(entry, StepInvariant)}
BROKEN_STEPS = BROKEN_SCHEDULES | BROKEN_RESULTS | BROKEN_DRAFTS | BROKEN_SESSIONS


def _num_cheap(event: Event) -> int:
    return sum(
        entry.cost is Cost.CHEAP and (not isinstance(entry, StepInvariant) or type(event) in entry.events)
        for entry in CATALOGUE
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
    assert "cannot be checked" not in violation.value.evidence
