"""Playing a workload through the state machine on a simulated clock.

Rules
-----
A request is added at the first moment between two steps that is not before its arrival, in the order of
the workload. Steps follow each other without a pause; one takes `StepCost` long. While nothing is live,
the clock jumps to the next arrival. Every step is answered by the stub model before the next is
scheduled. When the last request has ended, one more empty step tells the model runner so, as the
reference's engine does.

Memory is bounded by the live requests: the workload is read as it is needed, no state is kept, and at
most `max_waiting` requests wait in the scheduler. The ones behind them wait outside, in their order,
and their waiting time counts.

A run always ends: a step in which nothing can be done and that no arrival will change, or a long row of
steps without any output, raises `StalledError`.
"""

from collections.abc import Iterable, Iterator

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import AddRequest, Event, Schedule, Update
from kvsched_fp.machine import Outcome, step
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState, initial_state, num_waiting_requests
from kvsched_fp.workloads.request import WorkloadRequest, make_request
from kvsched_fp.workloads.stall import make_stalled_error
from kvsched_fp.workloads.stub import stub_result

DEFAULT_MAX_WAITING = 256
"""Requests that may wait inside the scheduler."""
MAX_COST_SECONDS = 1_000_000
"""The most that a step, or a token, may cost; so the clock never overflows."""


@attrs.frozen(kw_only=True)
class StepCost:
    """How long a step takes on the simulated clock. A step without tokens takes no time."""

    base: float = 0.05
    """Seconds per step."""
    per_token: float = 0.00004
    """Seconds per scheduled token."""

    def __attrs_post_init__(self) -> None:
        for field in ("base", "per_token"):
            value = getattr(self, field)
            if not (isinstance(value, int | float) and 0 <= value <= MAX_COST_SECONDS):
                allowed = f"a number of seconds from 0 to {MAX_COST_SECONDS:,}"
                raise InvalidInputError(f"step cost, {field}", value, allowed)

    def seconds(self, num_tokens: int) -> float:
        """Give the duration of a step of `num_tokens` scheduled tokens."""
        return self.base + self.per_token * num_tokens if num_tokens else 0.0


@attrs.frozen
class Played:
    """One event of a run, and what it did."""

    event: Event
    """What happened."""
    before: SchedulerState
    """The state that it happened to."""
    after: SchedulerState
    """The state that it made."""
    outcome: Outcome
    """What came of it besides the state, as `machine.step()` gives it."""
    time: float
    """When, in simulated seconds."""

    def when(self) -> str:
        """Say when it happened."""
        return f"{self.time:.3f} simulated seconds"


def play(
    config: SchedulerConfig,
    workload: Iterable[WorkloadRequest],
    *,
    step_cost: StepCost | None = None,
    max_waiting: int = DEFAULT_MAX_WAITING,
) -> Iterator[Played]:
    """Play `workload`, giving every event right after it happened.

    `workload` is in the order of arrival. Raises `StalledError` when the run cannot go on, and whatever
    iterating over `workload` raises.
    """
    if max_waiting < 1:
        raise InvalidInputError("max_waiting", max_waiting, "an integer >= 1")
    cost = StepCost() if step_cost is None else step_cost
    player = _Player(config, workload, max_waiting)
    while True:
        while player.has_arrival():
            yield player.add_next()
        if not player.has_work():
            if player.upcoming is None:
                return
            player.skip_to_arrival()
            continue
        scheduled = player.schedule()
        yield scheduled
        yield player.update(cost)
        player.watch_progress(scheduled)


class _Player:
    """The mutable middle of a run: the state, the clock and the next request."""

    def __init__(
        self, config: SchedulerConfig, workload: Iterable[WorkloadRequest], max_waiting: int
    ) -> None:
        self.state = initial_state(config)
        self.time = 0.0
        self._workload = iter(workload)
        self.upcoming = next(self._workload, None)
        self._max_waiting = max_waiting
        self._output: SchedulerOutput | None = None
        self._num_barren_steps = 0
        # One request needs at most a step per token until its first output, and the first of the running
        # ones gets a token in every step. Beyond twice that, steps only undo each other.
        self._max_barren_steps = 2 * config.max_model_len + 1000

    def has_arrival(self) -> bool:
        """Tell whether the next request has arrived and is let in."""
        return self.upcoming is not None and self.upcoming.arrival_time <= self.time and self._has_room()

    def _has_room(self) -> bool:
        return num_waiting_requests(self.state) < self._max_waiting

    def has_work(self) -> bool:
        """Tell whether a step is due."""
        return len(self.state.requests) > 0 or len(self.state.finished_request_ids) > 0

    def skip_to_arrival(self) -> None:
        """Move the clock to the next arrival, if that is ahead."""
        if self.upcoming is not None:
            self.time = max(self.time, self.upcoming.arrival_time)

    def add_next(self) -> Played:
        """Add the next request."""
        assert self.upcoming is not None
        event = AddRequest(make_request(self.upcoming))
        self.upcoming = next(self._workload, None)
        return self._step(event)

    def schedule(self) -> Played:
        """Plan a step."""
        played = self._step(Schedule())
        assert isinstance(played.outcome, SchedulerOutput)
        self._output = played.outcome
        return played

    def update(self, cost: StepCost) -> Played:
        """Let the step take its time, and answer it."""
        assert self._output is not None
        self.time += cost.seconds(self._output.total_num_scheduled_tokens)
        return self._step(Update(stub_result(self.state, self._output)))

    def _step(self, event: Event) -> Played:
        before = self.state
        self.state, outcome = step(before, event)
        return Played(event, before, self.state, outcome, self.time)

    def watch_progress(self, scheduled: Played) -> None:
        """Raise `StalledError` if the step that was just answered shows that nothing will ever move."""
        output = scheduled.outcome
        assert isinstance(output, SchedulerOutput)
        if not self.state.requests:
            self._num_barren_steps = 0
        elif output.total_num_scheduled_tokens == 0 and not output.preempted_request_ids:
            if self.upcoming is None or not self._has_room():
                raise make_stalled_error(self.state, self.time, "nothing can be scheduled")
            self.skip_to_arrival()
        elif any(told.outputs for told in self.state.emitted.clients.values()):
            self._num_barren_steps = 0
        else:
            self._num_barren_steps += 1
            if self._num_barren_steps > self._max_barren_steps:
                what = f"{self._num_barren_steps} steps in a row brought no output"
                raise make_stalled_error(self.state, self.time, what)
