"""The machine beside a real scheduler: the same inputs, and every output compared."""

import json
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.assignments import STATE_FIELDS, AssignedConfig, reassign_request
from kvsched_fp.adapters.vllm.compare import (
    find_different_request,
    find_moved_request,
    is_same_step,
    is_same_told,
)
from kvsched_fp.adapters.vllm.feeding import add_vllm_request
from kvsched_fp.adapters.vllm.history import History
from kvsched_fp.adapters.vllm.options import ShadowOptions
from kvsched_fp.adapters.vllm.outputs import to_kv_event
from kvsched_fp.adapters.vllm.pairings import PREFIX_CACHE_STATS, first_unmodelled
from kvsched_fp.adapters.vllm.recorded import (
    RequestView,
    read_emitted,
    read_output,
    read_request,
    read_told,
    sorted_sets,
)
from kvsched_fp.adapters.vllm.report import Parting, Report, act_on, make_report
from kvsched_fp.adapters.vllm.trace_file import ASKED_FOR_FIGURES, ASSIGNED, TraceFile
from kvsched_fp.config import SchedulerConfig, SchedulingPolicy
from kvsched_fp.errors import KvschedError
from kvsched_fp.events import Event, Schedule
from kvsched_fp.ids import RequestId
from kvsched_fp.machine import Outcome, step
from kvsched_fp.outputs import Emitted, PrefixCacheStats, SchedulerOutput
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState, initial_state, num_waiting_requests
from kvsched_fp.trace.codec import Told
from kvsched_fp.trace.difference import Difference, first_difference
from kvsched_fp.trace.divergence import NUM_LAST_EVENTS, describe

NUM_WAITING_COMPARED = 32
"""Waiting requests at the front of the queue that are compared after every call. Of the others as many more
are, in turn: a call must not cost the length of the queue."""


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

    def _assign(self, state: SchedulerState) -> None:
        """Change the state by something that is no event."""
        self.state = state
        self._lose_track(ASSIGNED)

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
        return add_vllm_request(self.state, request).requests[request.request_id]

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
        different = self._compare_answer(after, outcome, answer, kv_events) or self._compare_inside(
            event, after
        )
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

    # Comparing.

    def _compare_answer(
        self, after: SchedulerState, outcome: Outcome, answer: Any, kv_events: tuple[Any, ...]
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
        return self._compare_told(after.emitted, answer, kv_events) if isinstance(answer, dict) else None

    def _compare_told(
        self, ours: Emitted, answer: dict[int, Any], kv_events: tuple[Any, ...]
    ) -> Difference | None:
        """Compare what an update told."""
        if is_same_told(answer, ours):
            return self._compare_kv_events(ours.kv_events, kv_events)
        real = attrs.evolve(read_emitted(answer, ()), kv_events=ours.kv_events)
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
        compare_running = find_moved_request if isinstance(event, Schedule) else find_different_request
        request = compare_running(real.running, map(after.progress.__getitem__, running))
        if request is None:
            chosen = [*self._some_waiting(), *self._next_of_sweep()]
            ours = [after.progress.get(waiting.request_id) for waiting in chosen]
            request = find_different_request(chosen, ours)
        if request is not None:
            return _in_request(request, after)
        pairs = [
            ("num_waiting", len(real.waiting) + len(real.kv_holding_waiting), num_waiting_requests(after)),
            ("num_deferred", len(real.deferred_waiting), len(after.deferred)),
            ("num_requests", len(real.requests), len(after.requests)),
            (
                "num_free_blocks",
                real.kv_cache_manager.block_pool.get_num_free_blocks(),
                after.kv.pool.num_free_blocks,
            ),
            ("current_step", real.current_step, after.current_step),
            ("pause_state", real.pause_state.name, after.pause_state.name),
            *((name, getattr(real, name), getattr(after, name)) for name in STATE_FIELDS),
        ]
        for path, left, right in pairs:
            if left != right:
                return Difference(path, left, right)
        num_compared = 1 if after.config.policy is SchedulingPolicy.PRIORITY else NUM_WAITING_COMPARED
        waiting = tuple(islice(after.waiting, num_compared))
        theirs = tuple(request.request_id for request in self._some_waiting())
        return None if waiting == theirs else first_difference(theirs, waiting, "waiting")

    def _some_waiting(self) -> list[VllmRequest]:
        """Give the front of the waiting queue. To iterate over a heap costs its length."""
        waiting = self.real.waiting
        if self.state.config.policy is SchedulingPolicy.PRIORITY:
            return [waiting.peek_request()] if waiting else []
        return list(islice(waiting, NUM_WAITING_COMPARED))

    def _next_of_sweep(self) -> list[VllmRequest]:
        """Give the next requests of a round through all."""
        requests = self.real.requests
        if len(requests) == len(self.real.running):
            return []
        chosen = list(islice(self._sweep, NUM_WAITING_COMPARED))
        if not chosen:
            self._sweep = iter(list(requests.values()))
        return [request for request in chosen if requests.get(request.request_id) is request]


def _in_request(request: VllmRequest, after: SchedulerState) -> Difference:
    """Find where the progress of one request differs."""
    request_id = RequestId(request.request_id)
    path = f"requests[{json.dumps(request_id)}]"
    ours = after.progress.get(request_id)
    if ours is None:
        return Difference(path, request.status.name, "(no such request)")
    real = read_request(request)
    shown = {field.name for field in attrs.fields(RequestView)}
    same = shown - {"status", "output_token_ids", "block_hashes", "priority"}
    view = RequestView(
        **{name: getattr(ours, name) for name in same},
        status=ours.status.name,
        output_token_ids=tuple(ours.output_token_ids),
        # Without prefix caching nobody here needs the hashes.
        block_hashes=ours.block_hashes if after.config.enable_prefix_caching else real.block_hashes,
        priority=after.requests[request_id].priority,
    )
    return first_difference(real, view, path) or Difference(path, repr(real), repr(view))
