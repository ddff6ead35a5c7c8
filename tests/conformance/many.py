"""Playing many histories, in this process or in several, and adding up what was played.

Every process has its own share of the seeds, one in so many. So the first seed fixes which histories are
played, and the time how many of them.
"""

import hashlib
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty
from typing import Any

import attrs

from .kinds import Kind

BATCH_SECONDS = 1.0
"""How long a process plays before it tells what it has played."""
POLL_SECONDS = 0.5
"""How long to wait for news before the time is looked at again."""


@attrs.define
class Totals:
    """What was played."""

    num_histories: int = 0
    num_events: int = 0
    num_decisions: int = 0
    """Rows of a batch, and preemptions."""
    configs: set[bytes] = attrs.field(factory=set)
    """A digest of every configuration."""
    situations: Counter[str] = attrs.field(factory=Counter)
    pairs: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """In how many histories each pair of features met."""
    different: int | None = None
    """The seed of a history that differs."""

    def add(self, other: "Totals") -> None:
        """Add what was played elsewhere."""
        self.num_histories += other.num_histories
        self.num_events += other.num_events
        self.num_decisions += other.num_decisions
        self.configs |= other.configs
        self.situations.update(other.situations)
        self.pairs.update(other.pairs)
        if self.different is None:
            self.different = other.different

    def __str__(self) -> str:
        return (
            f"{self.num_histories:,} histories, {self.num_events:,} events, "
            f"{self.num_decisions:,} decisions, {len(self.configs):,} configurations"
        )


def play_batches(seeds: Sequence[int], kind: Kind) -> Iterator[Totals]:
    """Play the histories of these seeds, up to one that differs; now and then, tell what was played."""
    from .duel import Tally, play_history

    tally, started, different = Tally(), time.monotonic(), None
    for seed in seeds:
        if play_history(seed, tally, kind) is not None:
            different = seed
        if different is not None or time.monotonic() - started >= BATCH_SECONDS:
            yield _total(tally, different)
            tally, started = Tally(), time.monotonic()
        if different is not None:
            return
    yield _total(tally, None)


def _total(tally: Any, different: int | None) -> Totals:
    configs = {hashlib.blake2b(repr(config).encode(), digest_size=8).digest() for config in tally.configs}
    return Totals(
        tally.num_histories,
        tally.num_events,
        tally.num_decisions,
        configs,
        tally.situations,
        tally.pairs,
        different,
    )


@contextmanager
def playing(seeds: Sequence[int], kind: Kind, num_jobs: int) -> Iterator[Iterator[Totals | None]]:
    """Play histories in so many processes; give what was played, batch by batch, None where nothing is new.

    The processes are ended with the block.
    """
    if num_jobs == 1:
        yield play_batches(seeds, kind)
        return
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    workers = [
        context.Process(target=_work, args=(seeds[share::num_jobs], kind, queue), daemon=True)
        for share in range(num_jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        yield _listen(queue, workers)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(seeds: Sequence[int], kind: Kind, queue: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends us
    for totals in play_batches(seeds, kind):
        queue.put(totals)
    queue.put(None)


def _listen(queue: Any, workers: Sequence[Any]) -> Iterator[Totals | None]:
    num_running = len(workers)
    while num_running:
        try:
            totals = queue.get(timeout=POLL_SECONDS)
        except Empty:
            if any(worker.exitcode for worker in workers):
                raise RuntimeError("a process that played histories ended with an error") from None
            yield None
            continue
        if totals is None:
            num_running -= 1
        else:
            yield totals
