"""The machine beside a real scheduler: the same inputs, and every output compared."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import attrs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.assignments import STATE_FIELDS, AssignedConfig, reassign_request
from kvsched_fp.adapters.vllm.compare import (
    find_different_request,
    find_differently_asked,
    find_moved_request,
    find_other_priority,
    is_same_step,
    is_same_token_map,
    is_same_told,
)
from kvsched_fp.adapters.vllm.counters import find_different_counter
from kvsched_fp.adapters.vllm.feeding import read_vllm_request
from kvsched_fp.adapters.vllm.grammars import RejectingGrammar
from kvsched_fp.adapters.vllm.history import History
from kvsched_fp.adapters.vllm.options import ShadowOptions
from kvsched_fp.adapters.vllm.outputs import to_kv_event
from kvsched_fp.adapters.vllm.pairings import PREFIX_CACHE_STATS, first_unmodelled
from kvsched_fp.adapters.vllm.recorded import (
    read_emitted,
    read_output,
    read_request,
    read_told,
    sorted_sets,
    view_request,
)
from kvsched_fp.adapters.vllm.report import Parting, Report, act_on, make_report
from kvsched_fp.adapters.vllm.trace_file import ASKED_FOR_FIGURES, ASSIGNED, REJECTED, TraceFile
from kvsched_fp.bitmask import GrammarRows, grammar_rows
from kvsched_fp.config import SchedulerConfig, SchedulingPolicy
from kvsched_fp.errors import KvschedError
from kvsched_fp.events import Event, Schedule, Update, UpdateDraftsInFlight
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.machine import Outcome, step
from kvsched_fp.outputs import Emitted, PrefixCacheStats, SchedulerOutput
from kvsched_fp.queues import WaitingQueue
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.trace.codec import Told, what_was_told
from kvsched_fp.trace.difference import Difference, first_difference
from kvsched_fp.trace.divergence import NUM_LAST_EVENTS, describe

NUM_WAITING_COMPARED = 32
"""Waiting requests at the front of the queue that are compared after every call, which must not cost the
length of the queue."""

NUM_LOOKED_AT_CLOSELY = 8
"""Of all requests as many are looked at more closely after every call but `schedule`, in turn."""


class Beside:
    """The machine, what happened to it, and the first difference."""

    def __init__(self, real: Scheduler, config: SchedulerConfig, options: ShadowOptions) -> None:
        self.real = real
        self.state = initial_state(config)
        self.options = options
        self.report: Report | None = None
        self._history = History(config)
        self._trace = None if options.trace is None else TraceFile(options.trace, config)
        self._last: deque[tuple[int, Event, Outcome]] = deque(maxlen=NUM_LAST_EVENTS)
        self._assigned = AssignedConfig(real)
        self._sweep: Iterator[VllmRequest] = iter(())

    @property
    def is_watching(self) -> bool:
        """Whether both sides have been the same so far."""
        return self.report is None

    # Assignments.

    def before_call(self) -> None:
        """Take over what was assigned on the real scheduler since the last call."""
        if not self.is_watching:
            return
        config = self._assigned.follow(self.state.config)
        if config is not self.state.config:
            self._take_over(config)
        for name in STATE_FIELDS:
            if getattr(self.real, name) != getattr(self.state, name):
                self._assign(attrs.evolve(self.state, **{name: getattr(self.real, name)}))
        if self.state.config.policy is SchedulingPolicy.PRIORITY:
            for request in self.real.running:
                if request.priority != self.state.requests[request.request_id].priority:
                    self._assign(reassign_request(self.state, request, "priority", request.priority))

    def _take_over(self, config: SchedulerConfig) -> None:
        if self._history.num_events > 0:
            self._assign(attrs.evolve(self.state, config=config))
            return
        self.state = initial_state(config)
        self._history.config = config
        if self._trace is not None:
            self._trace.restart(config)

    def _assign(self, state: SchedulerState, reason: str = ASSIGNED) -> None:
        """Change the state by something that is no event."""
        self.state = state
        self._lose_track(reason)

    def _lose_track(self, reason: str) -> None:
        """Go on, but without a trace: it could not tell what has just happened."""
        self._history.is_complete = False
        if self._trace is not None:
            self._trace.stop(reason)

    def take_look_ups(self, stats: Any) -> None:
        """Take in that somebody asked the real scheduler for its figures between two steps."""
        if not self.is_watching:
            return
        kv = self.state.kv
        real = PREFIX_CACHE_STATS.to_ours(stats.prefix_cache_stats)
        if real == kv.prefix_cache_stats == PrefixCacheStats():
            return
        difference = first_difference(real, kv.prefix_cache_stats, "stats.prefix_cache_stats")
        self._lose_track(ASKED_FOR_FIGURES)
        if difference is None:
            self.state = attrs.evolve(
                self.state, kv=attrs.evolve(kv, prefix_cache_stats=PrefixCacheStats())
            )

    # Events.

    def read_request(self, request: VllmRequest) -> Request:
        """Read a request that is about to be added, or refuse it by an error."""
        return read_vllm_request(self.state, request)

    def take(self, event: Event, answer: Any = None, kv_events: tuple[Any, ...] = ()) -> None:
        """Let `event` happen to the machine, and compare with what the real scheduler answered."""
        if not self.is_watching:
            return
        before = self.state
        self._history.append(event)
        try:
            after, outcome = step(before, event)
        except KvschedError as error:
            difference = Difference("raised", "nothing", str(error))
            self._part(Parting(event, before, before, None, difference, None))
            return
        self.state = after
        self._last.append((self._history.num_events, event, outcome))
        if self._trace is not None:
            self._trace.write(event, self._read(event, answer, kv_events))
        different = self._compare_answer(event, after, outcome, answer, kv_events)
        different = different or self._compare_inside(event, after)
        if different is not None:
            told = self._read(event, answer, kv_events)
            self._part(Parting(event, before, after, outcome, different, told))

    def _read(self, event: Event, answer: Any, kv_events: tuple[Any, ...]) -> Told:
        return read_told(event, answer, kv_events, self.real.current_step)

    def _part(self, parting: Parting) -> None:
        texts = tuple(describe(*entry) for entry in self._last)
        self.report = make_report(parting, self._history, texts, self.options)
        self.close()
        act_on(self.report, self.options)

    def close(self) -> None:
        """Finish the files."""
        self._history.close()
        if self._trace is not None:
            self._trace.close()

    def take_rejections(self, request_ids: Iterable[RequestId]) -> None:
        """Let the grammars of these requests reject what comes next; no trace can tell that."""
        if not self.is_watching:
            return
        progress = self.state.progress.mutate()
        for request_id in filter(self.state.requests.__contains__, request_ids):
            progress[request_id] = attrs.evolve(progress[request_id], grammar=RejectingGrammar())
        self._assign(attrs.evolve(self.state, progress=progress.finish()), REJECTED)

    def take_rows(self, step_id: StepId, rows: Any) -> None:
        """Compare which rows of a step need a mask."""
        if not self.is_watching:
            return
        output = next(output for output in self.state.in_flight if output.step_id == step_id)
        ours = grammar_rows(self.state, output)
        real = None
        if rows is not None:
            real = GrammarRows(tuple(rows.structured_output_request_ids), tuple(rows.num_acceptable_drafts))
        difference = first_difference(real, ours, "grammar_rows")
        if difference is not None:
            _, event, outcome = self._last[-1]
            told = what_was_told(event, self.state, outcome)
            self._part(Parting(event, self.state, self.state, outcome, difference, told))

    # Comparing.

    def _compare_answer(  # noqa: PLR0911  one return per kind of event
        self,
        event: Event,
        after: SchedulerState,
        outcome: Outcome,
        answer: Any,
        kv_events: tuple[Any, ...],
    ) -> Difference | None:
        """Compare what came of the last event."""
        if isinstance(outcome, SchedulerOutput):
            unmodelled = first_unmodelled(answer)
            if unmodelled is not None:
                return Difference(f"output.{unmodelled[0]}", repr(unmodelled[1]), "(not modelled)")
            if is_same_step(answer, outcome):
                return None
            real = read_output(answer, outcome.step_id)
            return first_difference(real, sorted_sets(outcome), "output")
        if isinstance(outcome, bool):
            return None if outcome == answer else Difference("done", answer, outcome)
        if isinstance(event, UpdateDraftsInFlight):
            return _compare_drafts(answer, after, event.step_id)
        if isinstance(event, Update):
            return self._compare_told(after.emitted, answer, kv_events, event.time)
        return None

    def _compare_told(
        self, ours: Emitted, answer: dict[int, Any], kv_events: tuple[Any, ...], time: float
    ) -> Difference | None:
        """Compare what an update told."""
        if is_same_told(answer, ours, time):
            return self._compare_kv_events(ours.kv_events, kv_events)
        real = attrs.evolve(read_emitted(answer, (), time), kv_events=ours.kv_events)
        return first_difference(real, sorted_sets(ours), "emitted")

    def _compare_kv_events(self, ours: tuple[Any, ...], real: tuple[Any, ...]) -> Difference | None:
        if not ours and not real:
            return None
        made = [to_kv_event(event, self.real.kv_cache_config) for event in ours]
        for index, (left, right) in enumerate(zip(real, made, strict=False)):
            if left != right:
                return Difference(f"emitted.kv_events[{index}]", repr(left), repr(right))
        if len(real) == len(made):
            return None
        return Difference("emitted.kv_events", f"{len(real)} events", f"{len(made)} events")

    def _compare_inside(self, event: Event, after: SchedulerState) -> Difference | None:
        """Compare the progress of the requests, the queues and the counters."""
        real = self.real
        running = tuple([request.request_id for request in real.running])
        if running != after.running:
            return first_difference(running, after.running, "running")
        request = self._find_different_request(event, after)
        if request is not None:
            return _in_request(request, after)
        return (
            find_different_counter(real, after)
            or self._compare_queue("waiting", real.waiting, after.waiting)
            or self._compare_queue("kv_holding_waiting", real.kv_holding_waiting, after.kv_holding_waiting)
        )

    def _find_different_request(self, event: Event, after: SchedulerState) -> VllmRequest | None:
        """Give a request whose progress differs; what a call cannot have changed is looked at in turn."""
        real = self.real
        if isinstance(event, Schedule):
            request = find_moved_request(real.running, after)
            others: list[VllmRequest] = []
        else:
            request = find_different_request(real.running, after)
            others = self._next_of_sweep()
            request = request or find_differently_asked(others, after)
        if request is None and len(real.requests) > len(real.running):
            waiting = [*self._front_of(real.waiting), *self._front_of(real.kv_holding_waiting)]
            request = find_different_request([*waiting, *others], after)
        return request or find_other_priority(real.running, after)

    def _compare_queue(self, name: str, real: Any, ours: WaitingQueue) -> Difference | None:
        """Compare the front of a waiting queue."""
        if not real and not ours:
            return None
        theirs = tuple([request.request_id for request in self._front_of(real)])
        front = tuple(islice(ours, len(theirs)))
        return None if front == theirs else first_difference(theirs, front, name)

    def _front_of(self, queue: Any) -> list[VllmRequest]:
        """Give the front of a waiting queue. To iterate over a heap costs its length."""
        if self.state.config.policy is SchedulingPolicy.PRIORITY:
            return [queue.peek_request()] if queue else []
        return list(islice(queue, NUM_WAITING_COMPARED))

    def _next_of_sweep(self) -> list[VllmRequest]:
        """Give the next requests of a round through all."""
        requests = self.real.requests
        chosen = list(islice(self._sweep, NUM_LOOKED_AT_CLOSELY))
        if len(chosen) < NUM_LOOKED_AT_CLOSELY:
            self._sweep = iter(list(requests.values()))
            chosen = chosen or list(islice(self._sweep, NUM_LOOKED_AT_CLOSELY))
        return [request for request in chosen if requests.get(request.request_id) is request]


def _in_request(request: VllmRequest, after: SchedulerState) -> Difference:
    """Find where the progress of one request differs."""
    request_id = RequestId(request.request_id)
    path = f"requests[{json.dumps(request_id)}]"
    ours = after.progress.get(request_id)
    if ours is None:
        return Difference(path, request.status.name, "(no such request)")
    real, view = read_request(request), view_request(after.requests[request_id], ours)
    if not after.config.enable_prefix_caching:
        # Then nobody here needs the hashes.
        view = attrs.evolve(view, block_hashes=real.block_hashes)
    return first_difference(real, view, path) or Difference(path, repr(real), repr(view))


def _compare_drafts(real: Any, after: SchedulerState, step_id: StepId) -> Difference | None:
    """Compare the drafts of a step in flight that were replaced."""
    ours = next(output for output in after.in_flight if output.step_id == step_id)
    if real.num_invalid_spec_tokens == dict(ours.num_invalid_spec_tokens or {}) and is_same_token_map(
        real.scheduled_spec_decode_tokens, ours.scheduled_spec_token_ids
    ):
        return None
    read = read_output(real, step_id)
    return first_difference(
        read.scheduled_spec_token_ids, ours.scheduled_spec_token_ids, "output.scheduled_spec_token_ids"
    ) or first_difference(
        read.num_invalid_spec_tokens, ours.num_invalid_spec_tokens, "output.num_invalid_spec_tokens"
    )
