"""A scheduler under test beside the machine of this package, event by event, until they part.

What comes of an event is written as a record of a trace and compared as `kvsched-fp check` compares it.
"""

import traceback
from collections.abc import Iterable
from pathlib import Path

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import TraceError
from kvsched_fp.events import Event
from kvsched_fp.machine import step
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.testing.adapter import Adapter, AdapterError
from kvsched_fp.testing.parting import Parting
from kvsched_fp.testing.views import first_in_view
from kvsched_fp.trace.codec import Told, what_was_told, write_record, write_told
from kvsched_fp.trace.reader import TraceRecord
from kvsched_fp.trace.replay import Comparer, Replayed
from kvsched_fp.workloads.lines import Line

_PATH = Path("trace")
"""What the trace is called that is compared while it is made."""


class Duel:
    """One run, which `start` begins."""

    def __init__(self, adapter: Adapter, config: SchedulerConfig) -> None:
        self.state: SchedulerState = initial_state(config)
        self.played: list[Replayed] = []
        """What happened so far; `record` is what the scheduler under test said."""
        self._adapter = adapter
        self._comparer = Comparer(config.block_hasher)

    def start(self) -> Parting | None:
        """Start the scheduler under test; tell what it raised, if it did."""
        try:
            self._adapter.start(self.state.config)
        except Exception as error:  # whatever it raises, it should not have
            return Parting(self.state.config, (), _name(error), _place(error))
        return None

    def play(self, event: Event) -> Parting | None:
        """Let both do `event`; tell where they part, if they do.

        Raises `InvalidEvent` for an event that makes no sense here; then nothing has happened.
        """
        before = self.state
        self.state, outcome = step(before, event)
        ours = what_was_told(event, self.state, outcome)
        failure = difference = view = raised_at = None
        told = ours
        try:
            told = self._adapter.happen(event)
            view = self._adapter.view()
        except Exception as error:  # whatever it raises, it should not have
            failure, raised_at = _name(error), _place(error)
        number = len(self.played) + 1
        replayed = Replayed(number, _record(event, told, number), before, self.state, outcome, None)
        if failure is None:
            difference = self._comparer.compare(replayed.record, self.state, outcome)
        is_in_view = difference is None and view is not None
        if is_in_view:
            difference = first_in_view(view or {}, self.state)
        self.played.append(attrs.evolve(replayed, difference=difference))
        if difference is None and failure is None:
            return None
        return Parting(self.state.config, tuple(self.played), failure, raised_at, is_in_view)

    def stop(self) -> Parting | None:
        """End the run; tell what the scheduler under test raised, if it did."""
        try:
            self._adapter.stop()
        except Exception as error:  # as above
            failure = f"{_name(error)} (when it was stopped)"
            return Parting(self.state.config, tuple(self.played), failure, _place(error))
        return None


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _place(error: Exception) -> str | None:
    """Say where an error was raised; an `AdapterError` says all that there is to say."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AdapterError) or not frames:
        return None
    return f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"


def _record(event: Event, told: Told, number: int) -> TraceRecord:
    line = Line(_PATH, number + 1, write_record(event, told), TraceError)
    return TraceRecord(line, event, f"{write_told(told)}}}")


def play(adapter: Adapter, config: SchedulerConfig, events: Iterable[Event]) -> Parting | None:
    """Let both do all events, up to where they part. Raises as `Duel.play` does."""
    duel = Duel(adapter, config)
    if (parting := duel.start()) is not None:
        return parting
    try:
        for event in events:
            parting = duel.play(event)
            if parting is not None:
                break
    finally:
        stopping = duel.stop()
    return parting or stopping
