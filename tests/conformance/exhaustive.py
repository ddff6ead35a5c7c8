"""Every move of small worlds, made by the real scheduler and by ours.

    python -m tests.conformance.exhaustive                # all worlds of the model checker but `small`
    python -m tests.conformance.exhaustive tiny session
    python -m tests.conformance.exhaustive --random --seed 7 --seconds 600

Random histories meet what is likely; these meet everything that can happen in a small world, once at least.
The third command draws worlds at random (`tests/unit/explore/random_worlds.py`), and takes the first forms
of each. Importing this module imports vLLM.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

import attrs

from kvsched_fp import Event, SchedulerConfig
from kvsched_fp.config import ALL_QUIRKS
from kvsched_fp.explore import World
from kvsched_fp.explore.presets import PRESETS
from tests.unit.explore.random_worlds import random_worlds

from .duel import play_on_both
from .fixed_hash_seed import fix_hash_seed
from .oracle import OracleScheduler
from .pins import check_pins
from .reference import ReferenceScheduler
from .vllm_hasher import VllmBlockHasher
from .walks import Walks

MAX_FORMS = 400
"""So many forms of a random world are walked through."""

WORLDS = tuple(name for name in PRESETS if name != "small")
"""Those that are walked through unless others are named; `small` has 370,000 moves."""


@attrs.define
class Comparison:
    """What came of a world."""

    world: World
    num_forms: int = 0
    num_moves: int = 0
    num_histories: int = 0
    num_events: int = 0
    """Events of all histories; some moves are made more than once, on the way to others."""
    crashes: Counter[str] = attrs.field(factory=Counter)
    """Histories that ended with a known crash of the reference."""
    difference: str | None = None
    """Where the two went different ways first."""

    def __str__(self) -> str:
        counts = (
            f"{self.num_forms:,} forms, {self.num_moves:,} moves: "
            f"{self.num_histories:,} histories, {self.num_events:,} events"
        )
        crashes = "".join(f"; {count:,} ended as {name}" for name, count in self.crashes.items())
        return f"{self.world.name}: {self.difference or 'identical'}; {counts}{crashes}"


def compare_world(world: World, max_forms: int = sys.maxsize) -> Comparison:
    """Make every move of a world on both sides, and compare outcomes and whole states after each."""
    world = attrs.evolve(world, config=attrs.evolve(world.config, block_hasher=VllmBlockHasher()))
    walks = Walks(world, max_forms)
    comparison = Comparison(world, walks.num_forms, walks.num_moves)
    for events in walks.histories():
        comparison.num_histories += 1
        comparison.difference = _play(world.config, events, comparison)
        if comparison.difference is not None:
            break
    return comparison


def _play(config: SchedulerConfig, events: Sequence[Event], comparison: Comparison) -> str | None:
    """Play one history; give the first difference, or None."""
    reference, oracle = ReferenceScheduler(config), OracleScheduler(config)
    for number, event in enumerate(events):
        crash, difference = play_on_both(reference, oracle, event)
        comparison.num_events += 1
        if crash is not None:
            comparison.crashes[crash] += 1
            return None
        if difference is not None:
            so_far = "\n  ".join(map(str, events[: number + 1]))
            return f"{difference}\n  {so_far}\n"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the worlds that are named, or random ones; the exit code is 1 if one differs."""
    options = _parse(arguments)
    check_pins()
    if options.random:
        return _compare_random_worlds(options.seed, options.seconds)
    differs = False
    for name in options.worlds:
        start = time.monotonic()
        comparison = compare_world(PRESETS[name])
        differs |= comparison.difference is not None
        print(f"{comparison} in {time.monotonic() - start:,.0f} s", flush=True)
    return int(differs)


def _compare_random_worlds(seed: int, seconds: float) -> int:
    """Compare one world after the other until one differs, or the time is over."""
    end, num_worlds, num_events, num_moves = time.monotonic() + seconds, 0, 0, 0
    for world in random_worlds(seed, ALL_QUIRKS):
        comparison = compare_world(world, MAX_FORMS)
        if comparison.difference is not None:
            print(f"{comparison}\n{world}")
            return 1
        num_worlds += 1
        num_events += comparison.num_events
        num_moves += comparison.num_moves
        if time.monotonic() > end:
            break
    print(f"identical: {num_worlds:,} worlds, {num_moves:,} moves in {num_events:,} events")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make every move of small worlds on both sides.")
    parser.add_argument("worlds", nargs="*", metavar="WORLD", default=WORLDS, help=", ".join(PRESETS))
    parser.add_argument("--random", action="store_true", help="worlds that are drawn, in place of those")
    parser.add_argument("--seed", type=int, default=0, help="of the worlds that are drawn")
    parser.add_argument("--seconds", type=float, default=60, help="how long worlds are drawn")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.worlds if name not in PRESETS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no world; there are {', '.join(PRESETS)}")
    return options


if __name__ == "__main__":
    fix_hash_seed("tests.conformance.exhaustive")
    sys.exit(main())
