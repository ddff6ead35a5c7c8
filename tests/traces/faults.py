"""Traces of a real scheduler with a fault planted into it, shrunk with that scheduler as the live judge.

Importing this module imports vLLM.
"""

from collections.abc import Sequence
from pathlib import Path

from kvsched_fp import Event, SchedulerConfig, initial_state, step
from kvsched_fp.trace import open_trace
from kvsched_fp.trace.codec import encode_told, what_was_told
from kvsched_fp.trace.shrink import Judge, Shrunk, shrink
from tests.conformance.planted import FAULTS, Fault

from .recorder import RecordedScheduler
from .selection import draw_candidate

RECORDED = (
    "a preempted request goes to the back",
    "an output may be one token longer than the model",
    "a hit takes the block cached last",
    "a hit on a free block is not counted as needed",
)
"""The faults that are recorded, by their names in the conformance suite."""
NUM_CANDIDATES = 400
"""Histories in which a fault must show."""


def record_faults(folder: Path) -> None:
    """Record, for every fault, the smallest history found in which it shows."""
    folder.mkdir(exist_ok=True)
    for fault in FAULTS:
        if fault.name not in RECORDED:
            continue
        with fault.planted():
            config, shrunk = _find(fault)
            path = folder / f"{fault.name.replace(' ', '_')}.jsonl"
            recorded = RecordedScheduler(config)
            with open_trace(path, config, {}) as writer:
                for event in shrunk.events:
                    writer.write_told(event, recorded.happen(event))
        print(f"{len(shrunk.events):4} events after {shrunk.num_tries} tries: {path.name}")


def _find(fault: Fault) -> tuple[SchedulerConfig, Shrunk]:
    for seed in range(NUM_CANDIDATES):
        candidate = draw_candidate(seed)
        shrunk = shrink(candidate.config, candidate.events, live_judge(candidate.config))
        if shrunk is not None:
            return candidate.config, shrunk
    raise LookupError(f"{fault.name} shows in none of {NUM_CANDIDATES} histories")


def live_judge(config: SchedulerConfig) -> Judge:
    """Make a judge that plays a history through the real scheduler."""

    def judge(events: Sequence[Event]) -> int | None:
        recorded, after = RecordedScheduler(config), initial_state(config)
        for number, event in enumerate(events, start=1):
            after, outcome = step(after, event)
            try:
                told = recorded.happen(event)
            except Exception:  # the fault made it crash, which no record can tell
                return None
            if encode_told(told) != encode_told(what_was_told(event, after, outcome)):
                return number
        return None

    return judge
