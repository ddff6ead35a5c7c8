"""The invariants of a state."""

import pytest

from kvsched_fp import InvariantViolation, SchedulerState, SchedulingPolicy, initial_state
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import BlockId
from kvsched_fp.invariants import CATALOGUE, StateInvariant, check_full
from kvsched_fp.invariants.evidence import Stumble
from tests.unit.worlds import make_config

from .broken_states import BROKEN_STATES
from .good import C, busy_state, deferred_state, pressed_state, with_table
from .good_features import (
    adapted_state,
    ahead_state,
    answered,
    computing_state,
    constrained_state,
    diffusing_state,
    drafting_state,
    failing_state,
    lookahead_state,
    parked_state,
    pipelined_state,
    stopping_state,
    verifying_state,
)

IDS = [entry.invariant_id for entry in CATALOGUE if isinstance(entry, StateInvariant)]


@pytest.mark.parametrize(
    "state",
    [
        initial_state(make_config()),
        busy_state(),
        busy_state(policy=SchedulingPolicy.PRIORITY),
        busy_state(use_v2_model_runner=False, log_stats=False),
        busy_state(enable_prefix_caching=False, enable_kv_cache_events=False),
        pressed_state(),
        deferred_state(),
        drafting_state(),
        verifying_state(),
        ahead_state(),
        answered(ahead_state()),
        diffusing_state(),
        parked_state(),
        stopping_state(),
        constrained_state(),
        failing_state(),
        adapted_state(),
        lookahead_state(),
        computing_state(RunnerType.POOLING),
        pipelined_state(),
    ],
    ids=[
        *("empty", "busy", "priority", "v1", "uncached", "pressed", "deferred"),
        *("drafting", "verifying", "ahead", "answered", "diffusing", "parked", "stopping"),
        *("constrained", "failing", "adapted", "lookahead", "computing", "pipelined"),
    ],
)
def test_a_sound_state_keeps_every_invariant(state: SchedulerState) -> None:
    """A sound state keeps every invariant of a state."""
    assert len(IDS) == check_full(state)


@pytest.mark.parametrize("invariant_id", IDS)
def test_a_broken_state_is_reported(invariant_id: str) -> None:
    """A state that breaks one invariant is reported with its id, and with evidence."""
    broken = BROKEN_STATES[invariant_id]()

    with pytest.raises(InvariantViolation) as violation:
        check_full(broken)

    assert (invariant_id, True) == (violation.value.invariant_id, bool(violation.value.evidence))
    assert not isinstance(violation.value.evidence, Stumble)


def test_a_state_that_makes_a_predicate_stumble_is_reported() -> None:
    """A state so broken that a predicate cannot go on is a violation too, not a crash."""
    broken = with_table(busy_state(), C, block_ids=(BlockId(7), BlockId(99)))

    with pytest.raises(InvariantViolation, match="INV-BLOCK-03: cannot be checked: IndexError"):
        check_full(broken)
