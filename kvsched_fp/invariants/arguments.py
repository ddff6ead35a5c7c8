"""What may be handed to the functions that check. What may not is the caller's mistake, no violation.

Types alone are looked at, which costs next to nothing beside any check.
"""

from typing import NoReturn

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.invariants.entry import ALL_EVENTS, Step
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState

_EVENTS = frozenset(ALL_EVENTS)
_OUTCOMES = (SchedulerOutput, bool, type(None))


def require_state(name: str, value: object) -> None:
    """Refuse what is no state. Raises `InvalidInputError`, which calls it `name`."""
    if not isinstance(value, SchedulerState):
        _refuse(name, value, "a SchedulerState")


def require_arguments(before: object, event: object, after: object, outcome: object) -> None:
    """Refuse what no step is made of. Raises `InvalidInputError` for the first that is something else.

    Whether an outcome is the one that belongs to its event, an invariant asks.
    """
    require_state("before", before)
    if type(event) not in _EVENTS:
        _refuse("event", event, "an event of kvsched_fp.events.Event")
    require_state("after", after)
    if not isinstance(outcome, _OUTCOMES):
        _refuse("outcome", outcome, "a SchedulerOutput, a bool or None")


def require_step(step: object) -> None:
    """Refuse what is no step, or is made of something else. Raises `InvalidInputError`."""
    if not isinstance(step, Step):
        _refuse("step", step, "a Step, as `observe` makes it")
    require_arguments(step.before, step.event, step.after, step.outcome)


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise InvalidInputError(name, value, f"{allowed}, no {type(value).__name__}")
