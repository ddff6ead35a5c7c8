"""Replaying a trace through the state machine, and comparing what comes of every event.

The time is linear in the length of the trace, and one state and one line are held at a time. What the
machine did is written as a trace would have it and compared with the text of the line; only where that
differs are the values of both sides looked at.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kvsched_fp.errors import InvalidEvent, OracleBug
from kvsched_fp.events import Event, Update
from kvsched_fp.machine import Outcome, step
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.block_names import BlockNames, OpaqueBlockHasher
from kvsched_fp.trace.codec import decode_told, encode_told, told_key, what_was_told, write_told
from kvsched_fp.trace.difference import Difference, first_difference
from kvsched_fp.trace.reader import TraceReader, TraceRecord


@attrs.frozen
class Replayed:
    """One event of a trace, replayed."""

    number: int
    """The how many-th event of the trace, from 1."""
    record: TraceRecord
    """What the trace has."""
    before: SchedulerState
    """The state that the event met."""
    after: SchedulerState
    """The state that it made."""
    outcome: Outcome
    """What came of it besides the state."""
    difference: Difference | None
    """Where the trace has something else, or None."""

    @property
    def event(self) -> Event:
        """What happened."""
        return self.record.event

    def when(self) -> str:
        """Say where in the trace the event stands."""
        return f"line {self.record.line.number}"


def replay(reader: TraceReader) -> Iterator[Replayed]:
    """Replay a trace, giving every event right after it happened, up to the first that differs.

    Raises `TraceError` for a line that cannot be read, or whose event makes no sense where it stands.
    """
    state = initial_state(reader.header.config)
    comparer = Comparer(reader.header.config.block_hasher)
    for number, record in enumerate(reader.records(), start=1):
        before = state
        state, outcome = apply_record(before, record)
        difference = comparer.compare(record, state, outcome)
        yield Replayed(number, record, before, state, outcome, difference)
        if difference is not None:
            return


def apply_record(state: SchedulerState, record: TraceRecord) -> tuple[SchedulerState, Outcome]:
    """Let the event of `record` happen. Raises `TraceError` if it makes no sense in `state`."""
    try:
        return step(state, record.event)
    except InvalidEvent as error:
        raise record.error(error, "event: ") from None
    except OracleBug as error:
        where = f"{record.line.path}:{record.line.number}"
        raise OracleBug(f"{where}: {error}") from error


class Comparer:
    """Compares what the machine did with what a trace has, event by event."""

    def __init__(self, block_hasher: object) -> None:
        self._names = BlockNames() if isinstance(block_hasher, OpaqueBlockHasher) else None

    def compare(self, record: TraceRecord, after: SchedulerState, outcome: Outcome) -> Difference | None:
        """Give the first difference. Raises `TraceError` for an outcome that cannot be read."""
        event = record.event
        told = what_was_told(event, after, outcome)
        if record.ends_with(write_told(told)):
            return None
        recorded = record.told()
        key = told_key(event)
        if key is None:
            return None
        ours, encoded = encode_told(told), encode_told(recorded)
        if self._names is not None and isinstance(event, Update):
            self._names.translate(ours[key], encoded[key])
        if encoded == ours:
            return None
        return first_difference(recorded, _read_back(ours, event), key)


def _read_back(encoded: dict[str, Any], event: Event) -> Any:
    """Give an outcome as it is read from a trace: with sets in order."""
    return decode_told({"event": None, **encoded}, event)


def count_decisions(outcome: Outcome) -> int:
    """Count what a step decided: the rows of its batch, and the requests preempted before it."""
    if not isinstance(outcome, SchedulerOutput):
        return 0
    return len(outcome.num_scheduled_tokens) + len(outcome.preempted_request_ids)
