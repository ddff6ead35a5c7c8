"""The figures of a run, gathered event by event in bounded memory.

Only counters, two histograms and one number per live request are kept. All times are simulated seconds.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from kvsched_fp.events import AddRequest, StepResult, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.kv_events import BlockRemoved
from kvsched_fp.outputs import Emitted, EngineOutput, PrefixCacheStats, SchedulerOutput
from kvsched_fp.state import SchedulerState
from kvsched_fp.workloads.clock import max_steps_in_flight
from kvsched_fp.workloads.histogram import Histogram
from kvsched_fp.workloads.play import Played


@attrs.frozen(kw_only=True)
class Figures:
    """What a run came to."""

    num_requests: int
    """Requests added."""
    num_finished: int
    """Of those, the ones that ended."""
    num_events: int
    """Events of all kinds."""
    num_steps: int
    """Steps that scheduled anything."""
    num_scheduled_tokens: int
    """Tokens computed, those computed anew after a preemption included."""
    num_prompt_tokens: int
    """Tokens of the prompts of all requests added."""
    num_output_tokens: int
    """Tokens sampled and delivered."""
    mean_tokens_per_step: float | None
    """`num_scheduled_tokens` per step."""
    mean_running: float | None
    """Running requests, the mean over the steps."""
    peak_running: int
    """The most running requests."""
    peak_waiting: int
    """The most waiting requests inside the scheduler."""
    num_preemptions: int
    """How often a request lost its blocks."""
    prefix_cache_hit_rate: float | None
    """Hits per queried token over first admissions, from 0.0 to 1.0; None if no statistics are kept."""
    num_evicted_blocks: int | None
    """Cached blocks whose content was lost; None if KV cache events are off."""
    peak_used_blocks: int
    """The most blocks in use."""
    peak_block_usage: float
    """That as a share of the usable blocks, from 0.0 to 1.0."""
    time_to_first_token: Mapping[str, float | None]
    """From the arrival to the end of the step that sampled the first token: mean, p50, p99, max."""
    time_between_tokens: Mapping[str, float | None]
    """From one token of a request to its next, 0.0 where they came together: mean, p50, p99, max."""
    simulated_seconds: float
    """When the last event happened."""
    steps_in_flight: Mapping[str, float | None] | None = None
    """Steps with tokens that were in flight once one was planned, itself included: mean, max. None if the
    engine plans no step ahead."""
    drafts: Mapping[str, float | None] | None = None
    """What became of the drafts, as the reference counts it; None without speculation:

    | name                     | what                                                                |
    |--------------------------|---------------------------------------------------------------------|
    | `num_draft_tokens`       | drafts verified, padding included                                   |
    | `num_accepted_tokens`    | of those, the ones accepted                                         |
    | `acceptance_rate`        | `num_accepted_tokens` per draft verified                            |
    | `mean_acceptance_length` | tokens per verification: the drafts accepted, and the sampled token |
    """


class Summary:
    """The accumulator: `record` every event, then ask for `figures`."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_finished = 0
        self.num_events = 0
        self.num_steps = 0
        self._num_scheduled_tokens = 0
        self._num_prompt_tokens = 0
        self._num_output_tokens = 0
        self._sum_running = 0
        self._peak_running = 0
        self._peak_waiting = 0
        self._num_preemptions = 0
        self._num_evicted_blocks: int | None = None
        self._prefix_cache: PrefixCacheStats | None = None
        self._peak_used_blocks = 0
        self._num_usable_blocks = 0
        self._time = 0.0
        self._first_token = Histogram()
        self._between_tokens = Histogram()
        self._plans_ahead = False
        self._steps_in_flight = _StepsInFlight()
        self._speculates = False
        self._drafts = _Drafts()
        # Per live request, the moment from which its next token counts: its arrival or its last token.
        self._waiting_since: dict[RequestId, float] = {}
        self._has_output: set[RequestId] = set()

    def record(self, played: Played) -> None:
        """Take in one event."""
        self.num_events += 1
        self._time = played.time
        match played.event:
            case AddRequest(request):
                self.num_requests += 1
                self._num_prompt_tokens += request.num_prompt_tokens
                self._waiting_since[request.request_id] = request.arrival_time
            case Update(result):
                self._record_emitted(played.after.emitted)
                self._drafts.record(played.before.in_flight[0], result)
            case _ if isinstance(played.outcome, SchedulerOutput):
                self._record_step(played.after, played.outcome)

    def _record_step(self, state: SchedulerState, output: SchedulerOutput) -> None:
        num_running = len(state.running)
        self._peak_running = max(self._peak_running, num_running)
        self._peak_waiting = max(self._peak_waiting, len(state.requests) - num_running)
        self._num_preemptions += len(output.preempted_request_ids)
        pool = state.kv.pool
        self._num_usable_blocks = pool.num_blocks - 1
        self._peak_used_blocks = max(self._peak_used_blocks, self._num_usable_blocks - pool.num_free_blocks)
        if state.config.enable_kv_cache_events and self._num_evicted_blocks is None:
            self._num_evicted_blocks = 0
        self._plans_ahead = max_steps_in_flight(state.config) > 1
        self._speculates = state.config.num_spec_tokens > 0
        if output.total_num_scheduled_tokens:
            self.num_steps += 1
            self._steps_in_flight.record(state)
            self._num_scheduled_tokens += output.total_num_scheduled_tokens
            self._sum_running += num_running

    def _record_emitted(self, emitted: Emitted) -> None:
        gaps: Counter[float] = Counter()
        for told in emitted.clients.values():
            for output in told.outputs:
                self._record_output(output, gaps)
            if told.scheduler_stats is not None:
                self._record_look_ups(told.scheduler_stats.prefix_cache_stats)
        # Most requests of a step sampled their last token in one step too.
        for gap, times in gaps.items():
            self._between_tokens.add(gap, times)
        if self._num_evicted_blocks is not None:
            self._num_evicted_blocks += sum(isinstance(event, BlockRemoved) for event in emitted.kv_events)

    def _record_output(self, output: EngineOutput, gaps: Counter[float]) -> None:
        request_id = output.request_id
        self._num_output_tokens += len(output.new_token_ids)
        waited = self._time - self._waiting_since[request_id]
        if len(output.new_token_ids) > 1:
            gaps[0.0] += len(output.new_token_ids) - 1
        if request_id in self._has_output:
            gaps[waited] += 1
        else:
            self._first_token.add(waited)
            self._has_output.add(request_id)
        if output.finish_reason is None:
            self._waiting_since[request_id] = self._time
        else:
            self.num_finished += 1
            del self._waiting_since[request_id]
            self._has_output.discard(request_id)

    def _record_look_ups(self, stats: PrefixCacheStats) -> None:
        if stats.requests or self._prefix_cache is None:
            so_far = self._prefix_cache or PrefixCacheStats()
            self._prefix_cache = so_far.record(stats.queries, stats.hits, preempted=False)

    def figures(self) -> Figures:
        """Give the figures so far."""
        look_ups = self._prefix_cache
        return Figures(
            num_requests=self.num_requests,
            num_finished=self.num_finished,
            num_events=self.num_events,
            num_steps=self.num_steps,
            num_scheduled_tokens=self._num_scheduled_tokens,
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            mean_tokens_per_step=_ratio(self._num_scheduled_tokens, self.num_steps),
            mean_running=_ratio(self._sum_running, self.num_steps),
            peak_running=self._peak_running,
            peak_waiting=self._peak_waiting,
            num_preemptions=self._num_preemptions,
            prefix_cache_hit_rate=None if look_ups is None else _ratio(look_ups.hits, look_ups.queries),
            num_evicted_blocks=self._num_evicted_blocks,
            peak_used_blocks=self._peak_used_blocks,
            peak_block_usage=_ratio(self._peak_used_blocks, self._num_usable_blocks) or 0.0,
            time_to_first_token=self._first_token.as_mapping(),
            time_between_tokens=self._between_tokens.as_mapping(),
            simulated_seconds=self._time,
            steps_in_flight=self._steps_in_flight.as_mapping() if self._plans_ahead else None,
            drafts=self._drafts.as_mapping() if self._speculates else None,
        )


class _StepsInFlight:
    """How many steps overlap."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._sum = 0
        self._peak = 0

    def record(self, state: SchedulerState) -> None:
        """Count what is in flight in `state`, which a step with tokens was just planned in."""
        in_flight = sum(output.total_num_scheduled_tokens > 0 for output in state.in_flight)
        self._num_steps += 1
        self._sum += in_flight
        self._peak = max(self._peak, in_flight)

    def as_mapping(self) -> Mapping[str, float | None]:
        """Give mean and maximum."""
        return {"mean": _ratio(self._sum, self._num_steps), "max": self._peak}


class _Drafts:
    """What became of the drafts."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._num_drafts = 0
        self._num_accepted = 0

    def record(self, output: SchedulerOutput, result: StepResult) -> None:
        """Count the rows of `output` that had drafts and, in `result`, tokens."""
        for request_id, drafts in output.scheduled_spec_token_ids.items():
            token_ids = result.sampled_token_ids.get(request_id)
            if token_ids:
                self._num_rows += 1
                self._num_drafts += len(drafts)
                self._num_accepted += len(token_ids) - 1

    def as_mapping(self) -> Mapping[str, float | None]:
        """Give the figures by name."""
        length = _ratio(self._num_accepted + self._num_rows, self._num_rows)
        return {
            "num_draft_tokens": self._num_drafts,
            "num_accepted_tokens": self._num_accepted,
            "acceptance_rate": _ratio(self._num_accepted, self._num_drafts),
            "mean_acceptance_length": length,
        }


_FIGURES_OF_FEATURES = frozenset({"steps_in_flight", "drafts"})
"""The fields that are None where a feature is off."""


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def figures_as_mapping(figures: Figures) -> dict[str, Any]:
    """Give the figures as plain values, in the order of the fields, without those of what is off."""
    return {
        field.name: dict(value) if isinstance(value, Mapping) else value
        for field in attrs.fields(Figures)
        if (value := getattr(figures, field.name)) is not None or field.name not in _FIGURES_OF_FEATURES
    }
