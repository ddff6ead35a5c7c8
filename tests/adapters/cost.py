"""What a shadow or a recorder costs: schedule and update of the real scheduler, with and without it.

    python -m tests.adapters.cost [--kinds shadow recording] [--running 32 256] [--steps 60]

Figures are microseconds per running request and step, of processor time. The two take turns, step by step,
each in a process of its own; the lower quartile over the steps is taken, and the ratio is what counts.
"""

import argparse
import functools
import statistics
import tempfile
from pathlib import Path

from tests.bench.side_by_side import WARM_UP_STEPS, Theirs, Work, Worker, decode_only, prefill_heavy

ALLOWED_RATIO = 2.0
"""What a shadow may cost, by the real scheduler alone."""


class Shadowed(Theirs):
    """The real scheduler with its shadow, on one piece of work."""

    def __init__(self, work: Work) -> None:
        from kvsched_fp.adapters.vllm import ShadowScheduler
        from tests.bench import real

        real.Scheduler = ShadowScheduler
        super().__init__(work)


class Recorded(Theirs):
    """The real scheduler with a recorder, on one piece of work."""

    def __init__(self, work: Work) -> None:
        from kvsched_fp.adapters.vllm import RecordingScheduler
        from tests.bench import real

        self._folder = tempfile.TemporaryDirectory()
        trace = Path(self._folder.name) / "trace.jsonl"
        real.Scheduler = functools.partial(RecordingScheduler, trace=trace)
        super().__init__(work)


WATCHED = {"shadow": Shadowed, "recording": Recorded}


def measure(kind: type[Theirs], work: Work, num_steps: int) -> tuple[float, float]:
    """Give the lower quartiles of `kind` and of the real one, in microseconds per request and step."""
    workers = (Worker(kind, work), Worker(Theirs, work))
    for worker in workers:
        worker.run(WARM_UP_STEPS)
    times = [[worker.run(1) for worker in workers] for _ in range(num_steps)]
    for worker in workers:
        worker.stop()
    watched, alone = (statistics.quantiles(column, n=4)[0] for column in zip(*times, strict=True))
    return watched, alone


def main() -> None:
    """Print one row per kind of work and number of running requests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=WATCHED, default=list(WATCHED))
    parser.add_argument("--running", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print(f"{'with':12}{'work':16}{'running':>8}{'us':>10}{'alone us':>10}{'ratio':>8}")
    for name in options.kinds:
        for make in (decode_only, prefill_heavy):
            for num_running in options.running:
                work = make(num_running, options.steps)
                us, alone = measure(WATCHED[name], work, options.steps)
                print(f"{name:12}{work.name:16}{num_running:8}{us:10.2f}{alone:10.2f}{us / alone:8.2f}")


if __name__ == "__main__":
    main()
