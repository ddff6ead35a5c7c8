"""Random histories: one event after the other, each drawn for the state it will meet.

The same seed gives the same history, as long as the oracle is the same; and under one hash seed of the
process (`set_order.py`).
"""

from collections.abc import Callable, Iterator
from random import Random

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    PauseState,
    RequestStatus,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    SetPauseState,
    StepResult,
    Update,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.request import FINISH_REASONS
from kvsched_fp.state import live_request_ids

from .extras import Extras, at_time, with_features
from .habits import Habits, draw_habits, draw_tokens
from .random_requests import draw_request
from .set_order import in_set_order

MAX_DRAINING_STEPS = 100
"""How long to wait for the last request."""

PATIENCE = 3
"""After so many empty steps with nothing in flight, somebody hangs up: a request that is longer than the
pool, or than what may be computed of it, never ends and may keep all others from starting."""


class History:
    """The outside world: draws events, and is told of the state that each led to."""

    def __init__(
        self,
        rng: Random,
        state: SchedulerState,
        features: frozenset[str] = frozenset(),
        own_rng: Random | None = None,
    ) -> None:
        self.habits: Habits = draw_habits(rng, state.config.max_model_len)
        if features:
            self.habits = with_features(self.habits, state.config, features)
        self._rng = rng
        self._extras = Extras(own_rng or rng, self.habits)
        self._state = state
        self._num_requests = 0
        self._num_to_come = 0  # requests of a burst
        self._num_idle_steps = 0
        self._ended: list[RequestId] = []
        # Per step in flight, the requests whose last known token it computes: they sample.
        self._sampling: dict[StepId, frozenset[RequestId]] = {}

    def events(self) -> Iterator[Event]:
        """Give all events; `observe` must be called between two of them."""
        for number, event in enumerate(self._events()):
            yield at_time(event, number) if self.habits.features else event

    def _events(self) -> Iterator[Event]:
        for _ in range(self.habits.num_events):
            extra = self._extras.draw(self._state) if self.habits.features else None
            yield extra or self._draw_event()
        yield from self._drain()

    def observe(self, state: SchedulerState) -> None:
        """Look at the state that the last event led to."""
        self._ended += [name for name in live_request_ids(self._state) if name not in state.requests]
        if state.current_step > self._state.current_step:
            output = state.in_flight[-1]
            self._num_idle_steps = 0 if output.num_scheduled_tokens else self._num_idle_steps + 1
            self._sampling[output.step_id] = frozenset(
                request_id
                for request_id in output.num_scheduled_tokens
                if not state.progress[request_id].is_prefill_chunk
            )
        self._state = state

    def _draw_event(self) -> Event:
        if self._num_to_come > 0:
            self._num_to_come -= 1
            return self._draw_add()
        if len(self._state.in_flight) >= self.habits.max_in_flight:
            return self._draw_update()
        draw: dict[str, Callable[[], Event]] = {
            "schedule": self._draw_schedule,
            "update": self._draw_update,
            "add": self._draw_burst,
            "finish": self._draw_finish,
            "pause": self._draw_pause,
            "reset": self._draw_reset,
        }
        return draw[self._draw_kind()]()

    def _draw_kind(self) -> str:
        state, habits = self._state, self.habits
        is_stuck = self._num_idle_steps >= PATIENCE and state.requests and not state.in_flight
        rates = {
            "schedule": 1.0,
            "update": 0.7 if state.in_flight else 0.0,
            "add": habits.add_rate if len(state.requests) < habits.max_live else 0.0,
            "finish": 1.0 if is_stuck else habits.finish_rate,
            # A pause is short.
            "pause": habits.pause_rate if state.pause_state is PauseState.UNPAUSED else 0.5,
            "reset": habits.reset_rate,
        }
        return self._rng.choices(list(rates), list(rates.values()))[0]

    def _draw_schedule(self) -> Schedule:
        return Schedule(throttle_prefills=self._rng.random() < self.habits.throttle_rate)

    def _draw_pause(self) -> SetPauseState:
        return SetPauseState(self._rng.choice(list(PauseState)))

    def _draw_reset(self) -> ResetPrefixCache:
        return ResetPrefixCache(reset_running_requests=self._rng.random() < 0.5)

    def _draw_burst(self) -> AddRequest:
        """Draw the first of several requests."""
        num_free = self.habits.max_live - len(self._state.requests)
        self._num_to_come = self._rng.randint(1, min(self.habits.max_burst, num_free)) - 1
        return self._draw_add()

    def _draw_add(self) -> AddRequest:
        self._num_requests += 1
        free_ids = [request_id for request_id in self._ended if request_id not in self._state.requests]
        in_flight = {name for output in self._state.in_flight for name in output.num_scheduled_tokens}
        # Most interesting is an id whose old step has not come back.
        free_ids.sort(key=in_flight.__contains__)
        return AddRequest(draw_request(self._rng, self.habits, self._num_requests, free_ids))

    def _draw_finish(self) -> FinishRequests:
        rng = self._rng
        # Whoever uses ids again does so at once: the client tries again.
        self._num_to_come = int(rng.random() < self.habits.reuse_rate)
        live = live_request_ids(self._state)
        status = RequestStatus.FINISHED_ABORTED if rng.random() < 0.8 else rng.choice(list(FINISH_REASONS))
        if rng.random() < 0.1:
            return FinishRequests(None, status)
        num_ended = min(len(live), rng.choice((1, 1, 1, 2, 3, 4)))
        return FinishRequests(in_set_order(rng.sample(live, num_ended)), status)

    def _draw_update(self) -> Update:
        output = self._state.in_flight[0]
        sampling = self._sampling.pop(output.step_id)
        rows = list(output.num_scheduled_tokens)
        self._rng.shuffle(rows)  # a result need not keep the order of the batch
        if self.habits.features:
            return self._extras.draw_update(self._state, rows, sampling)
        drawn = {request_id: self._draw_tokens(samples=request_id in sampling) for request_id in rows}
        return Update(StepResult(step_id=output.step_id, sampled_token_ids=drawn))

    def _draw_tokens(self, *, samples: bool) -> tuple[int, ...]:
        rng, habits = self._rng, self.habits
        if habits.runner == "wild":
            num_tokens = rng.choice((0, 0, 1, 1, 2, 3))
        elif not samples:
            num_tokens = 0
        else:
            num_tokens = 1 if habits.runner == "plain" else rng.randint(1, 3)
        return draw_tokens(rng, habits.num_token_ids, num_tokens)

    def _drain(self) -> Iterator[Event]:
        """Let everything that is there come to its end, and clear the cache."""
        yield SetPauseState(PauseState.UNPAUSED)
        for _ in range(MAX_DRAINING_STEPS):
            if not self._state.requests or self._num_idle_steps > PATIENCE + self.habits.max_in_flight:
                break
            while len(self._state.in_flight) >= self.habits.max_in_flight:
                yield self._draw_update()
            yield Schedule()
        yield FinishRequests(None)
        while self._state.in_flight:
            yield self._draw_update()
        yield Schedule()
        yield self._draw_update()
        yield ResetPrefixCache()
