"""The machine: every rule is a few events; after each event every invariant is checked, and purity."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, cycle
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
    GrammarFailed,
    GrammarReady,
    InvalidEvent,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SchedulerOutput,
    SchedulerState,
    SchedulingPolicy,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
    explain,
    initial_state,
    step,
)
from kvsched_fp.config import ALL_QUIRKS, Quirk, RunnerType
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.invariants import (
    RunChecker,
    Step,
    check_full,
    check_observed_cheap,
    check_observed_full,
    observe,
)
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import live_request_ids
from kvsched_fp.testing.strategies.outside import (
    GRAMMARS,
    draft_behind,
    draft_in_flight,
    free_ids,
    has_room,
    make_result,
    next_input,
    open_sessions,
    requests_without_grammar,
    sampling_rows,
)
from kvsched_fp.testing.strategies.plays import Play, plays
from kvsched_fp.testing.strategies.wishes import PLAIN, GrammarWish, Wish, asked
from kvsched_fp.testing.strategies.worlds import Kind, World, worlds

from .clients import Clients
from .situations import situations_of
from .wrong_events import wrong_events

MAX_IN_FLIGHT = 4
MAX_LIVE = 6

DRAINING = Play(moves="", throttle=False, say=[(PLAIN,) * 4], drafts=[(PLAIN,)], obeys=True, knows=False)
"""How things go on at the end."""


class SchedulerMachine(RuleBasedStateMachine):
    """Random events in a random world; at the end, whatever was asked for must come to an end."""

    reached: ClassVar[Counter[str]] = Counter()
    """How often each situation was reached, over all runs."""
    quirks: ClassVar[tuple[Quirk, ...]] = ALL_QUIRKS
    """Those of the reference that are followed."""

    state: SchedulerState
    world: World
    _run: RunChecker

    def __init__(self) -> None:
        super().__init__()
        self._clients = Clients()
        self._clock: Iterator[int] = count()
        self._num_requests = 0
        self._num_answers = 0
        # Per step in flight, the rows that sample: those that computed the last token that is there.
        self._sampling: dict[StepId, list[RequestId]] = {}
        self._without_grammar: set[RequestId] = set()
        self._is_whole = False

    @initialize(world=worlds(), asked=asked(), play=plays())
    def start(self, world: World, asked: list[Wish], play: Play) -> None:
        """Begin with an empty scheduler and some requests."""
        self.world = attrs.evolve(world, config=attrs.evolve(world.config, quirks=self.quirks))
        self.state = initial_state(self.world.config)
        self._run = RunChecker(self.state)
        self.add(asked, play)

    @rule(asked=asked(), play=plays())
    def add(self, asked: list[Wish], play: Play) -> None:
        """Clients send requests."""
        for wish in asked[: MAX_LIVE - len(self.state.requests)]:
            request = self.world.make_request(self._num_requests, wish)
            if wish.old_id:
                request = attrs.evolve(request, request_id=self._old_id(request.request_id))
            self._num_requests += 1
            self._clients.ask(request.request_id)
            self._without_grammar.discard(request.request_id)
            if wish.grammar is GrammarWish.FAILS:
                self._without_grammar.add(request.request_id)
            self._apply(AddRequest(request))
            if wish.grammar is not GrammarWish.LATE:
                self._compile(request.request_id)
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

    @precondition(lambda self: self._waiting_for_grammars())
    @rule(play=plays())
    def compile(self, play: Play) -> None:
        """Compile the grammars that are late."""
        self._compile(*self._waiting_for_grammars())
        self._play(play)

    @precondition(lambda self: self._open_sessions())
    @rule(
        which=st.sampled_from([0, 0, 0, 1, 2]),
        asked=asked(),
        is_end=st.booleans(),
        play=plays(),
    )
    def say_more(self, which: int, asked: list[Wish], is_end: bool, play: Play) -> None:
        """Send the next inputs of a session, the last of which may be its end."""
        sessions = self._open_sessions()
        request_id = sessions[which % len(sessions)]
        for wish in asked:
            self._say(request_id, wish, is_end=is_end and wish is asked[-1])
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
        if endless := self._endless():
            self._apply(FinishRequests(endless))
        self._compile(*self._waiting_for_grammars(), fully=False)
        for request_id in self._open_sessions():
            self._say(request_id, None, is_end=True)
        for _ in range(self._most_steps()):
            if not self.state.requests and not self.state.in_flight:
                break
            if self.state.requests and len(self.state.in_flight) < MAX_IN_FLIGHT:
                self._apply(Schedule(), fully=False)
            self._answer(DRAINING, fully=False)

        assert not live_request_ids(self.state)
        assert self._clients.asked == self._clients.ended
        assert self.world.config.num_blocks - 1 == self.state.kv.pool.num_free_blocks

    def _endless(self) -> list[RequestId]:
        """List the live requests that may never end.

        Of requests with equal ranks, both may throw each other out (deviation D-10). A session that is as
        long as max_model_len may have a last token that is never computed (deviations D-06 and D-11).
        Sessions that have input may keep each other's blocks (deviation D-16).
        """
        by_priority = self.world.config.policy is SchedulingPolicy.PRIORITY
        first_of_rank: dict[tuple[int, float], RequestId] = {}
        endless, locked = [], self._locked()
        for request_id in live_request_ids(self.state):
            request, progress = self.state.requests[request_id], self.state.progress[request_id]
            rank = (request.priority, request.arrival_time)
            is_rival = by_priority and first_of_rank.setdefault(rank, request_id) != request_id
            is_long = num_known_tokens(request, progress) >= self.world.longest_prompt
            may_lock = request_id in locked or any(progress.chunks)
            if is_rival or may_lock or (request.resumable and is_long):
                endless.append(request_id)
        return endless

    def _locked(self) -> list[RequestId]:
        """List the sessions but one that have input and wait with blocks in hand."""
        progress = self.state.progress
        holders = self.state.kv_holding_waiting
        return [it for it in holders if progress[it].status is RequestStatus.WAITING][1:]

    def _most_steps(self) -> int:
        config = self.world.config
        longest = 2 * config.max_model_len + MAX_IN_FLIGHT
        pace = config.local_prefill_interval * config.pipeline_parallel_size
        if config.runner_type is RunnerType.DIFFUSION:
            # A token takes a step that brings the canvas and one that settles it, and while all steps in
            # flight but one are empty, each of the two is behind the others.
            pace *= 2 * MAX_IN_FLIGHT
        return 10 + (len(self.state.requests) + 1) * longest * pace

    def _old_id(self, default: RequestId) -> RequestId:
        """Give an id that was used before, if there is one."""
        return max(free_ids(self.state, self._clients.ended), default=default)

    def _waiting_for_grammars(self) -> list[RequestId]:
        return requests_without_grammar(self.state)

    def _compile(self, *request_ids: RequestId, fully: bool = True) -> None:
        """Answer those of the requests that wait for a grammar."""
        for request_id in self._waiting_for_grammars():
            if request_id not in request_ids:
                continue
            event: Event = GrammarReady(request_id, GRAMMARS[self._num_requests % len(GRAMMARS)])
            if request_id in self._without_grammar:
                event = GrammarFailed(request_id, "no such grammar")
            self._apply(event, fully=fully)

    def _open_sessions(self) -> list[RequestId]:
        return open_sessions(self.state)

    def _say(self, request_id: RequestId, wish: Wish | None, *, is_end: bool) -> None:
        asked = None if wish is None else self.world.make_request(self._num_requests, wish)
        session = next_input(self.state, request_id, asked, is_end=is_end)
        if Quirk.OUTGROWS_MODEL_LEN in self.quirks or has_room(self.state, session):
            self._apply(AddRequest(session))

    def _play(self, play: Play) -> None:
        for move in play.moves:
            if move == "R":
                self._answer(play)
            elif len(self.state.in_flight) < MAX_IN_FLIGHT:
                self._apply(Schedule(play.throttle))
                self._draft_in_flight(play)

    def _draft_in_flight(self, play: Play) -> None:
        """Let the drafts of the step that was planned become known."""
        output = self.state.in_flight[-1]
        is_diffusion = self.world.config.runner_type is RunnerType.DIFFUSION
        if play.knows and output.scheduled_spec_token_ids and not is_diffusion:
            drafts = draft_in_flight(self.state, output, play.drafts)
            self._apply(UpdateDraftsInFlight(output.step_id, drafts))

    def _answer(self, play: Play, *, fully: bool = True) -> None:
        """Let the oldest step in flight come back, if there is one, and the drafts that follow it."""
        if not self.state.in_flight:
            return
        output = self.state.in_flight[0]
        sampling = self._sampling.pop(output.step_id)
        first = self._num_answers % len(play.say)
        say = cycle([*play.say[first:], *play.say[:first]])
        self._num_answers += len(sampling)
        result = make_result(self.state, sampling, say, obeys=play.obeys)
        self._apply(Update(result), fully=fully)
        drafts = draft_behind(self.state, output, play.drafts)
        if drafts:
            self._apply(UpdateDrafts(drafts), fully=fully)

    def _apply(self, event: Event, *, fully: bool = True) -> None:
        """Send an event, and check everything that can be checked about it."""
        self._is_whole = False
        if hasattr(event, "time"):
            event = attrs.evolve(event, time=float(next(self._clock)))
        before, kept = self.state, self._copy() if fully else self.state
        after, outcome = step(before, event)
        seen = observe(before, event, after, outcome)
        check_full(after)
        if not fully:
            check_observed_cheap(seen)
        else:
            check_observed_full(seen)
            assert kept == before
            assert hash(kept) == hash(before)
            assert (after, outcome) == step(before, event)
            self._explain(event, outcome)
            for situation in self._situations_of(event, seen):
                note(situation)
                self.reached[situation] += 1
        self._run.check_observed(seen)
        self.state = after
        if isinstance(event, Schedule):
            self._remember_who_samples()
        if isinstance(event, Update):
            self._clients.listen(before, after)
        else:
            self._clients.see_gone(before, after)
        self._clients.compare(before, after)
        self._is_whole = True

    def _situations_of(self, event: Event, seen: Step) -> Iterable[str]:
        return situations_of(seen.before, event, seen.after, seen.outcome)

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
        self._sampling[self.state.in_flight[-1].step_id] = sampling_rows(self.state)


class StrictMachine(SchedulerMachine):
    """The same without the reference's quirks: nothing is excluded from what must come to an end."""

    reached: ClassVar[Counter[str]] = Counter()
    quirks: ClassVar[tuple[Quirk, ...]] = ()

    def _endless(self) -> list[RequestId]:
        """Nobody."""
        return []

    def _situations_of(self, event: Event, seen: Step) -> Iterable[str]:
        """Give the rules that decide in place of a quirk, where one did."""
        if not isinstance(event, Schedule):
            return set()
        reasons = explain(seen.before, throttle_prefills=event.throttle_prefills)
        return {reason.rule_id for reason in reasons} & STRICT_RULES


STRICT_RULES = frozenset({"S-PRE-07", "S-PRE-08", "S-PRE-09"})
"""The rules of scheduling that come up without the quirks alone."""
