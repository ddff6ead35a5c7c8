"""Play random histories against the reference and ours, until they differ.

    python -m tests.conformance.run --histories 1000
    python -m tests.conformance.run --profile deep --events 1000000

Run it from the top of the repository, in an environment that `reference-env.sh` made. The profile `ci`
plays the same histories every time, from seed 0 on; `deep` starts at a seed that it draws and prints, and
plays in as many processes as there are processors, for as long as it is told. With `--features`, the
engine does more: asynchronous scheduling, drafts, pipelines, sessions, grammars, adapters, other models
(`random_features.py`), alone and together.

At the first difference it says where, makes the history small with the real scheduler as the judge, and
saves it as a trace that `kvsched-fp check` can show.
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .fixed_hash_seed import fix_hash_seed
from .kinds import Kind
from .known_crashes import KNOWN_CRASHES
from .many import Totals, playing
from .pins import PinError, check_pins
from .random_features import PAIRS
from .situations import SITUATIONS
from .situations_of_features import FEATURE_SITUATIONS

FOLDER = Path("traces")
"""Where failing histories go; git ignores it."""
DEFAULT_HISTORIES = 1000
"""What the profile `ci` plays if it is not told how long."""
TELL_SECONDS = 60.0
"""From one line about the progress to the next, where the line cannot be written over."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Give the exit status: 0 identical, 1 different, 2 no reference to compare with, 130 interrupted.
    """
    options = _parse(arguments)
    try:
        check_pins()
    except PinError as error:
        print(error, file=sys.stderr)
        return 2
    if options.replay is not None:
        return _replay(options.replay)
    print(f"seed {options.seed}, profile {options.profile}, {options.jobs} processes", flush=True)
    totals, interrupted = Totals(), False
    try:
        for played in _play(options):
            totals.add(played)
    except KeyboardInterrupt:
        interrupted = True
    if totals.different is not None:
        return _report(totals.different, options)
    _print_counts(totals, with_features=options.kind.has_features)
    print(f"identical: {totals}")
    return 130 if interrupted else 0


def _print_counts(totals: Totals, *, with_features: bool) -> None:
    """Print how often each situation occurred, and in how many histories each pair of features met."""
    for situation in (*SITUATIONS, *(FEATURE_SITUATIONS if with_features else ()), *KNOWN_CRASHES):
        print(f"{totals.situations[situation]:10,}  {situation}")
    for pair in PAIRS if with_features else ():
        print(f"{totals.pairs[pair]:10,}  {' and '.join(pair)}")


def _play(options: argparse.Namespace) -> Iterator[Totals]:
    """Play until the time is over, or enough was played."""
    progress = _Progress()
    num_events = 0
    seeds = range(options.seed, options.seed + options.histories)
    with playing(seeds, options.kind, options.jobs) as batches:
        for played in batches:
            if played is not None:
                num_events += played.num_events
                progress.add(played)
                yield played
                if played.different is not None:
                    break
            if num_events >= options.events or progress.seconds >= options.seconds:
                break
    progress.end()


class _Progress:
    """A line about what was played so far, on the standard error output."""

    def __init__(self) -> None:
        self._totals = Totals()
        self._started = self._told = time.monotonic()
        self._can_overwrite = sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return time.monotonic() - self._started

    def add(self, played: Totals) -> None:
        """Add what was played, and tell of it if it is time."""
        self._totals.add(played)
        if self._can_overwrite:
            print(f"\r{self._line()}\x1b[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            print(self._line(), file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line as it is."""
        if self._can_overwrite:
            print(file=sys.stderr)

    def _line(self) -> str:
        rate = self._totals.num_events / max(self.seconds, 1e-9)
        return f"{self.seconds:,.0f} s: {self._totals}, {rate:,.0f} events/s"


def _report(seed: int, options: argparse.Namespace) -> int:
    """Say what differs, and save it small."""
    from kvsched_fp.trace import check_trace, open_trace_reader

    from .duel import Tally, play_history
    from .small import make_small, save_trace

    print(f"different: {play_history(seed, Tally(), options.kind)}")
    features = " --features" if options.kind.has_features else ""
    again = f"--histories 1 --seed {seed} --shape {options.kind.shape}{features}"
    print(f"again: {_command(again)}", flush=True)
    small = make_small(seed, options.kind)
    if small is None:
        print("it does not differ when it is played once more")
        return 1
    path = options.folder / f"different-{seed}-{options.kind}.jsonl"
    save_trace(small, path)
    print(f"shrunk to {len(small.events)} events after {small.num_tries} tries: {path}")
    if not small.shows_in_outcomes:
        print("it is in the state or a crash, which no trace shows")
        print(f"see it: {_command(f'--replay {path}')}")
        return 1
    print(f"see it: kvsched-fp check {path}")
    with open_trace_reader(path) as reader:
        print(check_trace(reader).divergence)
    return 1


def _replay(path: Path) -> int:
    """Play a saved trace through both sides; give the exit status."""
    from kvsched_fp import TraceError

    from .again import play_trace

    try:
        is_same, text = play_trace(path)
    except TraceError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{'identical' if is_same else 'different'}: {text}")
    return 0 if is_same else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--profile", choices=("ci", "deep"), default="ci")
    parser.add_argument("--histories", type=int, help="how many, at most")
    parser.add_argument("--events", type=float, help="how many, at least, unless something else ends it")
    parser.add_argument("--seconds", type=float, help="how long, at most")
    parser.add_argument("--seed", type=int, help="the first history; the next has the next seed")
    parser.add_argument("--shape", choices=("v1", "v2", "both"), default="both", help="of the output")
    parser.add_argument("--features", action="store_true", help="with what else an engine does")
    parser.add_argument("--jobs", type=int, help="processes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where a failing history is saved")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a saved trace instead")
    options = parser.parse_args(arguments)
    options.kind = Kind(options.shape, options.features)
    is_deep = options.profile == "deep"
    if options.seed is None:
        options.seed = secrets.randbelow(10**9) if is_deep else 0
    if options.jobs is None:
        options.jobs = (os.cpu_count() or 1) if is_deep else 1
    if options.histories is None:
        is_bounded = is_deep or options.seconds is not None or options.events is not None
        options.histories = 10**12 if is_bounded else DEFAULT_HISTORIES
    options.seconds = float("inf") if options.seconds is None else options.seconds
    options.events = float("inf") if options.events is None else options.events
    return options


def _command(arguments: str) -> str:
    return f"python -m tests.conformance.run {arguments}"


if __name__ == "__main__":
    fix_hash_seed("tests.conformance.run")
    sys.exit(main())
