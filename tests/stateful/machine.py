"""The machine: every rule is a few events; after each event every invariant is checked, and purity."""

import pickle
from collections import Counter
from typing import ClassVar

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import event as note
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    InvalidEvent,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerOutput,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    StepResult,
    Update,
    explain,
    initial_state,
    step,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.invariants import check_cheap, check_full, check_full_step
from kvsched_fp.state import live_request_ids

from .situations import situations_of
from .worlds import PLAIN, Answers, Kind, Play, Wish, World, asked, plays, worlds
from .wrong_events import wrong_events

MAX_IN_FLIGHT = 4
MAX_LIVE = 6


class SchedulerMachine(RuleBasedStateMachine):
    """Random events in a random world; at the end, whatever was asked for must come to an end."""

    reached: ClassVar[Counter[str]] = Counter()
    """How often each situation was reached, over all runs."""

    state: SchedulerState
    world: World

    def __init__(self) -> None:
        super().__init__()
        self._num_requests = 0
        self._num_answers = 0
        # Per step in flight, the rows that sample: those that computed the last known token.
        self._sampling: dict[StepId, list[RequestId]] = {}
        self._told: dict[RequestId, list[int]] = {}
        self._ended: set[RequestId] = set()
        self._is_whole = False

    @initialize(world=worlds(), asked=asked(), play=plays())
    def start(self, world: World, asked: list[Wish], play: Play) -> None:
        """Begin with an empty scheduler and some requests."""
        self.world = world
        self.state = initial_state(world.config)
        self.add(asked, play)

    @rule(asked=asked(), play=plays())
    def add(self, asked: list[Wish], play: Play) -> None:
        """Clients send requests."""
        for wish in asked[: MAX_LIVE - len(self.state.requests)]:
            request = self.world.make_request(self._num_requests, wish)
            if wish.old_id:
                request = attrs.evolve(request, request_id=self._old_id(request.request_id))
            self._num_requests += 1
            self._told[request.request_id] = []
            self._ended.discard(request.request_id)
            self._apply(AddRequest(request))
            if self.world.kind is Kind.RISING:
                # One by one: among the running, the least important then stand first.
                self._play(attrs.evolve(play, moves="SR"))
        self._play(play)

    @rule(plays=st.lists(plays(), min_size=1, max_size=3))
    def go_on(self, plays: list[Play]) -> None:
        """Nothing comes from outside for a while."""
        for play in plays:
            self._play(play)

    @precondition(lambda self: self.state.requests)
    @rule(which=st.lists(st.integers(0, MAX_LIVE - 1), max_size=2), play=plays())
    def end(self, which: list[int], play: Play) -> None:
        """End what clients have hung up on; an empty list is all."""
        ids = live_request_ids(self.state)
        request_ids = tuple(ids[index % len(ids)] for index in which) or None
        self._apply(FinishRequests(request_ids))
        self._play(play)

    @rule(everything=st.booleans(), asked=asked(), paused=plays(), then=plays())
    def pause(self, everything: bool, asked: list[Wish], paused: Play, then: Play) -> None:
        """Pause the engine for a while, in which more requests come."""
        self._apply(SetPauseState(PauseState.PAUSED_ALL if everything else PauseState.PAUSED_NEW))
        self.add(asked, paused)
        self._apply(SetPauseState(PauseState.UNPAUSED))
        self._play(then)

    @rule(running=st.booleans(), play=plays())
    def reset(self, running: bool, play: Play) -> None:
        """Change the weights."""
        self._apply(ResetPrefixCache(running))
        self._play(play)

    @rule(play=plays())
    def send_nonsense(self, play: Play) -> None:
        """Every event that makes no sense is refused, and nothing has changed."""
        kept = self._copy()
        for field, make in wrong_events(self.state):
            with pytest.raises(InvalidEvent) as refused:
                step(self.state, make())

            assert field == refused.value.field
            assert refused.value.allowed
            assert kept == self.state
        self._play(play)

    def teardown(self) -> None:
        """Drain: what was asked for ends, within as many steps as the worst order of service takes."""
        if not self._is_whole:
            return  # what went wrong is reported already
        if self.state.pause_state is not PauseState.UNPAUSED:
            self._apply(SetPauseState(PauseState.UNPAUSED))
        if rivals := self._rivals():
            self._apply(FinishRequests(rivals))
        for _ in range(self._most_steps()):
            if not self.state.requests and not self.state.in_flight:
                break
            if self.state.requests and len(self.state.in_flight) < MAX_IN_FLIGHT:
                self._apply(Schedule(), fully=False)
            self._answer([(PLAIN,)], fully=False)

        assert not live_request_ids(self.state)
        assert self._told.keys() == self._ended
        assert self.world.config.num_blocks - 1 == self.state.kv.pool.num_free_blocks

    def _rivals(self) -> list[RequestId]:
        """List the live requests that rank with an earlier one: both may never end (deviation D-10)."""
        if self.world.config.policy is SchedulingPolicy.FCFS:
            return []
        first_of_rank: dict[tuple[int, float], RequestId] = {}
        rivals = []
        for request_id in live_request_ids(self.state):
            request = self.state.requests[request_id]
            if first_of_rank.setdefault((request.priority, request.arrival_time), request_id) != request_id:
                rivals.append(request_id)
        return rivals

    def _most_steps(self) -> int:
        config = self.world.config
        longest = 2 * config.max_model_len + MAX_IN_FLIGHT
        return 10 + (len(self.state.requests) + 1) * longest * config.prefill_schedule_interval

    def _old_id(self, default: RequestId) -> RequestId:
        """Give an id that was used before; what is in flight of it would be charged to the new life."""
        for request_id in sorted(self._ended, reverse=True):
            if not any(request_id in output.num_scheduled_tokens for output in self.state.in_flight):
                return request_id
        return default

    def _play(self, play: Play) -> None:
        for move in play.moves:
            if move == "R":
                self._answer(play.say)
            elif len(self.state.in_flight) < MAX_IN_FLIGHT:
                self._apply(Schedule(play.throttle))

    def _answer(self, say: Answers, *, fully: bool = True) -> None:
        """Let the oldest step in flight come back, if there is one."""
        if not self.state.in_flight:
            return
        step_id = self.state.in_flight[0].step_id
        sampled = {}
        for request_id in self._sampling.pop(step_id):
            sampled[request_id] = say[self._num_answers % len(say)]
            self._num_answers += 1
        self._apply(Update(StepResult(step_id=step_id, sampled_token_ids=sampled)), fully=fully)

    def _apply(self, event: Event, *, fully: bool = True) -> None:
        """Send an event, and check everything that can be checked about it."""
        self._is_whole = False
        before, kept = self.state, self._copy() if fully else self.state
        after, outcome = step(before, event)
        check_cheap(before, event, after, outcome)
        check_full(after)
        if fully:
            check_full_step(before, event, after, outcome)
            assert kept == before
            assert hash(kept) == hash(before)
            assert (after, outcome) == step(before, event)
            self._explain(event, outcome)
            for situation in situations_of(before, event, after, outcome):
                note(situation)
                self.reached[situation] += 1
        self.state = after
        if isinstance(event, Schedule):
            self._remember_who_samples()
        if isinstance(event, FinishRequests):
            self._ended.update(
                request_id for request_id in before.requests if request_id not in after.requests
            )
        if isinstance(event, Update):
            self._listen()
        self._is_whole = True

    def _explain(self, event: Event, outcome: object) -> None:
        """Ask why, before the step is taken: one reason per live request, with what it will get."""
        if not isinstance(event, Schedule):
            return
        assert isinstance(outcome, SchedulerOutput)
        reasons = explain(self.state, throttle_prefills=event.throttle_prefills)
        rows = {reason.request_id: reason.num_tokens for reason in reasons if reason.num_tokens}
        assert dict(outcome.num_scheduled_tokens) == rows
        assert sorted(self.state.requests) == sorted(reason.request_id for reason in reasons)

    def _copy(self) -> SchedulerState:
        copied: SchedulerState = pickle.loads(pickle.dumps(self.state))  # four times as fast as deepcopy
        return copied

    def _remember_who_samples(self) -> None:
        output = self.state.in_flight[-1]
        self._sampling[output.step_id] = [
            request_id
            for request_id in output.num_scheduled_tokens
            if not self.state.progress[request_id].is_prefill_chunk
        ]

    def _listen(self) -> None:
        """Be the clients: keep what each request was told, and compare it with what the scheduler knows."""
        for client in self.state.emitted.clients.values():
            for output in client.outputs:
                assert output.request_id not in self._ended

                self._told[output.request_id].extend(output.new_token_ids)
                if output.finish_reason is not None:
                    self._ended.add(output.request_id)
        for request_id, progress in self.state.progress.items():
            assert self._told[request_id] == list(progress.output_token_ids)
