"""Strategies: the events that make sense in a state, as an engine would bring them.

`Outside` is the world outside of one scheduler. It is told what happened, and draws what may happen next.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle

import attrs
from hypothesis import strategies as st

from kvsched_fp.config import RunnerType
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import Grammar
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState, live_request_ids
from kvsched_fp.testing.features import Feature
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
from kvsched_fp.testing.strategies.plays import DRAFTS, Answers, answers
from kvsched_fp.testing.strategies.wishes import PLAIN, GrammarWish, Wish, wishes
from kvsched_fp.testing.strategies.worlds import World

MAX_LIVE = 6
"""The most live requests."""

_ENDS = st.sampled_from([RequestStatus.FINISHED_ABORTED] * 4 + [RequestStatus.FINISHED_ERROR])


class Outside:
    """The world outside of one scheduler: what it brings next, and what it remembers for that."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.num_requests = 0
        """Requests sent so far."""
        self._clock = 0
        self._sampling: dict[StepId, list[RequestId]] = {}
        self._ended: dict[RequestId, None] = {}
        self._unwilling: set[RequestId] = set()
        """Requests whose grammar cannot be compiled."""
        self._drafts: Answers = []
        self._due: Event | None = None
        """The drafts that follow a step which has come back."""
        self._is_fresh = False
        """Whether a step was planned just now."""

    def observe(self, before: SchedulerState, event: Event, after: SchedulerState) -> None:
        """Take note of an event that happened."""
        self._is_fresh = isinstance(event, Schedule)
        if self._is_fresh:
            self._sampling[after.in_flight[-1].step_id] = sampling_rows(after)
        if isinstance(event, AddRequest):
            self._ended.pop(event.request.request_id, None)
        if isinstance(event, Update) and self._drafts:
            drafts = draft_behind(after, before.in_flight[0], self._drafts)
            self._due = UpdateDrafts(drafts) if drafts else None
        gone = (name for name in live_request_ids(before) if name not in after.requests)
        self._ended.update(dict.fromkeys(gone))

    def take_due(self) -> Event | None:
        """Give the event that has to come next, if there is one."""
        due, self._due = self._due, None
        return due

    def events(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        """Draw any event that makes sense in `state`, the simple ones more often."""
        weights = self._weigh(state)
        kinds = [kind for kind, weight in weights.items() for _ in range(weight)]
        return st.sampled_from(kinds).flatmap(lambda kind: self.events_of(kind, state))

    def _weigh(self, state: SchedulerState) -> Mapping[type[Event], int]:
        """Give the kinds of event that make sense, with how often each is to come."""
        allowed = self.world.allowed
        is_paused = state.pause_state is not PauseState.UNPAUSED
        weights: dict[type[Event], int] = {
            Schedule: (8 if state.requests else 1) * (len(state.in_flight) < self.world.max_in_flight),
            Update: 6 if state.in_flight else 0,
            AddRequest: 6 if len(state.requests) < MAX_LIVE or open_sessions(state) else 0,
            FinishRequests: 1 if state.requests else 0,
            SetPauseState: (5 if is_paused else 1) if Feature.PAUSE in allowed else 0,
            ResetPrefixCache: 1 if Feature.RESET in allowed else 0,
            GrammarReady: 4 if requests_without_grammar(state) else 0,
            UpdateDraftsInFlight: 16 if self.can_know_drafts(state) else 0,
        }
        return {kind: weight for kind, weight in weights.items() if weight}

    def can_know_drafts(self, state: SchedulerState) -> bool:
        """Tell whether a step was planned just now whose drafts may become known."""
        is_diffusion = state.config.runner_type is RunnerType.DIFFUSION
        return self._is_fresh and not is_diffusion and bool(state.in_flight[-1].scheduled_spec_token_ids)

    def events_of(self, kind: type[Event], state: SchedulerState) -> st.SearchStrategy[Event]:
        """Draw an event of a kind that makes sense in `state`."""
        makers: Mapping[type[Event], Callable[[SchedulerState], st.SearchStrategy[Event]]] = {
            Schedule: self._schedules,
            Update: self._updates,
            AddRequest: self._adds,
            FinishRequests: self._ends,
            SetPauseState: self._pauses,
            ResetPrefixCache: self._resets,
            GrammarReady: self._grammars,
            UpdateDraftsInFlight: self._drafts_in_flight,
        }
        return makers[kind](state).map(self.at_this_time)

    def at_this_time(self, event: Event) -> Event:
        """Let the clock go on, and give the event its time."""
        self._clock += 1
        if not isinstance(event, AddRequest | Schedule | Update | ResetPrefixCache):
            return event
        time = float(self._clock) if Feature.REQUEST_EVENTS in self.world.allowed else 0.0
        return attrs.evolve(event, time=time)

    def _schedules(self, _: SchedulerState) -> st.SearchStrategy[Event]:
        may_throttle = Feature.DATA_PARALLEL in self.world.allowed
        return st.builds(Schedule, st.sampled_from([False, False, False, may_throttle]))

    def _updates(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        has_drafts, has_grammars = state.config.num_spec_tokens > 0, self.world.besides.grammars
        return st.builds(
            partial(self.answer, state),
            say=answers(),
            drafts=st.lists(DRAFTS, min_size=1, max_size=3) if has_drafts else st.just([]),
            obeys=st.sampled_from([True, True, not has_grammars]),
        )

    def answer(self, state: SchedulerState, say: Answers, drafts: Answers, *, obeys: bool) -> Event:
        """Let the oldest step in flight come back; `drafts` is what the drafter says behind it."""
        sampling = self._sampling[state.in_flight[0].step_id]
        self._drafts = drafts
        bursts = Feature.BURSTS in self.world.allowed
        return Update(make_result(state, sampling, cycle(say), obeys=obeys, bursts=bursts))

    def _adds(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        sessions = open_sessions(state)
        is_full = len(state.requests) >= MAX_LIVE
        if not sessions:
            return st.builds(partial(self._add, state), wishes())
        more = st.sampled_from(sessions).flatmap(lambda session: self.inputs(state, session))
        return more if is_full else st.one_of(st.builds(partial(self._add, state), wishes()), more)

    def _add(self, state: SchedulerState, wish: Wish) -> Event:
        request = self.world.make_request(self.num_requests, wish)
        if wish.old_id and Feature.REUSED_IDS in self.world.allowed:
            ids = free_ids(state, self._ended)
            request = attrs.evolve(request, request_id=max(ids, default=request.request_id))
        self.num_requests += 1
        self._unwilling.discard(request.request_id)
        if wish.grammar is GrammarWish.FAILS:
            self._unwilling.add(request.request_id)
        return AddRequest(request)

    def inputs(
        self, state: SchedulerState, session: RequestId, *, may_end: bool = True
    ) -> st.SearchStrategy[AddRequest]:
        """Draw the next input of a session, or its end."""
        is_end = st.booleans() if may_end else st.just(value=False)
        return st.builds(partial(self._say_more, state, session), wishes(), is_end=is_end)

    def _say_more(
        self, state: SchedulerState, session: RequestId, wish: Wish, *, is_end: bool
    ) -> AddRequest:
        asked = self.world.make_request(self.num_requests, wish)
        more = next_input(state, session, asked, is_end=is_end)
        return AddRequest(more if has_room(state, more) else attrs.evolve(more, resumable=False))

    def _ends(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        ids = live_request_ids(state)
        chosen = st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True).map(tuple)
        return st.builds(FinishRequests, st.one_of(chosen, chosen, chosen, st.none()), _ENDS)

    def _pauses(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        if state.pause_state is not PauseState.UNPAUSED:
            return st.just(SetPauseState(PauseState.UNPAUSED))
        return st.builds(SetPauseState, st.sampled_from([PauseState.PAUSED_NEW, PauseState.PAUSED_ALL]))

    def _resets(self, _: SchedulerState) -> st.SearchStrategy[Event]:
        return st.builds(ResetPrefixCache, st.booleans())

    def _grammars(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        waiting = st.sampled_from(requests_without_grammar(state))
        return st.builds(self._compile, waiting, st.sampled_from(GRAMMARS))

    def _compile(self, request_id: RequestId, grammar: Grammar) -> Event:
        if request_id in self._unwilling:
            return GrammarFailed(request_id, "no such grammar")
        return GrammarReady(request_id, grammar)

    def _drafts_in_flight(self, state: SchedulerState) -> st.SearchStrategy[Event]:
        return st.lists(DRAFTS, min_size=1, max_size=3).map(partial(self.know_drafts, state))

    def know_drafts(self, state: SchedulerState, drafts: Answers) -> Event:
        """Let the drafts of the step that was planned just now become known."""
        output = state.in_flight[-1]
        return UpdateDraftsInFlight(output.step_id, draft_in_flight(state, output, drafts))

    def way_out(self, state: SchedulerState) -> Event | None:
        """Give the next event on the way to a scheduler without requests; None where it is one."""
        waiting, sessions = requests_without_grammar(state), open_sessions(state)
        if state.pause_state is not PauseState.UNPAUSED:
            return SetPauseState(PauseState.UNPAUSED)
        if waiting:
            return self._compile(waiting[0], GRAMMARS[0])
        if sessions:
            return AddRequest(next_input(state, sessions[0], None, is_end=True))
        if len(state.in_flight) >= self.world.max_in_flight or (state.in_flight and not state.requests):
            return self.answer(
                state, [(PLAIN,)], [(PLAIN,)] * bool(state.config.num_spec_tokens), obeys=True
            )
        return self.at_this_time(Schedule()) if state.requests else None
