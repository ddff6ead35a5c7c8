"""The catalogue: every invariant, and the functions that check them.

`check_cheap` is for every step of every run. `check_full` and `check_full_step` are for tests, for model
checking and for looking at a state from elsewhere. `run_checker.py` follows a whole run. All of them stop
at the first invariant that is broken; since the order of the catalogue goes from the ground up, that is the
one to look at.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kvsched_fp.errors import InvariantViolation
from kvsched_fp.events import Event
from kvsched_fp.invariants.arguments import require_arguments, require_state, require_step
from kvsched_fp.invariants.entry import (
    ALL_EVENTS,
    Cost,
    Invariant,
    Step,
    StepInvariant,
    observe,
)
from kvsched_fp.invariants.evidence import STUMBLES, stumble
from kvsched_fp.invariants.on_run import RUN_INVARIANTS
from kvsched_fp.invariants.on_state import STATE_INVARIANTS
from kvsched_fp.invariants.on_step import STEP_INVARIANTS
from kvsched_fp.state import SchedulerState

Subject = TypeVar("Subject")
Checks = tuple[tuple[str, Callable[[Subject], str | None]], ...]

CATALOGUE: tuple[Invariant, ...] = (*STATE_INVARIANTS, *STEP_INVARIANTS, *RUN_INVARIANTS)
"""Every invariant, in the order in which they are checked."""


def check_cheap(before: SchedulerState, event: Event, after: SchedulerState, outcome: object) -> int:
    """Check what costs no more than what the event touched; give the number of invariants checked.

    Raises `InvariantViolation` for the first that is broken, `InvalidInputError` for a wrong argument.
    """
    require_arguments(before, event, after, outcome)
    return _check_cheap(observe(before, event, after, outcome))


def check_observed_cheap(step: Step) -> int:
    """Do the same for a step that is put together already."""
    require_step(step)
    return _check_cheap(step)


def _check_cheap(step: Step) -> int:
    checks = _CHEAP_STEP[type(step.event)]
    _check(_CHEAP_STATE, step.after)
    _check(checks, step)
    return len(_CHEAP_STATE) + len(checks)


def check_full(state: SchedulerState) -> int:
    """Check every invariant of a state; give the number of invariants checked.

    Raises `InvariantViolation` for the first that is broken, `InvalidInputError` for what is no state.
    """
    require_state("state", state)
    _check(_STATE, state)
    return len(_STATE)


def check_full_step(before: SchedulerState, event: Event, after: SchedulerState, outcome: object) -> int:
    """Check every invariant of a step, however long it takes; give the number of invariants checked.

    Raises `InvariantViolation` for the first that is broken, `InvalidInputError` for a wrong argument.
    """
    require_arguments(before, event, after, outcome)
    return _check_full(observe(before, event, after, outcome))


def check_observed_full(step: Step) -> int:
    """Do the same for a step that is put together already."""
    require_step(step)
    return _check_full(step)


def _check_full(step: Step) -> int:
    checks = _STEP[type(step.event)]
    _check(checks, step)
    return len(checks)


def _check(checks: "Checks[Subject]", subject: Subject) -> None:
    try:
        for invariant_id, predicate in checks:  # noqa: B007  the one that is broken is named below
            evidence = predicate(subject)
            if evidence is not None:
                break
        else:
            return
    except STUMBLES as error:
        evidence = stumble(error)
    raise InvariantViolation(invariant_id, evidence)


def _by_event(invariants: Iterable[StepInvariant]) -> dict[type[Event], "Checks[Step]"]:
    entries = tuple(invariants)
    return {
        kind: tuple((entry.invariant_id, entry.predicate) for entry in entries if kind in entry.events)
        for kind in ALL_EVENTS
    }


_STATE: "Checks[SchedulerState]" = tuple(
    (entry.invariant_id, entry.predicate) for entry in STATE_INVARIANTS
)
_CHEAP_STATE: "Checks[SchedulerState]" = tuple(
    (entry.invariant_id, entry.predicate) for entry in STATE_INVARIANTS if entry.cost is Cost.CHEAP
)
_STEP = _by_event(STEP_INVARIANTS)
_CHEAP_STEP = _by_event(entry for entry in STEP_INVARIANTS if entry.cost is Cost.CHEAP)
