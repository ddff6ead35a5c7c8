"""The reference: the real scheduler behind our alphabet of events.

Importing this module imports vLLM; nothing that pytest collects does so before it has checked that
vLLM is there.
"""

from collections import deque
from unittest import mock

from vllm.distributed.kv_events import KVEventBatch
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.request import StructuredOutputRequest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SchedulerConfig,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.adapters.vllm.driving.build import build_scheduler
from kvsched_fp.adapters.vllm.driving.calls import (
    reset_prefix_cache,
    to_vllm_drafts,
    update_from_output,
)
from kvsched_fp.adapters.vllm.driving.clock import Clock
from kvsched_fp.adapters.vllm.driving.requests import (
    VllmGrammar,
    make_request_hasher,
    to_model_runner_output,
    to_vllm_request,
)

from .plain import Plain
from .vllm_emitted import emitted_to_plain
from .vllm_outputs import scheduler_output_to_plain
from .vllm_view import scheduler_to_plain


class _KeptEvents:
    """Stands in for the publisher of key-value events: keeps what is published."""

    def __init__(self) -> None:
        self._batches: list[KVEventBatch] = []

    def publish(self, batch: KVEventBatch) -> None:
        """Take a batch, as the real publishers do."""
        self._batches.append(batch)

    def take(self) -> list[KVEventBatch]:
        """Give what was published since the last time."""
        batches, self._batches = self._batches, []
        return batches


class ReferenceScheduler:
    """A real scheduler, and the engine's share: the steps in flight, oldest first."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.scheduler = build_scheduler(config)
        self._hasher = make_request_hasher(config)
        self._events = _KeptEvents()
        self.scheduler.kv_event_publisher = self._events
        self._in_flight: deque[tuple[int, SchedulerOutput]] = deque()
        self._clock = Clock()
        self._logs_events = config.log_request_events

    def apply(self, event: Event) -> Plain:
        """Let `event` happen; give what came of it, in normal form."""
        self._clock.now = getattr(event, "time", 0.0)
        with self._clock.shown():
            outcome = self._apply(event)
        return {"event": type(event).__name__, "outcome": outcome}

    def view(self) -> Plain:
        """Give the whole state, in normal form."""
        in_flight = [
            [step_id, [list(item) for item in output.num_scheduled_tokens.items()]]
            for step_id, output in self._in_flight
        ]
        return {
            **scheduler_to_plain(self.scheduler),
            "in_flight": in_flight,
            "grammar_rows": [self._grammar_rows(output) for _, output in self._in_flight],
        }

    def _grammar_rows(self, output: SchedulerOutput) -> Plain:
        with mock.patch.object(StructuredOutputManager, "grammar_bitmask", return_value=None):
            rows = self.scheduler.get_grammar_bitmask(output)
        if rows is None:
            return None
        return {
            "request_ids": list(rows.structured_output_request_ids),
            "num_acceptable_drafts": list(rows.num_acceptable_drafts),
        }

    def _apply(self, event: Event) -> Plain:  # noqa: PLR0911  one return per event
        match event:
            case Schedule(throttle_prefills, _):
                return self._schedule(throttle_prefills=throttle_prefills)
            case Update(result, _):
                return self._update(result)
            case UpdateDrafts(draft_token_ids):
                return self.scheduler.update_draft_token_ids(to_vllm_drafts(draft_token_ids))
            case UpdateDraftsInFlight(step_id, draft_token_ids):
                output = next(output for number, output in self._in_flight if number == step_id)
                return self.scheduler.update_draft_token_ids_in_output(
                    to_vllm_drafts(draft_token_ids), output
                )
            case GrammarReady(request_id, grammar):
                self._structured(request_id).grammar = VllmGrammar(grammar)
                return None
            case GrammarFailed(request_id, message):
                self._structured(request_id).grammar = ValueError(message)
                return None
            case AddRequest(request, _):
                made = to_vllm_request(request, self._hasher)
                if not self._logs_events:
                    made.record_event = lambda *_: None
                return self.scheduler.add_request(made)
            case FinishRequests(request_ids, status):
                # It goes through a set; see `set_order.py`.
                self.scheduler.finish_requests(request_ids, VllmRequestStatus[status.name])
                return None
            case SetPauseState(pause_state):
                return self.scheduler.set_pause_state(VllmPauseState[pause_state.name])
            case ResetPrefixCache(reset_running_requests, _):
                return reset_prefix_cache(self.scheduler, reset_running_requests=reset_running_requests)
        raise NotImplementedError(f"no counterpart for {event}")

    def _structured(self, request_id: str) -> StructuredOutputRequest:
        structured = self.scheduler.requests[request_id].structured_output_request
        assert structured is not None
        return structured

    def _schedule(self, *, throttle_prefills: bool) -> Plain:
        output = self.scheduler.schedule(throttle_prefills=throttle_prefills)
        step_id = self.scheduler.current_step
        self._in_flight.append((step_id, output))
        return scheduler_output_to_plain(output, step_id)

    def _update(self, result: StepResult) -> Plain:
        step_id, output = self._in_flight[0]
        assert result.step_id == step_id, f"step {step_id} is due, not {result.step_id}"
        model_runner_output = to_model_runner_output(
            output.num_scheduled_tokens, result.sampled_token_ids, result.pooled_request_ids
        )
        clients = update_from_output(self.scheduler, output, model_runner_output)
        self._in_flight.popleft()
        return emitted_to_plain(clients, self._events.take())
