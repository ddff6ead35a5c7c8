"""Judging smaller histories when only a recorded trace is there.

What the other scheduler would have done with other events is not known. So this is assumed, and it can be
wrong: up to the event that differs, it does what this package does, as it did in the whole trace; and at
that event it does what was recorded, less the rows of the requests that were left out.

A candidate counts only if, under that assumption, the first difference of its last event is in the same
field, with the same value on either side.
"""

import re
from collections.abc import Collection, Sequence

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import KvschedError
from kvsched_fp.events import Event, Update
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.machine import Outcome, step
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import CachedRequestData, Emitted, SchedulerOutput
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.codec import Told, decode_told, encode_told, what_was_told
from kvsched_fp.trace.difference import Difference, first_difference

_PLACE = re.compile(r"\[\d+\]")


class RecordedJudge:
    """Judges histories by the one record of a trace that differs."""

    def __init__(
        self, config: SchedulerConfig, event: Event, recorded: Told, difference: Difference
    ) -> None:
        self._config = config
        self._event = event
        self._recorded = recorded
        self._looked_for = _key_of(difference)

    def __call__(self, events: Sequence[Event]) -> int | None:
        """Tell how many events it takes to the difference; all of them, or None."""
        if not events or type(events[-1]) is not type(self._event):
            return None
        try:
            before, after, outcome = _play(self._config, events)
        except KvschedError:
            return None
        ours = _read_back(what_was_told(events[-1], after, outcome), events[-1])
        recorded = self.recorded_for(before, events[-1])
        difference = first_difference(recorded, ours, _root(ours))
        if difference is None or _key_of(difference) != self._looked_for:
            return None
        return len(events)

    def recorded_for(self, before: SchedulerState, event: Event) -> Told:
        """Give the record that differs as it is in a smaller history, whose last event meets `before`."""
        recorded = self._recorded
        if isinstance(recorded, SchedulerOutput):
            known = {*before.requests, *before.finished_request_ids, *before.preempted_request_ids}
            return _keep_rows(recorded, known, StepId(before.current_step + 1))
        if isinstance(recorded, Emitted) and isinstance(event, Update):
            return _keep_outputs(recorded, before.in_flight[0].num_scheduled_tokens)
        return recorded


def tell_smaller_trace(
    config: SchedulerConfig, events: Sequence[Event], judge: RecordedJudge
) -> list[tuple[Event, Told]]:
    """Give what came of every event: of the last as recorded, of the others as this package has it."""
    state = initial_state(config)
    records: list[tuple[Event, Told]] = []
    for event in events[:-1]:
        state, outcome = step(state, event)
        records.append((event, what_was_told(event, state, outcome)))
    records.append((events[-1], judge.recorded_for(state, events[-1])))
    return records


def _play(
    config: SchedulerConfig, events: Sequence[Event]
) -> tuple[SchedulerState, SchedulerState, Outcome]:
    """Play all events; give the states before and after the last, and its outcome."""
    before = after = initial_state(config)
    outcome: Outcome = None
    for event in events:
        before = after
        after, outcome = step(before, event)
    return before, after, outcome


def _key_of(difference: Difference) -> tuple[str, object, object]:
    """Say what differs, wherever the row stands."""
    return _PLACE.sub("[]", difference.path), difference.recorded, difference.ours


def _root(told: Told) -> str:
    return next(iter(encode_told(told)), "")


def _read_back(told: Told, event: Event) -> Told:
    """Give an outcome as it is read from a trace: with sets in order."""
    return decode_told({"event": None, **encode_told(told)}, event)


def _keep_rows(output: SchedulerOutput, known: Collection[RequestId], step_id: StepId) -> SchedulerOutput:
    cached = output.scheduled_cached_requests
    rows = [index for index, request_id in enumerate(cached.request_ids) if request_id in known]
    batch = OrderedMap.adopt({name: n for name, n in output.num_scheduled_tokens.items() if name in known})
    return attrs.evolve(
        output,
        step_id=step_id,
        scheduled_new_requests=tuple(
            new for new in output.scheduled_new_requests if new.request_id in known
        ),
        scheduled_cached_requests=CachedRequestData(
            request_ids=tuple(cached.request_ids[row] for row in rows),
            resumed_request_ids=tuple(name for name in cached.resumed_request_ids if name in known),
            all_token_ids=OrderedMap.adopt({k: v for k, v in cached.all_token_ids.items() if k in known}),
            new_block_ids=tuple(cached.new_block_ids[row] for row in rows),
            num_computed_tokens=tuple(cached.num_computed_tokens[row] for row in rows),
            num_output_tokens=tuple(cached.num_output_tokens[row] for row in rows),
        ),
        num_scheduled_tokens=batch,
        total_num_scheduled_tokens=output.total_num_scheduled_tokens
        - sum(output.num_scheduled_tokens.values())
        + sum(batch.values()),
        preempted_request_ids=tuple(name for name in output.preempted_request_ids if name in known),
        finished_request_ids=tuple(name for name in output.finished_request_ids if name in known),
    )


def _keep_outputs(emitted: Emitted, batch: Collection[RequestId]) -> Emitted:
    clients = {
        client: attrs.evolve(told, outputs=tuple(one for one in told.outputs if one.request_id in batch))
        for client, told in emitted.clients.items()
    }
    return attrs.evolve(emitted, clients=OrderedMap.adopt(clients))
