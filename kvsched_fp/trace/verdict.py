"""Checking one trace from beginning to end."""

from collections import deque
from collections.abc import Callable

import attrs

from kvsched_fp.events import Event
from kvsched_fp.machine import Outcome
from kvsched_fp.trace.divergence import NUM_LAST_EVENTS, Divergence, describe, make_divergence
from kvsched_fp.trace.reader import TraceReader
from kvsched_fp.trace.replay import Replayed, count_decisions, replay


@attrs.frozen
class Verdict:
    """What came of checking a trace."""

    num_events: int
    """Events that were compared and equal."""
    num_decisions: int
    """Rows of batches, and preemptions, among them."""
    divergence: Divergence | None
    """The first difference, or None."""


def check_trace(reader: TraceReader, observe: Callable[[Replayed], object] | None = None) -> Verdict:
    """Replay a trace and compare it, up to the first difference.

    `observe` is told of every event that was equal. Raises `TraceError`, and what `observe` raises.
    """
    num_events = num_decisions = 0
    last: deque[tuple[int, Event, Outcome]] = deque(maxlen=NUM_LAST_EVENTS)
    for replayed in replay(reader):
        last.append((replayed.number, replayed.event, replayed.outcome))
        if replayed.difference is not None:
            texts = tuple(describe(*entry) for entry in last)
            return Verdict(num_events, num_decisions, make_divergence(replayed, texts))
        num_events += 1
        num_decisions += count_decisions(replayed.outcome)
        if observe is not None:
            observe(replayed)
    return Verdict(num_events, num_decisions, None)
