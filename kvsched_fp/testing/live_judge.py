"""Making a history small with the scheduler under test as the judge: for `kvsched_fp.trace.shrink`.

A smaller history must still be one that an engine would bring, and keep to the features of the scheduler:
else it would be told apart by something that nobody asked of it.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence

import attrs

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import AddRequest, Event, Schedule, StepResult, Update
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState
from kvsched_fp.testing.adapter import Adapter
from kvsched_fp.testing.duel import play
from kvsched_fp.testing.features import Feature, features_named, fits
from kvsched_fp.testing.parting import Parting
from kvsched_fp.testing.strategies.outside import free_ids, has_room, keeps_arrival, sampling_rows
from kvsched_fp.trace.shrink import Judge, fit, shrink

MAX_SECONDS = 30.0
"""How long smaller histories are played before what was found is good enough."""


def shrink_parting(adapter: Adapter, parting: Parting, max_seconds: float = MAX_SECONDS) -> Parting:
    """Make the history of a parting small; give it back, as elusive, if it does not part again.

    After `max_seconds`, it is as small as it is by then. A scheduler that fails to start is given another
    configuration that it fails to start with, and no other history is.
    """
    deadline = time.monotonic() + max_seconds
    judge_of = make_judges(adapter, deadline, is_of_start=not parting.played)
    shrunk = shrink(
        parting.config,
        parting.events,
        judge_of(parting.config),
        judge_of=judge_of,
        make_fit=lambda: EngineFit(features_named(adapter.features)),
    )
    last = parting if shrunk is None else shrunk
    return play(adapter, last.config, last.events) or attrs.evolve(parting, is_elusive=True)


def make_judges(
    adapter: Adapter, deadline: float = math.inf, *, is_of_start: bool = False
) -> Callable[[SchedulerConfig], Judge]:
    """Give what makes the judge of histories under a configuration.

    Behind the `deadline`, on the clock `time.monotonic`, no history is found to part. `is_of_start` says
    whether the scheduler is to fail when it is started; else that would be another fault, and no parting.
    """
    allowed = features_named(adapter.features)

    def judge_of(config: SchedulerConfig) -> Judge:
        def judge(events: Sequence[Event]) -> int | None:
            is_late = time.monotonic() > deadline
            if is_late or not fits(config, events, allowed):
                return None
            if adapter.adapt_config(config) != config:
                return None
            try:
                parting = play(adapter, config, events)
            except InvalidInputError:
                return None
            if parting is None or is_of_start == bool(parting.played):
                return None
            return len(parting.played)

        return judge

    return judge_of


class EngineFit:
    """Repairs the events of one history, so that an engine would bring them."""

    def __init__(self, allowed: frozenset[Feature]) -> None:
        self._allowed = allowed
        self._sampling: dict[StepId, list[RequestId]] = {}
        self._seen: set[RequestId] = set()

    def __call__(self, state: SchedulerState, event: Event) -> Event | None:
        """Give the event as it makes sense in `state`; None if there is nothing left of it."""
        if state.in_flight and state.in_flight[-1].step_id not in self._sampling:
            # The state right behind its `Schedule` is the first in which the step is in flight.
            self._sampling[state.in_flight[-1].step_id] = sampling_rows(state)
        fitting = fit(state, event)
        match fitting:
            case Update(result):
                return attrs.evolve(fitting, result=self._fit_result(state, result))
            case Schedule() if len(state.in_flight) >= self._max_in_flight(state.config):
                return None
            case AddRequest(request):
                return self._fit_request(state, fitting) if self._may_be_added(state, request) else None
        return fitting

    def _fit_request(self, state: SchedulerState, event: AddRequest) -> AddRequest:
        """Let the next input of a session have the arrival time that an engine may bring."""
        live = state.requests.get(event.request.request_id)
        if live is None or not keeps_arrival(state, live.request_id):
            return event
        return attrs.evolve(event, request=attrs.evolve(event.request, arrival_time=live.arrival_time))

    def _max_in_flight(self, config: SchedulerConfig) -> int:
        if Feature.STEPS_IN_FLIGHT in self._allowed:
            return sys.maxsize
        return config.pipeline_parallel_size + int(config.async_scheduling)

    def _fit_result(self, state: SchedulerState, result: StepResult) -> StepResult:
        """Let the rows that sample bring something, and no others."""
        output, sampling = state.in_flight[0], self._sampling[result.step_id]
        match state.config.runner_type:
            case RunnerType.POOLING:
                return StepResult(step_id=result.step_id, pooled_request_ids=sampling)
            case RunnerType.ENCODER_ONLY:
                return StepResult(step_id=result.step_id)
            case RunnerType.DIFFUSION:
                return result
        rows = {}
        for request_id in sampling:
            tokens = result.sampled_token_ids.get(request_id) or (0,)
            num_most = 1 + len(output.scheduled_spec_token_ids.get(request_id, ()))
            rows[request_id] = tokens if Feature.BURSTS in self._allowed else tokens[:num_most]
        return attrs.evolve(result, sampled_token_ids=rows)

    def _may_be_added(self, state: SchedulerState, request: Request) -> bool:
        request_id = request.request_id
        is_new = request_id not in self._seen
        self._seen.add(request_id)
        if request_id in state.requests:
            return has_room(state, request)
        return is_new or (Feature.REUSED_IDS in self._allowed and bool(free_ids(state, [request_id])))
