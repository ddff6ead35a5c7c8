"""The table of all mutants: who kills each, after how many events, and how small a story shows it.

    python -m tests.mutants.report                    # three seeds each
    python -m tests.mutants.report --only "a victim"  # those whose names contain it
    python -m tests.mutants.report --pin              # and write the quickest seeds down, for pytest

The last column is the number of events of the smallest story that was found; one behind `<=` could become
smaller still, but the tries ran out, or none could be judged.

The exit code is 1 if a mutant survives under any of the seeds. It is 2, and nothing is planted, if the text
of any mutant does not stand in its module exactly once: all of those are told first, one a line.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median_low

import attrs

from tests.mutants.hunting import MAX_EVENTS, Hunt, Kill, hunts, stream
from tests.mutants.mutant import Mutant
from tests.mutants.pins import read_pins, write_pins
from tests.mutants.planted import MUTANTS
from tests.mutants.planting import stale_lines
from tests.mutants.shrinking import MAX_TRIES, SmallKill, shrink_kill

SURVIVED = "SURVIVED"
STALE = 2
"""The exit code where a mutant cannot be planted."""
NUM_LONGEST = 5


@attrs.frozen
class Row:
    """One line of the table."""

    name: str
    killer: str
    kills: Sequence[Kill | None]
    """What happened under each seed; None where the mutant survived."""
    small: SmallKill | None
    """The smallest story; None if none was looked for, or nothing killed."""

    def __str__(self) -> str:
        """Write the line."""
        events = ", ".join(SURVIVED if kill is None else str(kill.num_events) for kill in self.kills)
        return f"{self.name} | {self.killer} | {events} | {'' if self.small is None else self.small}"


def main() -> int:
    """Print the table; give the exit code."""
    options = parse()
    mutants = named(options.only)
    stale = stale_lines(mutants)
    if stale:
        print(f"{len(stale)} of {len(mutants)} mutants are stale:", *stale, sep="\n", file=sys.stderr)
        return STALE
    pins = read_pins()
    max_tries = 0 if options.no_shrink else options.max_tries
    table: list[Row] = []
    print("mutant | killer | events, seed by seed | smallest story")
    for hunt in hunts(mutants, shrinks=max_tries > 0):
        runs = [hunt.search(stream(seed), options.max_events) for seed in options.seeds]
        for killer in hunt.mutant.killers:
            table.append(_row(hunt, killer, runs, max_tries))
            print(table[-1], flush=True)
        pins[hunt.mutant.name] = _quickest(runs)
        if options.pin:
            write_pins(pins)
    survivors = {row.name for row in table if None in row.kills}
    print(f"{len(mutants)} mutants, {len(survivors)} survived, seeds {options.seeds}")
    _print_lengths([row for row in table if row.small is not None])
    return int(bool(survivors))


def _row(hunt: Hunt, killer: str, runs: Sequence[Sequence[Kill]], max_tries: int) -> Row:
    kills = [next((kill for kill in run if kill.killer == killer), None) for run in runs]
    shortest = min(filter(None, kills), key=lambda kill: len(kill.played.events), default=None)
    small = shrink_kill(hunt, shortest, max_tries) if max_tries and shortest is not None else None
    return Row(hunt.mutant.name, killer, kills, small)


def _print_lengths(rows: Sequence[Row]) -> None:
    """Print how long the smallest stories are: half and nine in ten of them, and the longest."""
    by_length = sorted(rows, key=_length)
    if not by_length:
        return
    half = median_low(map(_length, rows))
    most = _length(by_length[-(len(rows) // 10) - 1])
    num_minimal = sum(row.small is not None and row.small.is_minimal for row in rows)
    print(f"smallest stories: half of them take up to {half} events, nine in ten up to {most}")
    print(f"{num_minimal} of {len(rows)} are as small as they get; the longest:")
    for row in by_length[: -NUM_LONGEST - 1 : -1]:
        print(f"  {row.small} | {row.name} | {row.killer}")


def _length(row: Row) -> int:
    return 0 if row.small is None else row.small.num_events


def _quickest(runs: Sequence[Sequence[Kill]]) -> list[int]:
    """Choose a few seeds of short histories that show the mutant to all its killers."""
    kills = sorted((kill for run in runs for kill in run), key=lambda kill: len(kill.played.events))
    seeds: list[int] = []
    for kill in kills:
        shown = {other.killer for other in kills if other.seed in seeds}
        if kill.killer not in shown:
            seeds.append(kill.seed)
    return seeds


def named(parts: Sequence[str]) -> list[Mutant]:
    """Give the mutants whose names contain any of `parts`; all if there are none."""
    return [mutant for mutant in MUTANTS if not parts or any(part in mutant.name for part in parts)]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or `arguments`. Ends the process, with a message, for what is not allowed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="mutants whose names contain one of these; else all",
    )
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the histories (%(default)s)")
    add("--max-events", type=int, default=MAX_EVENTS, help="for each mutant and seed (%(default)s)")
    add("--max-tries", type=int, default=MAX_TRIES, help="smaller stories played for each (%(default)s)")
    add("--no-shrink", action="store_true", help="leave the smallest stories out")
    add("--pin", action="store_true", help="write pins.json")
    options = parser.parse_args(arguments)
    for part in options.only:
        if not named([part]):
            names = "\n  ".join(mutant.name for mutant in MUTANTS)
            parser.error(f"--only: got {part!r}; allowed: names or parts of names, of\n  {names}")
    return options


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is part of a history
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.mutants.report", *sys.argv[1:]])
    sys.exit(main())
