"""Which smaller histories there are: events left out, steps merged, requests sooner.

Everything here gives candidates, as in `simpler.py`: one may be no smaller, or its events may not fit each
other.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import AddRequest, Event, Schedule, StepResult, Update
from kvsched_fp.ids import StepId
from kvsched_fp.machine import step
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.simpler import Rows

MAX_STEPS_TO_CATCH_UP = 2
"""Steps that a late start may take to get its requests to where they were."""


def units_of(events: Sequence[Event]) -> list[tuple[int, ...]]:
    """List what can be left out, the latest first: the indices of a step's two events, or of any other."""
    updates = {
        event.result.step_id: index for index, event in enumerate(events) if isinstance(event, Update)
    }
    units: list[tuple[int, ...]] = []
    num_steps = StepId(0)
    for index, event in enumerate(events):
        if isinstance(event, Schedule):
            num_steps = StepId(num_steps + 1)
            units.append((index, updates[num_steps]) if num_steps in updates else (index,))
        elif not isinstance(event, Update):
            units.append((index,))
    return units[::-1]


def without(events: Sequence[Event], indices: Iterable[int]) -> list[Event]:
    """Leave out the events at these indices."""
    gone = set(indices)
    return [event for index, event in enumerate(events) if index not in gone]


def with_less_together(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Leave out two units that only go together; or of a step one event, so that it stays in flight."""
    for index, event in enumerate(events):
        if isinstance(event, Update | Schedule):
            yield without(events, (index,))
    for first, second in combinations(units_of(events), 2):
        yield without(events, (*first, *second))


# Beginning later.


def with_late_start(config: SchedulerConfig, events: Sequence[Event]) -> Iterator[list[Event]]:
    """Leave out what comes before a step, the latest first; add what was live by then, with all its tokens.

    What took many steps before may then be computed in few.
    """
    states = [initial_state(config)]
    for event in events:
        states.append(step(states[-1], event)[0])
    for index in range(len(events) - 1, -1, -1):
        if not isinstance(events[index], Schedule):
            continue
        before = states[index]
        adds = [AddRequest(request) for request in _live_requests(before)]
        rest = [event for event in events[index:] if not _answers(event, before.current_step)]
        for num_steps in range(MAX_STEPS_TO_CATCH_UP + 1):
            yield [*adds, *[Schedule()] * num_steps, *rest]


def _live_requests(state: SchedulerState) -> Iterator[Request]:
    """Give the live requests, those that run first, with all their known tokens as prompts."""
    for request_id in (*state.running, *state.kv_holding_waiting, *state.waiting):
        request, output = state.requests[request_id], state.progress[request_id].output_token_ids
        params = request.sampling_params
        left = max(params.max_tokens - len(output), 1)
        yield attrs.evolve(
            request,
            prompt_token_ids=(*request.prompt_token_ids, *output),
            sampling_params=attrs.evolve(params, max_tokens=left, min_tokens=min(params.min_tokens, left)),
        )


def _answers(event: Event, last_step: int) -> bool:
    """Tell whether an event is the result of a step up to `last_step`."""
    return isinstance(event, Update) and event.result.step_id <= last_step


# Merging steps.


def with_merged_steps(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Leave out a step, and let what it sampled come with a step before it, or with the prompts."""
    updates = {index: event for index, event in enumerate(events) if isinstance(event, Update)}
    for unit in units_of(events):
        if unit[-1] not in updates:
            continue
        sampled = updates[unit[-1]].result.sampled_token_ids
        for index, update in updates.items():
            if index < unit[-1]:
                merged = _with_more_sampled(update, sampled)
                yield without([*events[:index], merged, *events[index + 1 :]], unit)
        yield without([_with_longer_prompt(event, sampled) for event in events], unit)


def _with_more_sampled(update: Update, sampled: Rows) -> Update:
    rows = dict(update.result.sampled_token_ids)
    for request_id, token_ids in sampled.items():
        rows[request_id] = (*rows.get(request_id, ()), *token_ids)
    return Update(StepResult(step_id=update.result.step_id, sampled_token_ids=rows))


def _with_longer_prompt(event: Event, sampled: Rows) -> Event:
    if not isinstance(event, AddRequest) or event.request.request_id not in sampled:
        return event
    prompt = (*event.request.prompt_token_ids, *sampled[event.request.request_id])
    return AddRequest(attrs.evolve(event.request, prompt_token_ids=prompt))


# Other requests.


def with_earlier_requests(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Let a request come first of all, or one event sooner."""
    for index, event in enumerate(events):
        if isinstance(event, AddRequest):
            rest = without(events, (index,))
            for earlier in dict.fromkeys((0, index - 1)):
                if 0 <= earlier < index:
                    yield [*rest[:earlier], event, *rest[earlier:]]


def with_shorter_prompts(events: Sequence[Event], num_fewer: int) -> list[Event]:
    """Let every prompt that is longer than that lose so many tokens."""
    return [
        AddRequest(attrs.evolve(event.request, prompt_token_ids=event.request.prompt_token_ids[num_fewer:]))
        if isinstance(event, AddRequest) and len(event.request.prompt_token_ids) > num_fewer
        else event
        for event in events
    ]
