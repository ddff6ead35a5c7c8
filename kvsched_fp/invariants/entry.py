"""What an invariant is: an id, a sentence, a reason, and a predicate that gives evidence against it.

A predicate is a pure function that reads values. It gives None while the invariant holds, else a
sentence that names the ids and numbers which break it. It never calls the code that it checks: an
invariant that asks the allocator whether the allocator is right proves nothing.

Three scopes: a *state* invariant looks at one state; a *step* invariant looks at a `Step`, which is one
event with the states on both sides and what came of it; a *run* invariant looks at the steps of a run, one
after the other. Its predicate has a memory of its own, made where the run begins: it takes each step down
there, changes nothing else, and gives evidence like any other. What it remembers comes from events and from
what was told; so no state has to be right about what happened long ago.

Two costs: a *cheap* one is proportional to what the event touched (the rows of the batch, the events of
the prefix index), so it can be on in every run; a *full* one walks a whole state.
"""

import enum
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar

import attrs

from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import GroupTable
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.records import quick_constructor
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState

ALL_EVENTS: tuple[type[Event], ...] = (
    AddRequest,
    FinishRequests,
    Schedule,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    GrammarReady,
    GrammarFailed,
    SetPauseState,
    ResetPrefixCache,
)
"""The whole alphabet."""


class Scope(enum.Enum):
    """What an invariant is about."""

    STATE = "state"
    """One state."""
    STEP = "step"
    """One event, with the states before and after it."""
    RUN = "run"
    """All events since the run began."""


class Cost(enum.Enum):
    """What checking an invariant is proportional to."""

    CHEAP = "cheap"
    """What the event touched."""
    FULL = "full"
    """The whole state."""


Row: TypeAlias = tuple[RequestId, int, Any, Any, Any, tuple[GroupTable, ...]]
"""A row of a batch: id, tokens, the `Request`, its `Progress` before and after the event, and its tables
after it. What is not there (a late result for a request that has left) is None, or no tables."""


@attrs.frozen(weakref_slot=False)
class Step:
    """One event and what came of it."""

    before: SchedulerState
    """The state that the event was sent to."""
    event: Any
    """The event."""
    after: SchedulerState
    """The state that came of it."""
    outcome: Any
    """A `SchedulerOutput`, a bool or None, if the step is sound."""
    batch: SchedulerOutput | None = None
    """The step that was planned (`Schedule`) or came back (`Update`)."""
    rows: tuple[Row, ...] = ()
    """Its rows, in the order of the batch."""
    admitted: tuple[RequestId, ...] = ()
    """The rows of a planned step that did not run before."""
    victims: tuple[RequestId, ...] = ()
    """The requests that the planning of a step preempted, in that order."""
    went_on: tuple[RequestId, ...] = ()
    """The sessions that stopped by the step that came back and wait again, in the order of the batch."""
    gave_back: tuple[RequestId, ...] = ()
    """The sessions that had to give the blocks back with which they waited, in that order."""

    @property
    def output(self) -> SchedulerOutput:
        """The step that was planned or came back; for predicates on `Schedule` and `Update` only."""
        assert self.batch is not None
        return self.batch


_make_step = quick_constructor(Step)


def observe(before: SchedulerState, event: Event, after: SchedulerState, outcome: object) -> Step:
    """Put a step together. What several predicates need is looked up once."""
    batch: SchedulerOutput | None = None
    rows: tuple[Row, ...] = ()
    admitted: tuple[RequestId, ...] = ()
    victims, went_on, gave_back = admitted, admitted, admitted
    if isinstance(event, Update) and before.in_flight:
        batch = before.in_flight[0]
        rows = _rows(batch, before, before, after)
        went_on = tuple([row[0] for row in rows if _goes_on(*row[3:5])])
    elif isinstance(outcome, SchedulerOutput):
        batch, was_running = outcome, set(before.running)
        rows = _rows(batch, after, before, after)
        admitted = tuple([row[0] for row in rows if row[0] not in was_running])
        victims, gave_back = _who_lost_blocks(before, batch)
    return _make_step(
        before,
        event,
        after,
        outcome,
        batch,
        rows,
        admitted=admitted,
        victims=victims,
        went_on=went_on,
        gave_back=gave_back,
    )


def _who_lost_blocks(
    before: SchedulerState, batch: SchedulerOutput
) -> tuple[tuple[RequestId, ...], tuple[RequestId, ...]]:
    """Give who ran and was preempted while a step was planned, and who waited and gave blocks back."""
    lost = batch.preempted_request_ids[len(before.preempted_request_ids) :]
    if not lost or not len(before.kv_holding_waiting):
        return lost, ()
    holders = set(before.kv_holding_waiting)
    victims = tuple([request_id for request_id in lost if request_id not in holders])
    return victims, tuple([request_id for request_id in lost if request_id in holders])


def _rows(
    batch: SchedulerOutput, known: SchedulerState, before: SchedulerState, after: SchedulerState
) -> tuple[Row, ...]:
    scheduled = batch.num_scheduled_tokens
    return tuple(
        zip(
            scheduled,
            scheduled.values(),
            map(known.requests.get, scheduled),
            map(before.progress.get, scheduled),
            map(after.progress.get, scheduled),
            map(after.kv.tables.get, scheduled, [()] * len(scheduled)),
            strict=True,
        )
    )


def _goes_on(earlier: Progress | None, later: Progress | None) -> bool:
    """Tell whether a request stopped and did not end."""
    return (
        earlier is not None
        and later is not None
        and earlier.status in (RequestStatus.RUNNING, RequestStatus.PREEMPTED)
        and later.status in (RequestStatus.WAITING, RequestStatus.WAITING_FOR_INPUT)
    )


@attrs.frozen
class StateInvariant:
    """Something that holds for every state."""

    scope: ClassVar[Scope] = Scope.STATE
    """What it is about."""
    invariant_id: str
    """Stable: `INV-<subject>-<number>`."""
    cost: Cost
    """What a check is proportional to."""
    sentence: str
    """What holds."""
    why: str
    """What goes wrong where it does not, or why it must hold."""
    predicate: Callable[[SchedulerState], str | None]
    """The evidence against it, or None."""
    reports: tuple[str, ...] = ()
    """Public reports of bugs that break it."""


@attrs.frozen
class StepInvariant:
    """Something that holds for every step of certain kinds."""

    scope: ClassVar[Scope] = Scope.STEP
    """What it is about."""
    invariant_id: str
    """Stable: `INV-<subject>-<number>`."""
    cost: Cost
    """What a check is proportional to."""
    sentence: str
    """What holds."""
    why: str
    """What goes wrong where it does not, or why it must hold."""
    events: tuple[type[Event], ...]
    """The kinds of event that it is about."""
    predicate: Callable[[Step], str | None]
    """The evidence against it, or None."""
    reports: tuple[str, ...] = ()
    """Public reports of bugs that break it."""


@attrs.frozen
class RunInvariant:
    """Something that holds for every run, over all of its steps."""

    scope: ClassVar[Scope] = Scope.RUN
    """What it is about."""
    invariant_id: str
    """Stable: `INV-<subject>-<number>`."""
    cost: Cost
    """What a check of one step is proportional to."""
    sentence: str
    """What holds."""
    why: str
    """What goes wrong where it does not, or why it must hold."""
    memory: str
    """What is remembered of the run: how much room a long run takes."""
    events: tuple[type[Event], ...]
    """The kinds of event that it has to see."""
    start: Callable[[SchedulerState], Any]
    """Makes the memory of a run that begins in a state; what the state holds is taken as given."""
    predicate: Callable[[Any, Step], str | None]
    """Takes the next step down in the memory; the evidence against it, or None."""
    reports: tuple[str, ...] = ()
    """Public reports of bugs that break it."""


Invariant: TypeAlias = StateInvariant | StepInvariant | RunInvariant
"""An entry of the catalogue."""

Memory = TypeVar("Memory")


def state_invariant(
    invariant_id: str, cost: Cost, sentence: str, why: str, *, reports: tuple[str, ...] = ()
) -> Callable[[Callable[[SchedulerState], str | None]], StateInvariant]:
    """Make the decorated predicate an entry of scope *state*."""
    return lambda predicate: StateInvariant(invariant_id, cost, sentence, why, predicate, reports)


def step_invariant(
    invariant_id: str,
    cost: Cost,
    sentence: str,
    why: str,
    *events: type[Event],
    reports: tuple[str, ...] = (),
) -> Callable[[Callable[[Step], str | None]], StepInvariant]:
    """Make the decorated predicate an entry of scope *step*, about `events`."""
    return lambda predicate: StepInvariant(invariant_id, cost, sentence, why, events, predicate, reports)


def run_invariant(
    invariant_id: str,
    cost: Cost,
    sentence: str,
    why: str,
    *events: type[Event],
    start: Callable[[SchedulerState], Memory],
    memory: str,
    reports: tuple[str, ...] = (),
) -> Callable[[Callable[[Memory, Step], str | None]], RunInvariant]:
    """Make the decorated predicate an entry of scope *run*, with the memory that `start` makes."""
    return lambda predicate: RunInvariant(
        invariant_id, cost, sentence, why, memory, events, start, predicate, reports
    )
