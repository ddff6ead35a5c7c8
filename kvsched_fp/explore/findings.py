"""What a search gives: how far it came, what it reached, and what it found wrong."""

import enum

import attrs

from kvsched_fp.errors import InvariantViolation
from kvsched_fp.events import Event
from kvsched_fp.explore.world import World


class Ending(enum.Enum):
    """Why a search ended."""

    COMPLETE = "complete"
    """Everything was explored."""
    VIOLATION = "violation"
    """Something is wrong; the counterexample is among the shortest."""
    DEPTH_LIMIT = "depth limit"
    """There is more behind the depth that was asked for."""
    STATE_LIMIT = "state limit"
    """There are more states than were asked for."""
    MEMORY_LIMIT = "memory limit"
    """There is no memory for the next level."""
    INTERRUPTED = "interrupted"
    """Somebody ended it."""


@attrs.frozen(kw_only=True)
class Limits:
    """How far a search goes."""

    max_depth: int | None = None
    """The most events of a history."""
    max_states: int | None = None
    """The most states to keep."""
    max_bytes: int | None = None
    """The most memory of all processes together."""


@attrs.frozen
class Fault:
    """What is wrong."""

    name: str
    """The id of the invariant, `STUCK`, or the class of an error."""
    evidence: str
    """The ids and numbers that show it."""


def fault_of(error: Exception) -> Fault:
    """Say what an error shows."""
    if isinstance(error, InvariantViolation):
        return Fault(error.invariant_id, error.evidence)
    return Fault(type(error).__name__, str(error))


@attrs.frozen
class Counterexample:
    """A shortest history that ends in a fault."""

    fault: Fault
    """What is wrong."""
    events: tuple[Event, ...]
    """From the initial state on. The fault shows in the last one, or in the state behind it."""


@attrs.frozen
class SearchProgress:
    """How far a search is."""

    depth: int
    """Levels that are done."""
    num_states: int
    """Forms found on those."""
    num_expanded: int
    """Situations expanded so far, those of the level in hand included."""
    num_moves: int
    """Moves made so far, those of the level in hand included."""
    num_to_expand: int
    """Situations of the level in hand that are left."""


@attrs.frozen(kw_only=True)
class Exploration:
    """The result of a search; it does not depend on the number of processes."""

    world: World
    """What was searched."""
    limits: Limits
    """How far it was to go."""
    checks: bool
    """Whether invariants were checked."""
    ending: Ending
    """Why it ended."""
    num_states: int
    """Distinct forms found, the initial one included."""
    num_expanded: int
    """Of those, the ones from which every move was made and checked."""
    num_moves: int
    """Moves made and checked."""
    depth: int
    """The events from the start to the farthest forms. Every history of at most so many was checked."""
    goals: dict[str, int | None]
    """Per goal of the world, the length of the shortest history that reaches it; None if none did."""
    standstills: dict[str, int]
    """Per thing that is waited for, how many forms are at a standstill."""
    counterexample: Counterexample | None = None
    """The fault, if there is one."""

    @property
    def missed_goals(self) -> tuple[str, ...]:
        """The goals that were not reached."""
        return tuple(name for name, depth in self.goals.items() if depth is None)
