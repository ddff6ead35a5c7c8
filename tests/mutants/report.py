"""The table of all mutants: who kills each, after how many events, and how small a story shows it.

    python -m tests.mutants.report                    # three seeds each
    python -m tests.mutants.report --only "a victim"  # those whose names contain it
    python -m tests.mutants.report --pin              # and write down the quickest seeds, for pytest, and
                                                      # what was measured, for specs/mutation.md
    python -m tests.mutants.report --figures          # run nothing, print the figures of that page

The last column is the number of events of the smallest story that was found; one behind `<=` could become
smaller still, but the tries ran out, or none could be judged.

The exit code is 1 if a mutant survives under any of the seeds. It is 2, and nothing is planted, if the text
of any mutant does not stand in its module exactly once: all of those are told first, one a line.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import attrs

from tests.mutants.hunting import MAX_EVENTS, Hunt, Kill, hunts, stream
from tests.mutants.measures import Measure, Measures, figures, read_measures, write_measures
from tests.mutants.mutant import Mutant
from tests.mutants.pins import read_pins, write_pins
from tests.mutants.planted import MUTANTS
from tests.mutants.planting import stale_lines
from tests.mutants.shrinking import MAX_TRIES, SmallKill, shrink_kill

SURVIVED = "SURVIVED"
STALE = 2
"""The exit code where a mutant cannot be planted."""


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
    if options.figures:
        print(*figures(read_measures()), sep="\n")
        return 0
    mutants = chosen(options.only, options.which, read_measures())
    stale = stale_lines(mutants)
    if stale:
        print(f"{len(stale)} of {len(mutants)} mutants are stale:", *stale, sep="\n", file=sys.stderr)
        return STALE
    max_tries = 0 if options.no_shrink else options.max_tries
    table: list[Row] = []
    print("mutant | killer | events, seed by seed | smallest story")
    for hunt in hunts(mutants, shrinks=max_tries > 0):
        runs = [hunt.search(stream(seed), options.max_events) for seed in options.seeds]
        rows = [_row(hunt, killer, runs, max_tries) for killer in hunt.mutant.killers]
        print(*rows, sep="\n", flush=True)
        table += rows
        if options.pin:
            _pin(hunt.mutant.name, runs, rows, options.seeds)
    survivors = {row.name for row in table if None in row.kills}
    print(f"{len(mutants)} mutants, {len(survivors)} survived, seeds {options.seeds}")
    return int(bool(survivors))


def _pin(name: str, runs: Sequence[Sequence[Kill]], rows: Sequence[Row], seeds: Sequence[int]) -> None:
    """Write down what was found of one mutant."""
    write_pins({**read_pins(), name: _quickest(runs)})
    measures = read_measures()
    for row in rows:
        events = {
            str(seed): kill.num_events
            for seed, kill in zip(seeds, row.kills, strict=True)
            if kill is not None
        }
        known = measures.get((name, row.killer), Measure())
        measures[name, row.killer] = known.merge(Measure(events, row.small))
    write_measures(measures)


def _row(hunt: Hunt, killer: str, runs: Sequence[Sequence[Kill]], max_tries: int) -> Row:
    kills = [next((kill for kill in run if kill.killer == killer), None) for run in runs]
    shortest = min(filter(None, kills), key=lambda kill: len(kill.played.events), default=None)
    small = shrink_kill(hunt, shortest, max_tries) if max_tries and shortest is not None else None
    return Row(hunt.mutant.name, killer, kills, small)


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


def chosen(parts: Sequence[str], which: str, measures: Measures) -> list[Mutant]:
    """Give the named mutants: all, those that lack a story, or those with one that is an upper bound."""

    def belongs(mutant: Mutant) -> bool:
        stories = [measures.get((mutant.name, killer), Measure()).small for killer in mutant.killers]
        if which == "missing":
            return None in stories
        return which == "all" or any(small is not None and not small.is_minimal for small in stories)

    return list(filter(belongs, named(parts)))


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
    add(
        "--which",
        choices=["all", "missing", "bounds"],
        default="all",
        help="of these, all, or those with no story in measures.json, or with one that may become smaller",
    )
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the histories (%(default)s)")
    add("--max-events", type=int, default=MAX_EVENTS, help="for each mutant and seed (%(default)s)")
    add("--max-tries", type=int, default=MAX_TRIES, help="smaller stories played for each (%(default)s)")
    add("--no-shrink", action="store_true", help="leave the smallest stories out")
    add("--pin", action="store_true", help="write pins.json and measures.json")
    add("--figures", action="store_true", help="run nothing, print the figures of measures.json")
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
