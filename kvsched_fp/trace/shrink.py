"""Making a history that differs small, so that a person can read it.

Rules
-----
A *judge* is asked of a smaller history whether it still differs. Replay is pure, so every candidate is
simply played again. What is tried is in `smaller.py` and `simpler.py`: requests, steps (a `Schedule` with
its `Update`) and other events are left out, in ever smaller portions, then two at a time; the history
begins later; steps are merged; requests, results and other events get shorter and simpler. Where the judge
can be asked about another configuration, that gets simpler too. Everything behind the first difference goes
at once.

A candidate is taken if it still differs and is smaller by `measure()`: fewer events before anything else.
So this comes to an end, and then no candidate is left that could be taken.

A candidate is *repaired* before it is judged: steps are numbered again, and ids that are no longer live and
rows that are no longer in the batch are taken out of the events that name them.

- A *live* judge runs the other scheduler on the candidate, so everything is known.
- A file has no scheduler behind it: `recorded_judge.py` says what it can know.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import (
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.machine import step
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.simpler import Rows, Size, measure, simpler_configs, simpler_events, with_fewer_blocks
from kvsched_fp.trace.smaller import (
    units_of,
    with_earlier_requests,
    with_late_start,
    with_less_together,
    with_merged_steps,
    with_shorter_prompts,
    without,
)

Judge: TypeAlias = Callable[[Sequence[Event]], int | None]
"""Says how many events it takes to the first that differs, that one included; None if none does."""

DEFAULT_MAX_TRIES = 3000
"""Candidates that are played before what was found is good enough."""


@attrs.frozen
class Shrunk:
    """A smaller history that still differs, at its last event."""

    config: SchedulerConfig
    """The configuration that it differs under."""
    events: tuple[Event, ...]
    """The history."""
    num_tries: int
    """Candidates that were played."""
    is_minimal: bool
    """Whether no candidate was left; False if the tries ran out."""


def shrink(
    config: SchedulerConfig,
    events: Sequence[Event],
    judge: Judge,
    *,
    judge_of: Callable[[SchedulerConfig], Judge] | None = None,
    make_fit: Callable[[], "Fit"] | None = None,
    max_tries: int = DEFAULT_MAX_TRIES,
    tell: Callable[[int, int], object] | None = None,
) -> Shrunk | None:
    """Shrink a history; None if the judge finds no difference in it.

    `judge_of` makes the judge of another configuration; without it the configuration stays as it is.
    `make_fit` makes what repairs the events of one candidate, in place of `fit`.
    `tell` is given the number of candidates played and of events left, after each.
    """
    num_events = judge(events)
    if num_events is None:
        return None
    shrinker = _Shrinker(config, tuple(events[:num_events]), judge, judge_of, max_tries, tell)
    if make_fit is not None:
        shrinker.make_fit = make_fit
    is_minimal = False
    try:
        while shrinker.shrink_once():
            pass
        is_minimal = True
    except _OutOfTriesError:
        pass
    return Shrunk(shrinker.config, shrinker.events, shrinker.num_tries, is_minimal)


class _OutOfTriesError(Exception):
    """The candidates that were allowed are used up."""


class _Shrinker:
    """The smallest history so far."""

    def __init__(
        self,
        config: SchedulerConfig,
        events: tuple[Event, ...],
        judge: Judge,
        judge_of: Callable[[SchedulerConfig], Judge] | None,
        max_tries: int,
        tell: Callable[[int, int], object] | None,
    ) -> None:
        self.config = config
        self.events = events
        self.num_tries = 0
        self._judge = judge
        self._judge_of = judge_of
        self._max_tries = max_tries
        self._tell = tell
        self.make_fit: Callable[[], Fit] = lambda: fit

    def shrink_once(self) -> bool:
        """Go once through what can be tried; tell whether anything got smaller."""
        size = self._size()
        self._drop_units()
        self._take_one(with_late_start(self.config, self.events))
        self._simplify_config()
        self._simplify_events()
        if self._size() == size:
            # These are many, so they wait until nothing else helps.
            self._take_one(with_less_together(self.events))
            self._take_one(with_merged_steps(self.events))
            self._take_one(with_earlier_requests(self.events))
            self._drop_under_another_config()
        return self._size() < size

    def _size(self) -> Size:
        return measure(self.config, self.events)

    def _drop_units(self) -> None:
        """Leave out what can go, in portions of a half, a quarter, and so on."""
        size = max(len(units_of(self.events)) // 2, 1)
        while size:
            at = 0
            while at < len(units := units_of(self.events)):
                gone = [index for unit in units[at : at + size] for index in unit]
                if not self._try(without(self.events, gone)):
                    at += size
            size //= 2

    def _take_one(self, candidates: Iterable[Sequence[Event]]) -> None:
        """Take the first candidate that will do."""
        any(self._try(candidate) for candidate in candidates)

    def _simplify_events(self) -> None:
        """Shorten and simplify what can be, event by event."""
        index = 0
        while index < len(self.events):
            for simpler in simpler_events(self.events[index]):
                if self._try([*self.events[:index], simpler, *self.events[index + 1 :]]):
                    break
            else:
                index += 1

    def _simplify_config(self) -> None:
        """Take simpler configurations until none will do; a smaller model may need shorter prompts."""
        while self._judge_of is not None:
            for simpler in simpler_configs(self.config):
                judge = self._judge_of(simpler)
                num_fewer = max(self.config.max_model_len - simpler.max_model_len, 0)
                shorter = with_shorter_prompts(self.events, num_fewer)
                if self._try(self.events, simpler, judge) or (
                    num_fewer and self._try(shorter, simpler, judge)
                ):
                    break
            else:
                return

    def _drop_under_another_config(self) -> None:
        """Leave out what can go under a simpler configuration: a step, where another can do more."""
        if self._judge_of is None:
            return
        for simpler in simpler_configs(self.config):
            judge = self._judge_of(simpler)
            if any(self._try(without(self.events, unit), simpler, judge) for unit in units_of(self.events)):
                return

    def _try(
        self, candidate: Sequence[Event], config: SchedulerConfig | None = None, judge: Judge | None = None
    ) -> bool:
        """Take a candidate over if it is smaller and still differs, perhaps with a smaller pool."""
        config, judge = config or self.config, judge or self._judge
        repaired = repair(config, candidate, self.make_fit())
        if repaired is None:
            return False
        return self._ask(config, repaired, judge) or self._ask_with_smaller_pool(config, repaired)

    def _ask_with_smaller_pool(self, config: SchedulerConfig, events: tuple[Event, ...]) -> bool:
        """Let the pool be as full at the end as it was: fewer events need fewer blocks."""
        if self._judge_of is None:
            return False
        num_spare = _num_free_at_end(config, events) - _num_free_at_end(self.config, self.events)
        if num_spare <= 0:
            return False
        for smaller in with_fewer_blocks(config, num_spare):
            repaired = repair(smaller, events, self.make_fit())
            if repaired is not None and self._ask(smaller, repaired, self._judge_of(smaller)):
                return True
        return False

    def _ask(self, config: SchedulerConfig, events: tuple[Event, ...], judge: Judge) -> bool:
        """Take a history over if it is smaller and still differs."""
        if measure(config, events) >= self._size():
            return False
        if self.num_tries >= self._max_tries:
            raise _OutOfTriesError
        self.num_tries += 1
        num_events = judge(events)
        if num_events is not None:
            self.config, self._judge, self.events = config, judge, events[:num_events]
        if self._tell is not None:
            self._tell(self.num_tries, len(self.events))
        return num_events is not None


def _num_free_at_end(config: SchedulerConfig, events: Sequence[Event]) -> int:
    """Count the free blocks that the last event meets."""
    state = initial_state(config)
    for event in events[:-1]:
        state, _ = step(state, event)
    return state.kv.pool.num_free_blocks


Fit: TypeAlias = Callable[[SchedulerState, Event], Event | None]
"""Gives an event as it makes sense in a state; None if there is nothing left of it."""


def repair(
    config: SchedulerConfig, events: Sequence[Event], fit_event: Fit | None = None
) -> tuple[Event, ...] | None:
    """Make the events fit each other again; None if they cannot."""
    state = initial_state(config)
    repaired: list[Event] = []
    for event in events:
        fitting = (fit_event or fit)(state, event)
        if fitting is None:
            continue
        try:
            state, _ = step(state, fitting)
        except InvalidInputError:
            return None
        repaired.append(fitting)
    return tuple(repaired)


def fit(state: SchedulerState, event: Event) -> Event | None:
    """Give the event as it makes sense in `state`; None if there is nothing left of it."""
    match event:
        case Update():
            return _fit_update(state, event)
        case FinishRequests(request_ids) if request_ids is not None:
            live = tuple(request_id for request_id in request_ids if request_id in state.requests)
            return attrs.evolve(event, request_ids=live) if live else None
        case UpdateDrafts(draft_token_ids):
            drafts = _rows_of(draft_token_ids, state.requests)
            return UpdateDrafts(drafts) if drafts else None
        case UpdateDraftsInFlight(step_id, draft_token_ids):
            drafts = _rows_of(draft_token_ids, state.requests)
            is_in_flight = any(output.step_id == step_id for output in state.in_flight)
            return UpdateDraftsInFlight(step_id, drafts) if drafts and is_in_flight else None
        case GrammarReady(request_id) | GrammarFailed(request_id):
            return event if request_id in state.requests else None
    return event


def _fit_update(state: SchedulerState, event: Update) -> Update | None:
    if not state.in_flight:
        return None
    output, result = state.in_flight[0], event.result
    batch = output.num_scheduled_tokens
    return attrs.evolve(
        event,
        result=StepResult(
            step_id=output.step_id,
            sampled_token_ids=_rows_of(result.sampled_token_ids, batch),
            pooled_request_ids=[name for name in result.pooled_request_ids if name in batch],
        ),
    )


def _rows_of(rows: Mapping[RequestId, tuple[int, ...]], known: Container[RequestId]) -> Rows:
    return {request_id: token_ids for request_id, token_ids in rows.items() if request_id in known}
