"""Playing a workload through the state machine on a simulated clock.

Rules
-----
A request is added at the first moment between two steps that is not before its arrival, in the order of
the workload. Steps follow each other without a pause; how long they take, `clock.py` says. While nothing
is live, the clock jumps to the next arrival. Every step is answered by the stub model (`stub.py`). When the
last request has ended, one more empty step tells the model runner so, as the reference's engine does.

As that engine does, too: up to `max_steps_in_flight` steps are planned ahead, an empty one as long as
anything is live; only then is the oldest waited for. Drafts that the scheduler is to know follow the result
of the step that they were proposed in.

Memory is bounded by the live requests: the workload is read as it is needed, no state is kept, and at
most `max_waiting` requests wait in the scheduler. The ones behind them wait outside, in their order,
and their waiting time counts.

A run always ends: steps in which nothing can be done and that no result and no arrival will change, or a
long row of steps without any output, raise `StalledError`.

Upstream: `v1/engine/core.py::EngineCore.step_with_batch_queue`, `post_step`.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import attrs

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidConfig, InvalidInputError
from kvsched_fp.events import AddRequest, Event, Schedule, Update, UpdateDrafts
from kvsched_fp.machine import Outcome, step
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState, initial_state, num_waiting_requests
from kvsched_fp.workloads.clock import Pipeline, StepCost, max_steps_in_flight
from kvsched_fp.workloads.request import WorkloadRequest, make_request
from kvsched_fp.workloads.stall import make_stalled_error
from kvsched_fp.workloads.stub import StepInFlight, StubModel, sampling_request_ids

DEFAULT_MAX_WAITING = 256
"""Requests that may wait inside the scheduler."""
MAX_STAGES = 64
"""The most stages of a pipeline, so that the empty steps that fill it stay few."""


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
    model: StubModel | None = None,
) -> Iterator[Played]:
    """Play `workload`, giving every event right after it happened.

    `workload` is in the order of arrival. Raises `InvalidConfig` for a configuration that the stub engine
    cannot run, `StalledError` when the run cannot go on, and whatever iterating over `workload` raises.
    """
    if max_waiting < 1:
        raise InvalidInputError("max_waiting", max_waiting, "an integer >= 1")
    check_playable(config)
    player = _Player(config, workload, max_waiting, step_cost or StepCost(), model or StubModel())
    while True:
        while player.has_arrival():
            yield player.add_next()
        if player.has_work():
            yield player.schedule()
            if player.may_plan_ahead():
                continue
        elif not player.in_flight:
            if player.upcoming is None:
                return
            player.skip_to_arrival()
            continue
        yield from player.take_in()


def check_playable(config: SchedulerConfig) -> None:
    """Raise `InvalidConfig` for what the stub engine cannot run, most of which the reference's refuses."""
    if config.runner_type is not RunnerType.GENERATE:
        allowed = f"{RunnerType.GENERATE.value!r}: the stub model samples tokens"
        raise InvalidConfig("runner_type", config.runner_type.value, allowed)
    num_stages = config.pipeline_parallel_size
    if num_stages > MAX_STAGES:
        raise InvalidConfig("pipeline_parallel_size", num_stages, f"at most {MAX_STAGES} in a run")
    if num_stages > 1 and config.async_scheduling and not config.use_v2_model_runner:
        allowed = "1 with async_scheduling, unless use_v2_model_runner is true"
        raise InvalidConfig("pipeline_parallel_size", num_stages, allowed)
    for name in ("max_model_len", "max_num_batched_tokens"):
        if config.num_spec_tokens >= getattr(config, name):
            allowed = f"less than {name} = {getattr(config, name)}"
            raise InvalidConfig("num_spec_tokens", config.num_spec_tokens, allowed)


class _Player:
    """The mutable middle of a run: the state, the clock, what is in flight and the next request."""

    def __init__(
        self,
        config: SchedulerConfig,
        workload: Iterable[WorkloadRequest],
        max_waiting: int,
        cost: StepCost,
        model: StubModel,
    ) -> None:
        self.state = initial_state(config)
        self.time = 0.0
        self.in_flight: deque[StepInFlight] = deque()
        self._workload = iter(workload)
        self.upcoming = next(self._workload, None)
        self._max_waiting = max_waiting
        self._cost = cost
        self._model = model
        self._pipeline = Pipeline(config.pipeline_parallel_size)
        self._max_in_flight = max_steps_in_flight(config)
        self._is_idle = False
        self._num_barren_steps = 0
        # One request needs at most a step per token until its first output, and the first of the running
        # ones gets a token in every step, or in every one that is not planned ahead. Beyond twice that,
        # steps only undo each other.
        self._max_barren_steps = (2 * config.max_model_len + 1000) * self._max_in_flight

    def has_arrival(self) -> bool:
        """Tell whether the next request has arrived and is let in."""
        return self.upcoming is not None and self.upcoming.arrival_time <= self.time and self._has_room()

    def _has_room(self) -> bool:
        return num_waiting_requests(self.state) < self._max_waiting

    def has_work(self) -> bool:
        """Tell whether a step is to be planned, be it an empty one."""
        return len(self.state.requests) > 0 or len(self.state.finished_request_ids) > 0

    def may_plan_ahead(self) -> bool:
        """Tell whether another step may be planned before a result is waited for."""
        return len(self.in_flight) < self._max_in_flight

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
        """Plan a step and send it off."""
        played = self._step(Schedule())
        output = played.outcome
        assert isinstance(output, SchedulerOutput)
        num_tokens = output.total_num_scheduled_tokens
        self._is_idle = not (num_tokens or output.preempted_request_ids or self._model_works())
        self.time += self._cost.planning_seconds(num_tokens)
        earliest = max([self.time, *self._ends_of_samplings(output)])
        end = self._pipeline.send(earliest, self._cost.seconds(num_tokens))
        self.in_flight.append(StepInFlight(output, sampling_request_ids(self.state, output), end))
        return played

    def _model_works(self) -> bool:
        """Tell whether a step with tokens is in flight."""
        return any(step.output.total_num_scheduled_tokens for step in self.in_flight)

    def _ends_of_samplings(self, output: SchedulerOutput) -> Iterator[float]:
        """Give when the steps in flight are done whose tokens a row of `output` goes on from."""
        for ahead in self.in_flight:
            if not ahead.sampling.isdisjoint(output.num_scheduled_tokens):
                yield ahead.end

    def take_in(self) -> Iterator[Played]:
        """Wait for the oldest step, take in its result and the drafts that came with it."""
        done = self.in_flight.popleft()
        self.time = max(self.time, done.end)
        yield self._step(Update(self._model.answer(self.state, done)))
        drafts = self._model.propose_drafts(self.state, done)
        if drafts:
            yield self._step(UpdateDrafts(drafts))
        self._watch_progress()

    def _step(self, event: Event) -> Played:
        before = self.state
        self.state, outcome = step(before, event)
        return Played(event, before, self.state, outcome, self.time)

    def _watch_progress(self) -> None:
        """Raise `StalledError` if the steps so far show that nothing will ever move."""
        if not self.state.requests:
            self._num_barren_steps = 0
        elif self._is_idle:
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
