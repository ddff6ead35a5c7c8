"""What is handed to the functions that check."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kvsched_fp import InvariantViolation, Schedule
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.invariants import (
    RunChecker,
    check_cheap,
    check_full,
    check_full_step,
    check_observed_cheap,
    check_observed_full,
)
from tests.unit.refusal import refused

from .good import ready_state, run

SOUND = run(ready_state(), Schedule())
A_STATE, AN_EVENT = "a SchedulerState", "an event of kvsched_fp.events.Event"
AN_OUTCOME = "a SchedulerOutput, a bool or None"
WRONG: list[tuple[str, Any, str]] = [
    ("before", {"running": ()}, f"{A_STATE}, no dict"),
    ("before", SOUND.event, f"{A_STATE}, no Schedule"),
    ("event", SOUND.before, f"{AN_EVENT}, no SchedulerState"),
    ("event", Schedule, f"{AN_EVENT}, no type"),
    ("after", None, f"{A_STATE}, no NoneType"),
    ("after", (SOUND.after, SOUND.outcome), f"{A_STATE}, no tuple"),
    ("outcome", SOUND.after, f"{AN_OUTCOME}, no SchedulerState"),
    ("outcome", 1, f"{AN_OUTCOME}, no int"),
]
"""A name, what is handed in, and what is told to be allowed."""
ON_FOUR: list[Callable[..., int]] = [check_cheap, check_full_step, RunChecker(SOUND.before).check]
ON_A_STEP: list[Callable[..., object]] = [
    check_observed_cheap,
    check_observed_full,
    RunChecker(SOUND.before).check_observed,
    RunChecker(SOUND.before).find_broken,
]


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG)
@pytest.mark.parametrize("check", ON_FOUR)
def test_wrong_argument_is_named(check: Callable[..., int], name: str, value: object, allowed: str) -> None:
    """It is the caller's mistake, no violation; the error tells which, its type and what is allowed."""
    arguments = {each: getattr(SOUND, each) for each in ("before", "event", "after", "outcome")}

    with refused(InvalidInputError, name, value, allowed):
        check(**arguments | {name: value})


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG)
@pytest.mark.parametrize("check", ON_A_STEP)
def test_wrong_part_of_a_step_is_named(
    check: Callable[..., object], name: str, value: object, allowed: str
) -> None:
    """A step that is put together of something else is refused in the same way."""
    with refused(InvalidInputError, name, value, allowed):
        check(attrs.evolve(SOUND, **{name: value}))


@pytest.mark.parametrize("check", ON_A_STEP)
@pytest.mark.parametrize("value", [SOUND.event, None, ()])
def test_what_is_no_step_is_refused(check: Callable[..., object], value: object) -> None:
    """An event alone is no step."""
    with refused(
        InvalidInputError, "step", value, f"a Step, as `observe` makes it, no {type(value).__name__}"
    ):
        check(value)


@pytest.mark.parametrize("check", [check_full, RunChecker])
@pytest.mark.parametrize("value", [SOUND.event, None, {}])
def test_what_is_no_state_is_refused(check: Callable[..., object], value: object) -> None:
    """A dict is no state."""
    with refused(InvalidInputError, "state", value, f"{A_STATE}, no {type(value).__name__}"):
        check(value)


@pytest.mark.parametrize("outcome", [None, True])
def test_outcome_of_another_event_breaks_an_invariant(outcome: object) -> None:
    """What some event may give, and this one does not, is the machine's mistake."""
    with pytest.raises(InvariantViolation, match="INV-STEP-01: Schedule gave a"):
        check_cheap(SOUND.before, SOUND.event, SOUND.after, outcome)


def test_refused_step_is_not_taken_down() -> None:
    """After a mistake of the caller, the run goes on as if nothing had been said."""
    checker = RunChecker(SOUND.before)
    with pytest.raises(InvalidInputError):
        checker.check_observed(attrs.evolve(SOUND, outcome="done"))

    assert checker.check_observed(SOUND) > 0
