"""What happened to a shadow, kept on disk as it goes, so that a trace can be written once it is needed.

A trace with all outputs costs as much as the scheduling itself. Events alone are cheap; what came of them
is computed again when there is something to report.
"""

import itertools
import marshal
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvsched_fp.adapters.vllm.trace_file import installed_sources, traceable
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import Event, Schedule, StepResult, Update, UpdateDrafts
from kvsched_fp.ids import StepId
from kvsched_fp.machine import step
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.state import initial_state
from kvsched_fp.trace.codec import Told
from kvsched_fp.trace.writer import open_trace

_numbers = itertools.count(1)

_MARSHAL_VERSION = 2
"""Later versions look every object up, to write it once; an event has no object twice."""


class History:
    """All events so far, in a temporary file."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.number = next(_numbers)
        """The how many-th history of this process."""
        self.num_events = 0
        self.is_complete = True
        """Whether the events are all that happened; an assignment from outside is not one."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the history

    def append(self, event: Event) -> None:
        """Keep an event."""
        marshal.dump(_pack(event), self._file, _MARSHAL_VERSION)
        self.num_events += 1

    def events(self) -> Iterator[Event]:
        """Go through the events."""
        self._file.seek(0)
        for _ in range(self.num_events):
            yield _unpack(marshal.load(self._file))
        self._file.seek(0, 2)

    def write_trace(self, path: Path, last: Told) -> None:
        """Write a trace, in which `last` is what came of the last event."""
        state = initial_state(self.config)
        with open_trace(path, traceable(self.config), installed_sources()) as writer:
            for number, event in enumerate(self.events(), start=1):
                if number == self.num_events:
                    writer.write_told(event, last)
                else:
                    state, outcome = step(state, event)
                    writer.write(event, state, outcome)

    def close(self) -> None:
        """Forget everything."""
        self._file.close()


def _pack(event: Event) -> Any:
    """Pack an event; nearly all are steps, results and drafts, which are plain."""
    if isinstance(event, Schedule):
        return (event.throttle_prefills, event.time)
    if isinstance(event, Update):
        result = event.result
        return (result.step_id, result.sampled_token_ids.thaw(), result.pooled_request_ids, event.time)
    if isinstance(event, UpdateDrafts):
        return event.draft_token_ids.thaw()
    return pickle.dumps(event)


def _unpack(packed: Any) -> Event:
    match packed:
        case (throttle_prefills, time):
            return Schedule(throttle_prefills, time)
        case (step_id, sampled, pooled, time):
            result = StepResult(
                step_id=StepId(step_id),
                sampled_token_ids=OrderedMap.adopt(sampled),
                pooled_request_ids=pooled,
            )
            return Update(result, time)
        case dict():
            return UpdateDrafts(OrderedMap.adopt(packed))
    event: Event = pickle.loads(packed)
    return event
