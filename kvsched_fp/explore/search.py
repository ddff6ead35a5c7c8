"""Bounded exhaustive search, breadth first: every history of a world, level by level.

    start < expand a level < number what is new < expand the next ...

A form gets its number from the first move that leads to it, in the order of the situations' numbers and of
their moves. That order does not depend on who makes the moves, so neither does the result; and since levels
are explored one after another, a fault is found at the end of a shortest history.
"""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from kvsched_fp import machine
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import Event
from kvsched_fp.explore.crew import Crew, OneShard, Processes, require_jobs
from kvsched_fp.explore.findings import (
    Counterexample,
    Ending,
    Exploration,
    Fault,
    Limits,
    SearchProgress,
    fault_of,
)
from kvsched_fp.explore.goals import GOALS
from kvsched_fp.explore.memory import lacks_memory, require_memory, share_of
from kvsched_fp.explore.moves import Moves, StepFunction
from kvsched_fp.explore.shard import SITUATION_ITSELF, LevelPart, Shard, Task
from kvsched_fp.explore.situation import initial_situation
from kvsched_fp.explore.world import World
from kvsched_fp.invariants import check_full

SITUATIONS_PER_JOB = 32
"""A level of so many situations per process is dealt out; until then, one process is quicker."""


def explore(
    world: World,
    *,
    limits: Limits = Limits(),  # noqa: B008  frozen
    num_jobs: int = 1,
    checks: bool = True,
    step: StepFunction = machine.step,
    tell: Callable[[SearchProgress], bool] = lambda _: True,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Exploration:
    """Search `world` until everything is explored, something is wrong, or a limit is reached.

    `checks` says whether invariants are checked; errors of the machine and standstills always are. `step`
    is the machine; with several processes, a function that they can import. `tell` hears now and then how
    far it is, and says whether to go on. Processes are started within `starting()`. Raises
    `InvalidInputError` for what is no world, limits, machine, goal or number of processes, for a `step` or
    a world that several processes cannot have, and for a memory limit below what this process has already.
    """
    _require_arguments(world, limits, step)
    require_jobs(num_jobs, step=step, block_hasher=world.config.block_hasher)
    if limits.max_bytes is not None:
        require_memory("max_bytes", limits.max_bytes, num_jobs)
    task = Task(
        world=world,
        step=step,
        checks=checks,
        max_bytes=None if limits.max_bytes is None else share_of(limits.max_bytes, num_jobs),
    )
    with ExitStack() as stack:
        return _Search(task, limits, tell).run(num_jobs, stack, starting)


def _require_arguments(world: World, limits: Limits, step: StepFunction) -> None:
    """Refuse what cannot be searched, or not so."""
    if not isinstance(world, World):
        raise InvalidInputError("world", world, "a World, such as PRESETS['tiny']")
    if not isinstance(limits, Limits):
        raise InvalidInputError("limits", limits, "Limits")
    if not callable(step):
        raise InvalidInputError("step", step, "a function of a state and an event, as machine.step")
    for name in world.goals:
        if name not in GOALS:
            raise InvalidInputError("goals", name, f"one of {', '.join(GOALS)}")


class _Search:
    """One search: what is known about all forms found so far."""

    def __init__(self, task: Task, limits: Limits, tell: Callable[[SearchProgress], bool]) -> None:
        self._task = task
        self._limits = limits
        self._tell = tell
        # By number: the number of the situation before, and which of its moves it was.
        self._parents = array("q", [-1])
        self._moves = array("i", [-1])
        # Keys of all numbers, once there are several shards; one shard alone knows what it has met.
        self._known: set[bytes] = set()
        self._num_expanded = 0
        self._num_moves = 0
        self._depth = 0
        self._goals: dict[str, int | None] = dict.fromkeys(task.world.goals)
        self._standstills: Counter[str] = Counter()

    def run(
        self, num_jobs: int, stack: ExitStack, starting: Callable[[], AbstractContextManager[None]]
    ) -> Exploration:
        """Search level by level."""
        situation = initial_situation(self._task.world)
        try:
            if self._task.checks:
                check_full(situation.state)
        except Exception as error:  # a machine with a fault may fail in any way
            return self._end(Ending.VIOLATION, Counterexample(fault_of(error), ()))
        shard = Shard(self._task)
        shard.start(situation)
        crew: Crew = OneShard(shard)
        while crew.num_to_expand:
            if self._depth == self._limits.max_depth:
                return self._end(Ending.DEPTH_LIMIT)
            if lacks_memory(self._task.max_bytes):
                return self._end(Ending.MEMORY_LIMIT)
            if isinstance(crew, OneShard) and num_jobs > 1:
                crew = self._deal_out(crew.shard, num_jobs, stack, starting)
            ended = self._explore_level(crew)
            if ended is not None:
                return ended
        return self._end(Ending.COMPLETE)

    def _deal_out(
        self,
        shard: Shard,
        num_jobs: int,
        stack: ExitStack,
        starting: Callable[[], AbstractContextManager[None]],
    ) -> Crew:
        """Put processes in the place of a shard that has got much to do."""
        if len(shard.frontier) < SITUATIONS_PER_JOB * num_jobs:
            return OneShard(shard)
        self._known = shard.met
        processes = stack.enter_context(Processes(self._task, num_jobs, starting))
        processes.start(shard.frontier)
        return processes

    def _explore_level(self, crew: Crew) -> Exploration | None:
        """Expand a level and number what is new; give the result if that ends the search."""
        goals_left = [name for name, depth in self._goals.items() if depth is None]
        num_to_expand = crew.num_to_expand
        parts = crew.expand(goals_left, lambda *counts: self._tell_progress(num_to_expand, *counts))
        faults = [part.fault for part in parts if part.fault is not None]
        if faults:
            return self._end(Ending.VIOLATION, self._counterexample(*min(faults, key=lambda it: it[:2])))
        self._count(parts)
        if any(part.was_told_to_end for part in parts):
            return self._end(Ending.INTERRUPTED)
        if any(part.lacks_memory for part in parts):
            return self._end(Ending.MEMORY_LIMIT)
        numbers, is_cut = self._number(parts)
        crew.accept(numbers)
        if crew.num_to_expand:
            self._depth += 1
        return self._end(Ending.STATE_LIMIT) if is_cut else None

    def _tell_progress(self, num_to_expand: int, num_expanded: int, num_moves: int) -> bool:
        return self._tell(
            SearchProgress(
                depth=self._depth,
                num_states=len(self._parents),
                num_expanded=self._num_expanded + num_expanded,
                num_moves=self._num_moves + num_moves,
                num_to_expand=num_to_expand - num_expanded,
            )
        )

    def _count(self, parts: Sequence[LevelPart]) -> None:
        for part in parts:
            self._num_expanded += part.num_expanded
            self._num_moves += part.num_moves
            self._standstills.update(part.standstills)
            for name in part.goals:
                self._goals[name] = self._depth + 1

    def _number(self, parts: Sequence[LevelPart]) -> tuple[list["array[int]"], bool]:
        """Give the new keys their numbers, in the order of the moves; tell whether some were left out."""
        numbers = [array("q", [-1]) * len(part.keys) for part in parts]
        max_states = self._limits.max_states
        for parent, move, index, position in heapq.merge(*map(_moves_of, range(len(parts)), parts)):
            if len(parts) > 1:
                key = parts[index].keys[position]
                if key in self._known:
                    continue
                self._known.add(key)
            if len(self._parents) == max_states:
                return numbers, True
            numbers[index][position] = len(self._parents)
            self._parents.append(parent)
            self._moves.append(move)
        return numbers, False

    def _counterexample(self, number: int, move: int, fault: Fault) -> Counterexample:
        """Play the history that leads to a fault once more."""
        indices = [] if move == SITUATION_ITSELF else [move]
        while number > 0:
            indices.append(self._moves[number])
            number = self._parents[number]
        moves = Moves(self._task.world)
        situation = initial_situation(self._task.world)
        events: list[Event] = []
        for position, index in enumerate(reversed(indices), 1):
            event = moves.enabled(situation)[index]
            events.append(event)
            if position < len(indices):
                situation, _ = moves.follow(situation, event, self._task.step)
        return Counterexample(fault, tuple(events))

    def _end(self, ending: Ending, counterexample: Counterexample | None = None) -> Exploration:
        return Exploration(
            world=self._task.world,
            limits=self._limits,
            checks=self._task.checks,
            ending=ending,
            num_states=len(self._parents),
            num_expanded=self._num_expanded,
            num_moves=self._num_moves,
            depth=self._depth,
            goals=dict(self._goals),
            standstills=dict(sorted(self._standstills.items())),
            counterexample=counterexample,
        )


def _moves_of(index: int, part: LevelPart) -> Iterator[tuple[int, int, int, int]]:
    """Give the keys of a part as (number before, move, part, position), in that order."""
    for position, (parent, move) in enumerate(zip(part.parents, part.moves, strict=True)):
        yield parent, move, index, position
