"""Time the model checker, whole and in parts: `python -m tests.bench.explorer [WORLD ...]`.

Figures are processor time on one core, the least of several repeats. The parts are timed one by one over
all moves of the world, each in a loop of its own.
"""

import functools
import sys
import time
from collections.abc import Callable

import attrs

from kvsched_fp import machine
from kvsched_fp.events import Event
from kvsched_fp.explore import World, explore
from kvsched_fp.explore.canonical import Canonicalizer
from kvsched_fp.explore.moves import Moves
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.situation import Situation, initial_situation
from kvsched_fp.invariants import check_full, check_full_step
from kvsched_fp.machine import Outcome

NUM_REPEATS = 9


@attrs.frozen
class Explored:
    """A world that was walked through."""

    moves: Moves
    """What may happen in it."""
    canonicalizer: Canonicalizer
    """What makes its forms."""
    situations: list[Situation]
    """One of each form."""
    steps: list[tuple[Situation, Event, Situation, Outcome]]
    """All moves: before, event, after, outcome."""


def walk(world: World) -> Explored:
    """Make every move of a world once."""
    moves = Moves(world)
    canonicalizer = Canonicalizer(world, moves.kind_of)
    situations = [initial_situation(world)]
    met = {canonicalizer.key(situations[0])}
    steps = []
    for situation in situations:  # grows while it is walked through
        for event in moves.enabled(situation):
            after, outcome = moves.follow(situation, event, machine.step)
            steps.append((situation, event, after, outcome))
            key = canonicalizer.key(after)
            if key not in met:
                met.add(key)
                situations.append(after)
    return Explored(moves, canonicalizer, situations, steps)


def least(work: Callable[[], object]) -> float:
    """Give the least processor time of `work` in seconds."""
    spent = []
    for _ in range(NUM_REPEATS):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def time_search(world: World) -> None:
    """Time the search with and without invariants."""
    found = explore(world)
    for name, checks in (("all invariants", True), ("no invariants", False)):
        seconds = least(functools.partial(explore, world, checks=checks))
        rates = f"{found.num_states / seconds:8,.0f} states/s{found.num_moves / seconds:8,.0f} moves/s"
        print(f"{world.name:14}{name:20}{rates}")


def time_parts(world: World) -> None:
    """Time what the search does, in microseconds per state."""
    explored = walk(world)
    situations, steps, canonicalizer = explored.situations, explored.steps, explored.canonicalizer
    parts: dict[str, Callable[[], object]] = {
        "moves": lambda: [explored.moves.enabled(situation) for situation in situations],
        "machine": lambda: [machine.step(before.state, event) for before, event, _, _ in steps],
        "forms and keys": lambda: [canonicalizer.key(after) for _, _, after, _ in steps],
        "step invariants": lambda: [
            check_full_step(before.state, event, after.state, outcome)
            for before, event, after, outcome in steps
        ],
        "state invariants": lambda: [check_full(situation.state) for situation in situations],
    }
    for name, work in parts.items():
        print(f"{world.name:14}{name:20}{least(work) / len(situations) * 1e6:8.0f} us per state")


def main(names: list[str]) -> None:
    """Time the worlds that are named, or `tiny`."""
    for name in names or ["tiny"]:
        time_search(PRESETS[name])
        time_parts(PRESETS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
