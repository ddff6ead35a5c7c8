"""The Hypothesis state machine: a scheduler under test and the machine of this package, until they part."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import attrs
from hypothesis import event as note
from hypothesis import strategies as st
from hypothesis import target
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvsched_fp.events import AddRequest, Event, ResetPrefixCache, Schedule, Update
from kvsched_fp.testing.adapter import Adapter
from kvsched_fp.testing.duel import Duel
from kvsched_fp.testing.features import Feature
from kvsched_fp.testing.parting import HIDE, Parting
from kvsched_fp.testing.reporting import report
from kvsched_fp.testing.strategies.events import Outside
from kvsched_fp.testing.strategies.kinds import FIRST_REQUESTS, Kind
from kvsched_fp.testing.strategies.outside import open_sessions
from kvsched_fp.testing.strategies.plays import Play, floods, plays, ways_in
from kvsched_fp.testing.strategies.worlds import World, rough_worlds
from kvsched_fp.testing.witnesses import witness

MAX_WAYS_OUT = 40
"""Events at the end of a run, in which what is live may come to its end."""
MAX_IDLE = 3
"""Steps in a row that give nobody anything, with nothing else in flight; then nobody gets on by itself."""


@attrs.define
class Tally:
    """What was compared, over all runs of a machine."""

    num_runs: int = 0
    num_events: int = 0
    situations: Counter[str] = attrs.field(factory=Counter)
    """How often each of `witnesses.witness` came up."""

    def __str__(self) -> str:
        met = ", ".join(f"{name} ({number:,})" for name, number in sorted(self.situations.items()))
        return f"{self.num_runs:,} runs, {self.num_events:,} events compared; met: {met or 'nothing'}"


class SchedulerMachine(RuleBasedStateMachine):
    """One run: a world is drawn, then events, one after the other.

    `checking.scheduler_machine` makes subclasses.
    """

    adapter: ClassVar[Adapter]
    """The scheduler under test."""
    trace_dir: ClassVar[Path | None] = None
    """Where the trace of a difference goes."""
    tally: ClassVar[Tally]
    """What was compared so far."""
    partings: ClassVar[list[Parting]]
    """What was found so far, as it was played."""

    def __init__(self) -> None:
        super().__init__()
        self._duel: Duel | None = None
        self._outside: Outside
        self._is_whole = True
        self._most_used = 0.0
        self._num_preemptions = 0
        self._num_idle = 0

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Begin in a small world."""
        __tracebackhide__ = HIDE
        world: World = data.draw(rough_worlds(self.adapter.features), label="world")
        config = self.adapter.adapt_config(world.config)
        most = max(world.max_in_flight, config.pipeline_parallel_size + int(config.async_scheduling))
        world = attrs.evolve(world, config=config, max_in_flight=most)
        self._outside = Outside(world)
        duel = Duel(self.adapter, config)
        self._tell(duel.start())
        self._duel = duel
        self.tally.num_runs += 1
        self._open(data, world.kind)

    def _open(self, data: st.DataObject, kind: Kind) -> None:
        """Let the first requests come, as they do in a world of this kind."""
        __tracebackhide__ = HIDE
        assert self._duel is not None
        for _ in range(data.draw(FIRST_REQUESTS[kind], label="first requests")):
            self._apply(data.draw(self._outside.events_of(AddRequest, self._duel.state), label="event"))
            if kind is Kind.TIGHT:
                self._play(data.draw(ways_in(), label="play"))
        if kind is Kind.TALK:
            for session in open_sessions(self._duel.state):
                inputs = self._outside.inputs(self._duel.state, session, may_end=False)
                self._apply(self._outside.at_this_time(data.draw(inputs, label="event")))
        if kind is Kind.FLOOD:
            self._play(data.draw(floods(), label="play"))

    @rule(data=st.data())
    def happen(self, data: st.DataObject) -> None:
        """Let any event happen that makes sense."""
        __tracebackhide__ = HIDE
        assert self._duel is not None
        self._apply(data.draw(self._outside.events(self._duel.state), label="event"))

    @rule(play=plays())
    def go_on(self, play: Play) -> None:
        """Let some steps happen, while nothing comes from outside."""
        __tracebackhide__ = HIDE
        self._play(play)

    def _play(self, play: Play) -> None:
        """Let some steps happen, until nobody gets on without an event from outside."""
        __tracebackhide__ = HIDE
        assert self._duel is not None
        for move in play.moves:
            state = self._duel.state
            is_idle = self._num_idle >= MAX_IDLE
            if not state.in_flight and (is_idle or not state.requests):
                break
            if move == "X":
                self._apply(self._outside.at_this_time(ResetPrefixCache(reset_running_requests=True)))
            elif move == "S" and not is_idle and len(state.in_flight) < self._outside.world.max_in_flight:
                throttle = play.throttle and Feature.DATA_PARALLEL in self._outside.world.allowed
                self._apply(self._outside.at_this_time(Schedule(throttle)))
                if play.knows and self._outside.can_know_drafts(self._duel.state):
                    self._apply(self._outside.know_drafts(self._duel.state, play.drafts))
            elif state.in_flight:
                drafts = play.drafts if state.config.num_spec_tokens else []
                answer = self._outside.answer(state, play.say, drafts, obeys=play.obeys)
                self._apply(self._outside.at_this_time(answer))

    def _apply(self, event: Event) -> None:
        """Let both do an event, and the drafts that follow it."""
        __tracebackhide__ = HIDE
        assert self._duel is not None
        pending: Event | None = event
        self._is_whole = False
        while pending is not None:
            before = self._duel.state
            self._tell(self._duel.play(pending))
            self._outside.observe(before, pending, self._duel.state)
            self._watch()
            pending = self._outside.take_due()
        self._is_whole = True

    def _tell(self, parting: Parting | None) -> None:
        """Raise a parting, if there is one, and keep it: it may not come again."""
        __tracebackhide__ = HIDE
        if parting is not None:
            self.partings.append(parting)
            raise report(parting, self.trace_dir, type(self).__name__)

    def _watch(self) -> None:
        """Tell Hypothesis what came up, and keep what it is to aim for."""
        assert self._duel is not None
        replayed = self._duel.played[-1]
        for situation in witness(replayed):
            note(situation)
            self.tally.situations[situation] += 1
        self.tally.num_events += 1
        match replayed.event:
            case Schedule(throttle_prefills=False):
                is_idle = not any(output.num_scheduled_tokens for output in replayed.after.in_flight)
                self._num_idle = self._num_idle + 1 if is_idle else 0
            case Schedule() | Update():
                pass
            case _:
                self._num_idle = 0
        self._most_used = max(self._most_used, replayed.after.kv.pool.usage)
        self._num_preemptions += isinstance(replayed.event, Schedule) and bool(
            replayed.after.in_flight[-1].preempted_request_ids
        )

    def teardown(self) -> None:
        """Let what is live come to its end, and stop the scheduler under test."""
        __tracebackhide__ = HIDE
        if self._duel is None:
            return
        try:
            for _ in range(MAX_WAYS_OUT if self._is_whole else 0):
                way_out = self._outside.way_out(self._duel.state)
                is_idle = self._num_idle >= MAX_IDLE and isinstance(way_out, Schedule)
                if way_out is None or is_idle:
                    break
                self._apply(way_out)
            target(self._most_used, label="share of the pool in use")
            target(float(self._num_preemptions), label="steps that preempted")
        except BaseException:
            self._duel.stop()
            raise
        self._tell(self._duel.stop())
