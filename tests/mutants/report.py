"""The table of all mutants: who kills each, after how many events, and how small a story shows it.

    python -m tests.mutants.report                    # three seeds each
    python -m tests.mutants.report --only "a victim"  # those whose names contain it
    python -m tests.mutants.report --pin              # and write the quickest seeds down, for pytest

The exit code is 1 if a mutant survives under any of the seeds.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.mutants.hunting import MAX_EVENTS, Hunt, Kill, hunts, stream
from tests.mutants.pins import read_pins, write_pins
from tests.mutants.planted import MUTANTS
from tests.mutants.shrinking import shrink_kill

SURVIVED = "SURVIVED"


def main() -> int:
    """Print the table; give the exit code."""
    options = _parse()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant.name]
    pins = read_pins()
    num_survived = 0
    print("mutant | killer | events, seed by seed | smallest story")
    for hunt in hunts(mutants, shrinks=not options.no_shrink):
        runs = [hunt.search(stream(seed), options.max_events) for seed in options.seeds]
        for line in _lines(hunt, runs, shrinks=not options.no_shrink):
            print(line, flush=True)
        num_survived += any(len(kills) < len(hunt.mutant.killers) for kills in runs)
        pins[hunt.mutant.name] = _quickest(runs)
        if options.pin:
            write_pins(pins)
    print(f"{len(mutants)} mutants, {num_survived} survived, seeds {options.seeds}")
    return int(num_survived > 0)


def _lines(hunt: Hunt, runs: Sequence[Sequence[Kill]], *, shrinks: bool) -> list[str]:
    lines = []
    for killer in hunt.mutant.killers:
        kills = [next((kill for kill in run if kill.killer == killer), None) for run in runs]
        events = ", ".join(SURVIVED if kill is None else str(kill.num_events) for kill in kills)
        smallest = ""
        shortest = min(filter(None, kills), key=lambda kill: len(kill.played.events), default=None)
        if shrinks and shortest is not None:
            smallest = str(len(shrink_kill(hunt, shortest)))
        lines.append(f"{hunt.mutant.name} | {killer} | {events} | {smallest}")
    return lines


def _quickest(runs: Sequence[Sequence[Kill]]) -> list[int]:
    """Choose a few seeds of short histories that show the mutant to all its killers."""
    kills = sorted((kill for run in runs for kill in run), key=lambda kill: len(kill.played.events))
    seeds: list[int] = []
    for kill in kills:
        shown = {other.killer for other in kills if other.seed in seeds}
        if kill.killer not in shown:
            seeds.append(kill.seed)
    return seeds


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.report", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", default="", help="a part of the names of the mutants to plant")
    parser.add_argument("--max-events", type=int, default=MAX_EVENTS, help="for each mutant and seed")
    parser.add_argument("--no-shrink", action="store_true", help="leave the smallest stories out")
    parser.add_argument("--pin", action="store_true", help="write pins.json")
    return parser.parse_args()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is part of a history
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.mutants.report", *sys.argv[1:]])
    sys.exit(main())
