"""Making a history that differs small, so that a person can read it.

Rules
-----
A *judge* is asked of a smaller history whether it still differs. Replay is pure, so every candidate is
simply played again. Candidates are made by leaving out requests, steps (a `Schedule` with its `Update`) and
other events, in ever smaller portions, and by shortening prompts and outputs. Everything behind the first
difference goes at once. What is left has no single part that could go.

A candidate is *repaired* before it is judged: steps are numbered again, and ids that are no longer live and
rows that are no longer in the batch are taken out of the events that name them.

- A *live* judge runs the other scheduler on the candidate, so everything is known.
- A file has no scheduler behind it: `recorded_judge.py` says what it can know.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import AddRequest, Event, FinishRequests, Schedule, StepResult, Update
from kvsched_fp.ids import StepId
from kvsched_fp.machine import step
from kvsched_fp.state import SchedulerState, initial_state

Judge: TypeAlias = Callable[[Sequence[Event]], int | None]
"""Says how many events it takes to the first that differs, that one included; None if none does."""

DEFAULT_MAX_TRIES = 3000
"""Candidates that are played before what was found is good enough."""


@attrs.frozen
class Shrunk:
    """A smaller history that still differs, at its last event."""

    events: tuple[Event, ...]
    """The history."""
    num_tries: int
    """Candidates that were played."""
    is_minimal: bool
    """Whether no single part can go; False if the tries ran out."""


def shrink(
    config: SchedulerConfig,
    events: Sequence[Event],
    judge: Judge,
    *,
    max_tries: int = DEFAULT_MAX_TRIES,
    tell: Callable[[int, int], object] | None = None,
) -> Shrunk | None:
    """Shrink a history; None if the judge finds no difference in it.

    `tell` is given the number of candidates played and of events left, after each.
    """
    num_events = judge(events)
    if num_events is None:
        return None
    shrinker = _Shrinker(config, tuple(events[:num_events]), judge, max_tries, tell)
    is_minimal = False
    try:
        while shrinker.drop_units() | shrinker.shorten_requests():
            pass
        is_minimal = True
    except _OutOfTriesError:
        pass
    return Shrunk(shrinker.events, shrinker.num_tries, is_minimal)


class _OutOfTriesError(Exception):
    """The candidates that were allowed are used up."""


class _Shrinker:
    """The smallest history so far."""

    def __init__(
        self,
        config: SchedulerConfig,
        events: tuple[Event, ...],
        judge: Judge,
        max_tries: int,
        tell: Callable[[int, int], object] | None,
    ) -> None:
        self.events = events
        self.num_tries = 0
        self._config = config
        self._judge = judge
        self._max_tries = max_tries
        self._tell = tell

    def drop_units(self) -> bool:
        """Leave out what can go, in portions of a half, a quarter, and so on; tell whether any could."""
        dropped = False
        size = max(len(units_of(self.events)) // 2, 1)
        while True:
            at = 0
            while at < len(units := units_of(self.events)):
                gone = {index for unit in units[at : at + size] for index in unit}
                kept = [event for index, event in enumerate(self.events) if index not in gone]
                if self._try(kept):
                    dropped = True
                else:
                    at += size
            if size == 1:
                return dropped
            size //= 2

    def shorten_requests(self) -> bool:
        """Shorten prompts and outputs; tell whether any could be."""
        shortened = False
        for index in range(len(self.events)):
            while index < len(self.events) and self._shorten(index):
                shortened = True
        return shortened

    def _shorten(self, index: int) -> bool:
        event = self.events[index]
        if not isinstance(event, AddRequest):
            return False
        for smaller in _shorter(event):
            if self._try([*self.events[:index], smaller, *self.events[index + 1 :]]):
                return True
        return False

    def _try(self, candidate: Sequence[Event]) -> bool:
        """Take a candidate over if it still differs, and is smaller."""
        repaired = repair(self._config, candidate)
        if repaired is None or repaired == self.events:
            return False
        if self.num_tries >= self._max_tries:
            raise _OutOfTriesError
        self.num_tries += 1
        num_events = self._judge(repaired)
        if num_events is not None:
            self.events = repaired[:num_events]
        if self._tell is not None:
            self._tell(self.num_tries, len(self.events))
        return num_events is not None


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


def repair(config: SchedulerConfig, events: Sequence[Event]) -> tuple[Event, ...] | None:
    """Make the events fit each other again; None if they cannot."""
    state = initial_state(config)
    repaired: list[Event] = []
    for event in events:
        fitting = _fit(state, event)
        if fitting is None:
            continue
        try:
            state, _ = step(state, fitting)
        except InvalidInputError:
            return None
        repaired.append(fitting)
    return tuple(repaired)


def _fit(state: SchedulerState, event: Event) -> Event | None:
    """Give the event as it makes sense in `state`; None if there is nothing left of it."""
    if isinstance(event, Update):
        if not state.in_flight:
            return None
        output = state.in_flight[0]
        rows = {
            request_id: token_ids
            for request_id, token_ids in event.result.sampled_token_ids.items()
            if request_id in output.num_scheduled_tokens
        }
        return Update(StepResult(step_id=output.step_id, sampled_token_ids=rows))
    if isinstance(event, FinishRequests) and event.request_ids is not None:
        live = tuple(request_id for request_id in event.request_ids if request_id in state.requests)
        return FinishRequests(live, event.status) if live else None
    return event


def _shorter(event: AddRequest) -> Iterator[AddRequest]:
    """Give the request with a shorter prompt, or with less to sample."""
    request = event.request
    length = len(request.prompt_token_ids)
    for shorter in dict.fromkeys((length // 2, length - 1)):
        if shorter > 0:
            yield AddRequest(attrs.evolve(request, prompt_token_ids=request.prompt_token_ids[:shorter]))
    params = request.sampling_params
    for fewer in dict.fromkeys((params.max_tokens // 2, params.max_tokens - 1)):
        if fewer > 0 and fewer >= params.min_tokens:
            fewer_params = attrs.evolve(params, max_tokens=fewer)
            yield AddRequest(attrs.evolve(request, sampling_params=fewer_params))
