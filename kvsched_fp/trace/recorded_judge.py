"""Judging smaller histories when only a recorded trace is there.

What the other scheduler would have done with other events is not known. So this is assumed, and it can be
wrong: up to the event that differs it does what this package does, as it did in the whole trace; at that
event, the fields that differ are as recorded, less the rows of the requests that were left out, and the
other fields are again as this package has them.

A candidate counts only if, under that assumption, its last event differs first in the same field, with the
same value on either side. So the rest of that field, such as the other rows of the batch, must agree.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import KvschedError
from kvsched_fp.events import Event, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.machine import Outcome, step
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import CachedRequestData, ClientOutputs, Emitted, SchedulerOutput
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.codec import Told, decode_told, encode_told, what_was_told
from kvsched_fp.trace.difference import Difference, first_difference
from kvsched_fp.trace.replay import Replayed

_PLACE = re.compile(r"\[\d+\]")


class RecordedJudge:
    """Judges histories by the one record of a trace that differs."""

    def __init__(self, config: SchedulerConfig, replayed: Replayed) -> None:
        assert replayed.difference is not None
        self._config = config
        self._event = replayed.event
        self._recorded = replayed.record.told()
        self._looked_for = _key_of(replayed.difference)
        ours = _read_back(what_was_told(replayed.event, replayed.after, replayed.outcome), replayed.event)
        self._fields = differing_fields(self._recorded, ours)

    def __call__(self, events: Sequence[Event]) -> int | None:
        """Tell how many events it takes to the difference; all of them, or None."""
        if not events or type(events[-1]) is not type(self._event):
            return None
        try:
            before, after, outcome = _play(self._config, events)
        except KvschedError:
            return None
        ours = _read_back(what_was_told(events[-1], after, outcome), events[-1])
        difference = first_difference(self.assume(before, events[-1], ours), ours, _root(ours))
        if difference is None or _key_of(difference) != self._looked_for:
            return None
        return len(events)

    def assume(self, before: SchedulerState, event: Event, ours: Told) -> Told:
        """Give the outcome that the other scheduler is assumed to have, where we have `ours`."""
        recorded = self._recorded
        if isinstance(recorded, SchedulerOutput) and isinstance(ours, SchedulerOutput):
            known = {*before.requests, *before.finished_request_ids, *before.preempted_request_ids}
            return _transplant_output(_keep_rows(recorded, known), ours, self._fields)
        if isinstance(recorded, Emitted) and isinstance(ours, Emitted):
            assert isinstance(event, Update)
            kept = _keep_outputs(recorded, before.in_flight[0].num_scheduled_tokens)
            return _transplant_emitted(kept, ours, self._fields)
        return recorded


def tell_smaller_trace(
    config: SchedulerConfig, events: Sequence[Event], judge: RecordedJudge
) -> list[tuple[Event, Told]]:
    """Give what came of every event: of the last as assumed, of the others as this package has it."""
    after = initial_state(config)
    records: list[tuple[Event, Told]] = []
    for event in events:
        before = after
        after, outcome = step(before, event)
        told = what_was_told(event, after, outcome)
        records.append((event, told))
    records[-1] = (event, judge.assume(before, event, _read_back(told, event)))
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


def differing_fields(recorded: Told, ours: Told) -> tuple[str, ...]:
    """Name the fields of an outcome that differ: columns and fields of clients each for itself."""
    if isinstance(recorded, SchedulerOutput) and isinstance(ours, SchedulerOutput):
        cached = recorded.scheduled_cached_requests, ours.scheduled_cached_requests
        columns = [f"{_COLUMNS}{name}" for name in _fields_that_differ(*cached)]
        return (*(name for name in _fields_that_differ(recorded, ours) if f"{name}." != _COLUMNS), *columns)
    if isinstance(recorded, Emitted) and isinstance(ours, Emitted):
        if list(recorded.clients) != list(ours.clients):
            return tuple(_fields_that_differ(recorded, ours))
        pairs = zip(recorded.clients.values(), ours.clients.values(), strict=True)
        in_clients = dict.fromkeys(name for pair in pairs for name in _fields_that_differ(*pair))
        return (*(["kv_events"] if recorded.kv_events != ours.kv_events else []), *in_clients)
    return ()


_COLUMNS = "scheduled_cached_requests."


def _fields_that_differ(recorded: Any, ours: Any) -> list[str]:
    names = (field.name for field in attrs.fields(type(recorded)))
    return [name for name in names if getattr(recorded, name) != getattr(ours, name)]


def _transplant_output(
    recorded: SchedulerOutput, ours: SchedulerOutput, fields: Collection[str]
) -> SchedulerOutput:
    whole: dict[str, Any] = {name: getattr(recorded, name) for name in fields if "." not in name}
    columns: dict[str, Any] = {
        name.removeprefix(_COLUMNS): getattr(
            recorded.scheduled_cached_requests, name.removeprefix(_COLUMNS)
        )
        for name in fields
        if "." in name
    }
    cached = attrs.evolve(ours.scheduled_cached_requests, **columns)
    return attrs.evolve(ours, scheduled_cached_requests=cached, **whole)


def _transplant_emitted(recorded: Emitted, ours: Emitted, fields: Collection[str]) -> Emitted:
    whole = {name: getattr(recorded, name) for name in ("clients", "kv_events") if name in fields}
    if "clients" not in fields:
        whole["clients"] = OrderedMap.adopt(
            {
                client: attrs.evolve(told, **_given(recorded.clients.get(client), fields))
                for client, told in ours.clients.items()
            }
        )
    return attrs.evolve(ours, **whole)


def _given(told: ClientOutputs | None, fields: Collection[str]) -> dict[str, Any]:
    return {} if told is None else {name: getattr(told, name) for name in fields if name != "kv_events"}


def _keep_rows(output: SchedulerOutput, known: Collection[RequestId]) -> SchedulerOutput:
    cached = output.scheduled_cached_requests
    rows = [index for index, request_id in enumerate(cached.request_ids) if request_id in known]
    batch = OrderedMap.adopt({name: n for name, n in output.num_scheduled_tokens.items() if name in known})
    return attrs.evolve(
        output,
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
