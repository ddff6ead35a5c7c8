"""A general mutation tester over the core: `mutmut`, which `[tool.mutmut]` in pyproject.toml sets up.

    python -m tests.mutants.general                   # at most 30 mutants of each module, drawn with seed 1
    python -m tests.mutants.general --most 10000      # all there are
    python -m tests.mutants.general --only deque.py kvcache/pool.py    # of these modules
    python -m tests.mutants.general --survivors       # those again that nothing has killed
    python -m tests.mutants.general --table           # run nothing, print the table

It needs `mutmut` (3.8.1) on the path and writes to `mutants/`; what has run already is not run again, so it
can be stopped at any time, or go on with a larger sample. `mutmut show NAME` shows what was changed.
"""

import argparse
import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MUTANTS_DIR = Path("mutants")
GROUPS = ("kvcache.", "schedule.", "update.", "")
"""The beginnings of the modules that are run together; the last takes what is left."""
SMALL_MODULE = "kvsched_fp.outputs.*"

Verdicts = Mapping[str, int | None]
"""What became of the mutants of a module, by name: the exit codes of `mutmut`, None for those not run."""

KILLED = (1, 3)
SURVIVED = 0
NO_TESTS = (5, 33)
TIMED_OUT = (-24, 24, 36, 152, 255)

TABLE_HEAD = "| module | mutants | run | killed | timed out | crashed | survived | met by no test |"
TABLE_LINE = "|---|---|---|---|---|---|---|---|"


def main() -> None:
    """Run what was asked for, and print the table."""
    options = parse()
    if not options.table:
        if not MUTANTS_DIR.exists():
            _mutmut([SMALL_MODULE])  # makes the mutants of all modules: no command does that alone
        chosen = choose(read_verdicts(), options.only)
        _run_in_groups(
            _left_alive(chosen) if options.survivors else draw(chosen, options.most, options.seed)
        )
    print_table(choose(read_verdicts(), options.only))


def choose(found: Mapping[str, Verdicts], only: Sequence[str]) -> Mapping[str, Verdicts]:
    """Give what was found of some modules, or of all if none is named.

    Raises `ValueError` for a module that has no mutants: it is another path, or empty, or left out.
    """
    unknown = [module for module in only if module not in found]
    if unknown:
        raise ValueError(
            f"--only {' '.join(unknown)}: no mutants; modules with mutants are {', '.join(found)}"
        )
    return {module: found[module] for module in only} if only else found


def draw(found: Mapping[str, Verdicts], most: int, seed: int) -> list[str]:
    """Give what is still to be run of a sample; a larger sample has all of a smaller one."""
    drawn: list[str] = []
    for module, verdicts in found.items():
        names = sorted(verdicts)
        random.Random(f"{seed} {module}").shuffle(names)
        drawn += [name for name in names[:most] if verdicts[name] is None]
    return drawn


def _left_alive(found: Mapping[str, Verdicts]) -> list[str]:
    return [
        name
        for verdicts in found.values()
        for name, code in verdicts.items()
        if code in (SURVIVED, *NO_TESTS)
    ]


def _run_in_groups(names: Iterable[str]) -> None:
    left = list(names)
    for group in GROUPS:
        chosen = [name for name in left if name.startswith(f"kvsched_fp.{group}")]
        left = [name for name in left if name not in chosen]
        if chosen:
            _mutmut(chosen)


def _mutmut(names: Iterable[str]) -> None:
    subprocess.run(["mutmut", "run", "--max-children", "1", *names], check=True)


def read_verdicts() -> dict[str, Verdicts]:
    """Give the verdicts of all modules, by their paths within the package."""
    package = MUTANTS_DIR / "kvsched_fp"
    found = {}
    for path in sorted(package.rglob("*.py.meta")):
        codes = json.loads(path.read_text())["exit_code_by_key"]
        if codes:
            found[str(path.relative_to(package)).removesuffix(".meta")] = codes
    return found


def print_table(found: Mapping[str, Verdicts]) -> None:
    """Print how many mutants of each module there are, and what became of them (`specs/mutation.md`)."""
    print(TABLE_HEAD, TABLE_LINE, sep="\n")
    total: Counter[str] = Counter()
    for module, verdicts in found.items():
        counts = Counter(map(_verdict, verdicts.values()))
        total += counts
        print(_row(f"`{module}`", counts))
    print(_row("**all**", total))


def _verdict(code: int | None) -> str:
    if code is None:
        return "not run"
    if code in KILLED:
        return "killed"
    if code == SURVIVED:
        return "survived"
    if code in NO_TESTS:
        return "no tests"
    return "timed out" if code in TIMED_OUT else "crashed"


def _row(module: str, counts: Counter[str]) -> str:
    num_run = counts.total() - counts["not run"]
    columns = (counts[name] for name in ("killed", "timed out", "crashed", "survived", "no tests"))
    return f"| {module} | {' | '.join(map(str, (counts.total(), num_run, *columns)))} |"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or `arguments`. Ends the process, with a message, for what is not allowed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.general",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--most", type=int, default=30, help="mutants drawn of each module (%(default)s)")
    add("--seed", type=int, default=1, help="of the sample (%(default)s)")
    add("--only", nargs="+", default=(), metavar="MODULE", help="modules, by path in the package; else all")
    add("--survivors", action="store_true", help="run those again that nothing has killed")
    add("--table", action="store_true", help="run nothing, print the table of what has run")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
