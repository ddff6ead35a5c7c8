"""Plant faults into the reference: each must be found, and shrink to a history that a person can read.

    python -m tests.conformance.planted

For each fault it says: its area and name, how many random histories it took to find it, in how many seconds
of processor time, and how many events are left when the history is shrunk, after how many tries. The exit
status is 1 if a fault was not found within the time, was left with too many events, or what is left differs
without the fault. Run it as `run.py`.
"""

import argparse
import itertools
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from .fixed_hash_seed import fix_hash_seed
from .pins import PinError, check_pins

if TYPE_CHECKING:
    from .small import Small

MAX_SECONDS = 60.0
"""Processor time to find a fault in."""
MAX_EVENTS = 12
"""Events that may be left of a history."""
MAX_SHRUNK = 3
"""Histories that are shrunk, one after another, until one is small and shows the fault in a trace."""


@attrs.frozen
class Report:
    """What became of one fault."""

    area: str
    fault: str
    is_found: bool
    seconds: float
    """Processor time until it was found, or was given up."""
    num_histories: int = 0
    """How many it took."""
    num_events: int = 0
    """Events that are left."""
    num_tries: int = 0
    """Smaller histories that were played to get there."""
    num_shrunk: int = 0
    """Histories that were shrunk."""
    shrink_seconds: float = 0.0
    """Processor time of all shrinking."""
    shows_in_outcomes: bool = False
    """Whether a trace shows it."""
    is_genuine: bool = False
    """Whether the same history is the same on both sides without the fault."""

    @property
    def is_good(self) -> bool:
        """Whether the suite does with this fault what it should."""
        return self.is_found and self.num_events <= MAX_EVENTS and self.is_genuine

    def __str__(self) -> str:
        text = f"{self.area}: {self.fault}: "
        if not self.is_found:
            return f"{text}NOT FOUND in {self.seconds:.1f} s"
        text += f"{self.num_histories} histories, {self.seconds:.1f} s; "
        text += f"{self.num_events} events after {self.num_tries} tries, {self.shrink_seconds:.1f} s"
        if self.num_shrunk > 1:
            text += f" ({self.num_shrunk} histories shrunk)"
        if not self.shows_in_outcomes:
            text += "; in the state alone"
        if self.num_events > MAX_EVENTS:
            text += f"; TOO MANY, {MAX_EVENTS} are allowed"
        return text if self.is_genuine else f"{text}; DIFFERS WITHOUT THE FAULT"


def find_fault(name: str, max_seconds: float = MAX_SECONDS) -> Iterator[int]:
    """Play histories from seed 0 on, for so much processor time; give the seeds that show the fault."""
    from .duel import Tally, play_history
    from .faults import FAULTS

    seconds = 0.0
    for seed in itertools.count():
        started = time.process_time()
        with FAULTS[name].planted():
            divergence = play_history(seed, Tally())
        seconds += time.process_time() - started
        if divergence is not None:
            yield seed
        elif seconds > max_seconds:
            return


def try_fault(area: str, name: str, folder: Path | None = None) -> Report:
    """Find a fault and shrink the history that shows it; save that as a trace into `folder`, if given."""
    from .faults import FAULTS
    from .live_judge import judge_everything
    from .small import save_trace

    started = time.process_time()
    seeds = find_fault(name)
    first_seed = next(seeds, None)
    found_after = time.process_time() - started
    if first_seed is None:
        return Report(area, name, is_found=False, seconds=found_after)
    with FAULTS[name].planted():
        small, num_shrunk = _shrink_some(itertools.chain([first_seed], seeds))
        if folder is not None:
            save_trace(small, folder / f"{_slug(area)}-{_slug(name)}.jsonl")
    return Report(
        area,
        name,
        is_found=True,
        seconds=found_after,
        num_histories=first_seed + 1,
        num_events=len(small.events),
        num_tries=small.num_tries,
        num_shrunk=num_shrunk,
        shrink_seconds=time.process_time() - started - found_after,
        shows_in_outcomes=small.shows_in_outcomes,
        is_genuine=judge_everything(small.config)(small.events) is None,
    )


def _shrink_some(seeds: Iterable[int]) -> tuple["Small", int]:
    """Shrink histories until one is small and shows in a trace; give the best, and how many were shrunk.

    Where a history gets stuck on its way to the smallest is a matter of luck.
    """
    from .small import make_small

    found: list[Small] = []
    for seed in itertools.islice(seeds, MAX_SHRUNK):
        small = make_small(seed)
        assert small is not None, f"the history of seed {seed} differs only once"
        found.append(small)
        if small.shows_in_outcomes and len(small.events) <= MAX_EVENTS:
            break
    best = min(found, key=lambda small: (len(small.events) > MAX_EVENTS, not small.shows_in_outcomes))
    return best, len(found)


def _slug(text: str) -> str:
    return re.sub(r"\W+", "_", text.replace("'", "")).strip("_")


def try_all(faults: Sequence[tuple[str, str]], folder: Path | None, num_jobs: int) -> Iterator[Report]:
    """Try faults, given by area and name, in their order."""
    if num_jobs == 1:
        for area, name in faults:
            yield try_fault(area, name, folder)
        return
    with multiprocessing.get_context("spawn").Pool(num_jobs) as pool:
        results = [pool.apply_async(try_fault, (area, name, folder)) for area, name in faults]
        for result in results:
            yield result.get()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; give the exit status: 0 all as it should be, 1 not, 2 no reference."""
    options = _parse(arguments)
    try:
        check_pins()
    except PinError as error:
        print(error, file=sys.stderr)
        return 2
    from .faults import AREAS

    chosen = [
        (area, fault.name)
        for area, faults in AREAS.items()
        for fault in faults
        if options.only is None or options.only in f"{area}: {fault.name}"
    ]
    num_bad = 0
    for report in try_all(chosen, options.save, options.jobs):
        print(report, flush=True)
        num_bad += not report.is_good
    print(f"{len(chosen) - num_bad} of {len(chosen)} faults in {len(AREAS)} areas found and made small")
    return 1 if num_bad or not chosen else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.planted", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="faults with this in their area or name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="save the shrunk histories as traces")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    fix_hash_seed("tests.conformance.planted")
    sys.exit(main())
