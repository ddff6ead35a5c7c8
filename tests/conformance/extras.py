"""The outside world of a history with features: drafts, grammars, chunks, and results that fit them."""

from random import Random

import attrs

from kvsched_fp import (
    AddRequest,
    Event,
    GrammarFailed,
    GrammarReady,
    RequestStatus,
    SchedulerConfig,
    SchedulerState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.config import RunnerType, SchedulingPolicy
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId
from kvsched_fp.state import live_request_ids

from .habits import Habits, draw_tokens
from .random_requests import draw_request


def with_features(habits: Habits, config: SchedulerConfig, features: frozenset[str]) -> Habits:
    """Let the outside world do what an engine with these features does."""
    max_in_flight = habits.max_in_flight
    if config.async_scheduling:
        max_in_flight = max(2, max_in_flight)
    return attrs.evolve(
        habits,
        features=features,
        runner="plain",
        max_in_flight=max_in_flight,
        max_loras=config.max_loras or 0,
        # A tiny vocabulary, so that grammars and drafts are met by chance.
        num_token_ids=min(habits.num_token_ids, 3) if "grammars" in features else habits.num_token_ids,
    )


def at_time(event: Event, number: int) -> Event:
    """Let the event happen at a time of its own, if it has one."""
    return attrs.evolve(event, time=float(number)) if hasattr(event, "time") else event


class Extras:
    """Draws what only an engine with features sees."""

    def __init__(self, rng: Random, habits: Habits) -> None:
        self._rng = rng
        self._habits = habits
        self._num_chunks = 0

    def draw(self, state: SchedulerState) -> Event | None:
        """Draw an event, now and then."""
        draws = {
            "drafts": self._draw_drafts,
            "grammars": self._draw_grammar,
            "sessions": self._draw_chunk,
        }
        for feature, draw in draws.items():
            if feature in self._habits.features and self._rng.random() < 0.3:
                event = draw(state)
                if event is not None:
                    return event
        return None

    def _draw_drafts(self, state: SchedulerState) -> Event | None:
        rng = self._rng
        if state.config.async_scheduling and rng.random() < 0.7:
            return self._draw_drafts_in_flight(state)
        drafted = {
            request_id: self._tokens(rng.randint(0, state.config.num_spec_tokens))
            for request_id in live_request_ids(state)
            if rng.random() < 0.8 and self._may_have_drafts(state, request_id)
        }
        return UpdateDrafts(drafted) if drafted else None

    def _draw_drafts_in_flight(self, state: SchedulerState) -> Event | None:
        outputs = [output for output in state.in_flight if output.scheduled_spec_token_ids]
        if not outputs:
            return None
        output = outputs[-1]
        drafted = {
            request_id: self._tokens(self._rng.randint(0, state.config.num_spec_tokens))
            for request_id in output.num_scheduled_tokens
            if request_id in state.requests and self._may_have_drafts(state, request_id)
        }
        return UpdateDraftsInFlight(output.step_id, drafted)

    def _may_have_drafts(self, state: SchedulerState, request_id: RequestId) -> bool:
        progress = state.progress[request_id]
        if state.requests[request_id].resumable and progress.num_in_flight_tokens > 0:
            # No engine does that, and the reference gives up when the session goes on.
            return state.config.async_scheduling
        return progress.status is not RequestStatus.WAITING_FOR_GRAMMAR and (
            not state.requests[request_id].needs_grammar
            or isinstance(state.progress[request_id].grammar, AutomatonGrammar)
        )

    def _tokens(self, length: int) -> tuple[int, ...]:
        """Draw drafts, padded now and then."""
        tokens = draw_tokens(self._rng, self._habits.num_token_ids, length)
        if length and self._rng.random() < 0.15:
            return (*tokens[:-1], -1)
        return tokens

    def _draw_grammar(self, state: SchedulerState) -> Event | None:
        waiting = [
            request_id
            for request_id in live_request_ids(state)
            if state.progress[request_id].status is RequestStatus.WAITING_FOR_GRAMMAR
            and state.progress[request_id].grammar is None
        ]
        if not waiting:
            return None
        request_id = self._rng.choice(waiting)
        # The reference ends several such requests in the order of a set; one at a time, there is no order.
        someone_failed = state.grammar_errors or any(
            not isinstance(state.progress[name].grammar, AutomatonGrammar | None) for name in state.requests
        )
        if self._rng.random() < 0.2 and not someone_failed:
            return GrammarFailed(request_id, "it makes no sense")
        return GrammarReady(request_id, self._draw_automaton())

    def _draw_automaton(self) -> AutomatonGrammar:
        """Draw a grammar that allows most tokens."""
        rng = self._rng
        num_states = rng.randint(1, 3)
        moves = []
        for _ in range(num_states):
            allowed = [token for token in range(self._habits.num_token_ids) if rng.random() < 0.8] or [0]
            moves.append(tuple((token, rng.randrange(num_states)) for token in allowed))
        return AutomatonGrammar(tuple(moves))

    def _draw_chunk(self, state: SchedulerState) -> Event | None:
        rng = self._rng
        sessions = [
            request_id
            for request_id in live_request_ids(state)
            if state.requests[request_id].resumable and state.progress[request_id].chunks[-1:] != (None,)
        ]
        if not sessions:
            return None
        parked = [
            name for name in sessions if state.progress[name].status is RequestStatus.WAITING_FOR_INPUT
        ]
        request_id = rng.choice(parked if parked and rng.random() < 0.8 else sessions)
        self._num_chunks += 1
        drawn = draw_request(rng, self._habits, self._num_chunks, ())
        session = state.requests[request_id]
        room = state.config.max_model_len - session.num_prompt_tokens
        by_priority = state.config.policy is SchedulingPolicy.PRIORITY
        request = attrs.evolve(
            session,
            prompt_token_ids=drawn.prompt_token_ids[: max(1, min(4, room // 4))],
            sampling_params=drawn.sampling_params,
            # The reference changes the arrival time inside of a heap, which then is none (deviation D-13).
            arrival_time=session.arrival_time if by_priority else drawn.arrival_time,
            resumable=rng.random() < (0.4 if request_id in parked else 0.7),
        )
        return AddRequest(request)

    def draw_update(
        self, state: SchedulerState, rows: list[RequestId], sampling: frozenset[RequestId]
    ) -> Update:
        """Draw what the model runner returned for the oldest step."""
        output = state.in_flight[0]
        config = state.config
        if config.runner_type is RunnerType.POOLING:
            pooled = [name for name in rows if name in sampling and self._rng.random() < 0.9]
            return Update(StepResult(step_id=output.step_id, pooled_request_ids=tuple(pooled)))
        drawn = {}
        for request_id in rows:
            drafts = output.scheduled_spec_token_ids.get(request_id, ())
            drawn[request_id] = self._draw_row(state, request_id, drafts, samples=request_id in sampling)
        if config.runner_type is RunnerType.ENCODER_ONLY:
            drawn = {}
        return Update(StepResult(step_id=output.step_id, sampled_token_ids=drawn))

    def _draw_row(
        self, state: SchedulerState, request_id: RequestId, drafts: tuple[int, ...], *, samples: bool
    ) -> tuple[int, ...]:
        rng = self._rng
        if state.config.runner_type is RunnerType.DIFFUSION:
            num_tokens = rng.randint(0, len(drafts)) if rng.random() < 0.4 else 0
        elif not samples or rng.random() < 0.03:
            return ()
        else:
            num_tokens = 1
            while num_tokens <= len(drafts) and rng.random() < self._habits.acceptance_rate:
                num_tokens += 1
        tokens = draw_tokens(rng, self._habits.num_token_ids, num_tokens)
        return self._under_grammar(state, request_id, tokens)

    def _under_grammar(
        self, state: SchedulerState, request_id: RequestId, tokens: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Make most tokens ones that the grammar allows."""
        progress = state.progress.get(request_id)
        grammar = None if progress is None else progress.grammar
        if not isinstance(grammar, AutomatonGrammar) or self._rng.random() < 0.05:
            return tokens
        made = []
        for _ in tokens:
            token = self._rng.choice(grammar.moves[grammar.state])[0]
            made.append(token)
            grammar, _ = grammar.accept_tokens((token,))
        return tuple(made)
