"""Expanding the situations of one level, or one process's share of them.

A shard keeps the situations that it found itself; only their keys leave it. Whoever drives the search
(`search.py`) decides which of them are new, and by which numbers they go from then on.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

import attrs

from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.findings import Fault, fault_of
from kvsched_fp.explore.goals import GOALS, Move
from kvsched_fp.explore.memory import lacks_memory
from kvsched_fp.explore.moves import Moves, StepFunction
from kvsched_fp.explore.situation import Situation
from kvsched_fp.explore.standstill import StandstillFinder
from kvsched_fp.explore.world import World
from kvsched_fp.invariants import check_full, check_full_step
from kvsched_fp.invariants.liveness import Standstill, StandstillKind

WATCH_INTERVAL = 64
"""Situations from one look at memory and progress to the next."""
SITUATION_ITSELF = -1
"""Stands for no move at all: the fault is in the situation."""

Numbered: TypeAlias = tuple[int, bytes, Situation]
"""A situation with its number in the search and its key."""


@attrs.frozen(kw_only=True)
class Task:
    """What all shards of a search do."""

    world: World
    """What is searched."""
    step: StepFunction
    """The machine."""
    checks: bool
    """Whether invariants are checked."""
    max_bytes: int | None
    """The most memory of the process."""


@attrs.define
class LevelPart:
    """What came of one share of a level."""

    keys: list[bytes] = attrs.Factory(list)
    """Keys that the shard had not met before, in the order of the moves."""
    parents: "array[int]" = attrs.Factory(lambda: array("q"))
    """Per key, the number of the situation that it was reached from."""
    moves: "array[int]" = attrs.Factory(lambda: array("i"))
    """Per key, which of the moves of that situation it was."""
    num_expanded: int = 0
    """Situations expanded."""
    num_moves: int = 0
    """Moves made."""
    goals: set[str] = attrs.Factory(set)
    """Goals reached."""
    standstills: Counter[str] = attrs.Factory(Counter)
    """Standstills among the situations expanded."""
    fault: tuple[int, int, Fault] | None = None
    """The first fault: the number of the situation, which move (or `SITUATION_ITSELF`), and what."""
    lacks_memory: bool = False
    """Whether it ended early for lack of memory."""
    was_told_to_end: bool = False
    """Whether it ended early because it was told to."""


class Shard:
    """The share of one process."""

    def __init__(self, task: Task) -> None:
        self.frontier: list[Numbered] = []
        """What is to be expanded, in the order of the numbers."""
        self._task = task
        self._moves = Moves(task.world)
        self._canonicalizer = Canonicalizer(task.world, self._moves.kind_of)
        self._standstills = StandstillFinder(self._moves, self._canonicalizer, task.step)
        self.met: set[bytes] = set()
        """The keys that it has met."""
        self._found: list[Situation] = []
        self._keys: list[bytes] = []
        self._goals_left: set[str] = set()

    def start(self, situation: Situation) -> None:
        """Begin a search with `situation`, which gets the number 0."""
        key = self._canonicalizer.key(situation)
        self.met.add(key)
        self.frontier.append((0, key, situation))

    def expand(self, goals_left: Collection[str], go_on: Callable[[LevelPart], bool]) -> LevelPart:
        """Make every move from every situation of the frontier, which is used up.

        `go_on` hears now and then how far it is, and says whether to go on.
        """
        part = LevelPart()
        self._goals_left = set(goals_left)
        self._found, self._keys = [], part.keys
        frontier, self.frontier = self.frontier, []
        try:
            for number, key, situation in frontier:
                if part.num_expanded % WATCH_INTERVAL == 0 and self._must_end(part, go_on):
                    break
                fault = self._expand_one(part, number, key, situation)
                if fault is not None:
                    part.fault = (number, *fault)
                    break
                part.num_expanded += 1
        except MemoryError:
            part.lacks_memory = True
        return part

    def _must_end(self, part: LevelPart, go_on: Callable[[LevelPart], bool]) -> bool:
        part.lacks_memory = lacks_memory(self._task.max_bytes)
        part.was_told_to_end = not go_on(part)
        return part.lacks_memory or part.was_told_to_end

    def _expand_one(
        self, part: LevelPart, number: int, key: bytes, situation: Situation
    ) -> tuple[int, Fault] | None:
        """Make every move from one situation; give the first that is wrong."""
        met, step, checks = self.met, self._task.step, self._task.checks
        for index, event in enumerate(self._moves.enabled(situation)):
            try:
                after, outcome = self._moves.follow(situation, event, step)
                if checks:
                    check_full_step(situation.state, event, after.state, outcome)
                new_key = self._key_of(after)
                if new_key not in met:
                    if checks:
                        check_full(after.state)
                    met.add(new_key)
                    self._found.append(after)
                    part.keys.append(new_key)
                    part.parents.append(number)
                    part.moves.append(index)
                standstill = self._standstills.find(key, situation, event, after, outcome)
            except MemoryError:
                raise
            except Exception as error:  # a machine with a fault may fail in any way
                return index, fault_of(error)
            if standstill is not None:
                part.standstills[str(standstill)] += 1
                if standstill.kind is StandstillKind.STUCK:
                    return SITUATION_ITSELF, _stuck(standstill)
            part.num_moves += 1
            if self._goals_left:
                self._note_goals(part, Move(situation, event, after, outcome))
        return None

    def _key_of(self, situation: Situation) -> bytes:
        """Give the key of what came of a move; where it has none, an invariant says best what is wrong."""
        try:
            return self._canonicalizer.key(situation)
        except (LookupError, TypeError, ValueError, AttributeError):
            if self._task.checks:
                check_full(situation.state)
            raise

    def _note_goals(self, part: LevelPart, move: Move) -> None:
        reached = [name for name in self._goals_left if GOALS[name].is_reached(move)]
        self._goals_left.difference_update(reached)
        part.goals.update(reached)

    def accept(self, numbers: Iterable[int]) -> None:
        """Take over what was found and is new; per key of the last part, its number, or -1."""
        for number, key, situation in zip(numbers, self._keys, self._found, strict=True):
            if number >= 0:
                self.frontier.append((number, key, situation))
        self._found, self._keys = [], []

    def give(self, count: int) -> list[Numbered]:
        """Give so many situations of the frontier away."""
        given = self.frontier[-count:]
        del self.frontier[-count:]
        return given

    def take(self, situations: Iterable[Numbered]) -> None:
        """Take situations over into the frontier."""
        self.frontier.extend(situations)
        self.frontier.sort(key=lambda numbered: numbered[0])


def _stuck(standstill: Standstill) -> Fault:
    return Fault("STUCK", f"no step will ever serve {', '.join(standstill.stuck)}")
