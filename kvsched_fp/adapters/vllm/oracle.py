"""`OracleScheduler`: vLLM's scheduler interface over the pure state machine.

Behind it is one `SchedulerState`, replaced on every call. What goes out is vLLM's own, and the `Request`
objects that came in show the same attributes as with the real scheduler.

    vllm serve MODEL --no-async-scheduling --scheduler-cls kvsched_fp.adapters.vllm.OracleScheduler

A call that fails leaves everything as it was.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import attrs
from vllm.config import VllmConfig
from vllm.distributed.kv_events import EventPublisherFactory
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.stats import SchedulerStats as VllmSchedulerStats
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.adapters.vllm import mirror
from kvsched_fp.adapters.vllm.assignments import (
    CONFIG_FIELDS,
    STATE_FIELDS,
    assign_config,
    follow_scheduler_config,
    reassign_request,
)
from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.feeding import add_vllm_request, oldest_step_id, touched_by_step
from kvsched_fp.adapters.vllm.held import hold, let_go
from kvsched_fp.adapters.vllm.kv_views import KVCacheManagerView
from kvsched_fp.adapters.vllm.outputs import (
    to_client_outputs,
    to_engine_output,
    to_kv_event_batch,
    to_scheduler_stats,
    to_vllm_output,
)
from kvsched_fp.adapters.vllm.requests import to_sampling_params, to_step_result
from kvsched_fp.adapters.vllm.shown import Shown, refuse_assignment
from kvsched_fp.adapters.vllm.views import EmptyEncoderCache
from kvsched_fp.errors import InvalidConfig, InvalidEvent, UnsupportedFeature
from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId
from kvsched_fp.lifecycle import finish_requests, reset_prefix_cache, set_pause_state
from kvsched_fp.outputs import EngineOutput, PrefixCacheStats, SchedulerOutput, SchedulerStats
from kvsched_fp.request import RequestStatus
from kvsched_fp.schedule import schedule
from kvsched_fp.state import (
    SchedulerState,
    initial_state,
    num_unfinished_requests,
    num_waiting_requests,
)
from kvsched_fp.update import update


class OracleScheduler(Shown):
    """The pure machine in the place of vLLM's scheduler."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,  # noqa: ARG002  the interface has it
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        config = to_scheduler_config(
            vllm_config,
            kv_cache_config,
            block_size=block_size,
            hash_block_size=hash_block_size,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        publisher = EventPublisherFactory.create(
            vllm_config.kv_events_config, vllm_config.parallel_config.data_parallel_index
        )
        self.__dict__.update(
            _state=initial_state(config),
            _requests={},
            _in_flight=deque[VllmSchedulerOutput](),
            _max_num_running=config.max_num_seqs,
            vllm_config=vllm_config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=structured_output_manager,
            kv_event_publisher=publisher,
            encoder_cache_manager=EmptyEncoderCache(),
        )
        self.__dict__["kv_cache_manager"] = KVCacheManagerView(self, kv_cache_config)

    # What may be assigned.

    def __setattr__(self, name: str, value: Any) -> None:
        state = self._state
        if name in CONFIG_FIELDS:
            self.__dict__["_state"] = attrs.evolve(state, config=assign_config(state.config, name, value))
        elif name in STATE_FIELDS:
            self.__dict__["_state"] = attrs.evolve(state, **{name: value})
        elif name == "max_num_running_reqs":
            if type(value) is not int or value < 1:
                raise InvalidConfig(name, value, "an integer >= 1")
            self.__dict__["_max_num_running"] = value
        else:
            refuse_assignment(name, value)
            self.__dict__[name] = value

    @property
    def max_num_running_reqs(self) -> int:
        """The rows of the model runner; `max_num_active_reqs` is what limits admission."""
        return self._max_num_running  # type: ignore[no-any-return]

    def reassign(self, request: VllmRequest, name: str, value: Any) -> None:
        """Let an assignment to a held request take effect, or refuse it."""
        self._replace(reassign_request(self._state, request, name, value))

    def _replace(self, state: SchedulerState) -> None:
        self.__dict__["_state"] = state

    # Steps.

    def schedule(self, throttle_prefills: bool = False) -> VllmSchedulerOutput:
        """Plan the next step."""
        timestamp = time.monotonic()
        before = self._state
        config = follow_scheduler_config(before.config, self.vllm_config.scheduler_config)
        if config is not before.config:
            before = attrs.evolve(before, config=config)
        after, output = schedule(before, throttle_prefills=throttle_prefills)
        if len(after.running) > self.max_num_running_reqs:
            raise InvalidConfig(
                "max_num_running_reqs",
                self.max_num_running_reqs,
                f"at least the {len(after.running)} requests that max_num_active_reqs = "
                f"{self.max_num_active_reqs} lets run",
            )
        made = to_vllm_output(output, self._requests)
        self._replace(after)
        self._in_flight.append(made)
        self._show_step(before, output, timestamp)
        return made

    def _show_step(self, before: SchedulerState, output: SchedulerOutput, timestamp: float) -> None:
        """Show on the requests what the step did to them."""
        after = self._state
        for request_id in touched_by_step(before, after, output):
            was, now = before.progress[request_id], after.progress[request_id]
            if now is was:
                continue
            request = self._requests[request_id]
            mirror.write_progress(request, was, now)
            if now.status is not was.status and after.config.log_stats:
                started = now.status is RequestStatus.RUNNING
                kind = EngineCoreEventType.SCHEDULED if started else EngineCoreEventType.PREEMPTED
                mirror.write_event(request, kind, timestamp)

    def get_grammar_bitmask(self, scheduler_output: VllmSchedulerOutput) -> None:
        """Give the grammar's masks: there are no grammars."""

    def update_from_output(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Take in what the model runner returned for the oldest step in flight."""
        self._follow_sampling_params(scheduler_output.num_scheduled_tokens)
        before = self._state
        step_id = oldest_step_id(self._in_flight, scheduler_output, before.current_step)
        step = before.in_flight[0]
        batch = step.num_scheduled_tokens
        result = to_step_result(step_id, batch, model_runner_output, before.requests)
        after = update(before, result)
        self._replace(after)
        self._in_flight.popleft()
        for request_id in batch:
            if request_id in after.progress:
                mirror.write_progress(
                    self._requests[request_id], before.progress[request_id], after.progress[request_id]
                )
        told = {
            client: to_client_outputs(
                outputs,
                [self._tell(before, step, output, model_runner_output) for output in outputs.outputs],
                model_runner_output,
            )
            for client, outputs in after.emitted.clients.items()
        }
        if after.emitted.kv_events:
            batch_of_events = to_kv_event_batch(after.emitted.kv_events, self.kv_cache_config)
            self.kv_event_publisher.publish(batch_of_events)
        return told

    def _follow_sampling_params(self, request_ids: Iterable[str]) -> None:
        """Take over what was changed inside the sampling parameters of requests, which updates read."""
        for request_id in request_ids:
            request = self._requests.get(RequestId(request_id))
            asked = self._state.requests.get(RequestId(request_id))
            if request is None or asked is None or to_sampling_params(request) == asked.sampling_params:
                continue
            self._replace(
                reassign_request(self._state, request, "sampling_params", request.sampling_params)
            )

    def _tell(
        self,
        before: SchedulerState,
        step: SchedulerOutput,
        told: EngineOutput,
        returned: ModelRunnerOutput,
    ) -> EngineCoreOutput:
        """Show on a request what its client is told, and tell it."""
        request_id = told.request_id
        request = self._requests[request_id]
        mirror.write_output_tokens(request, told.new_token_ids)
        if returned.num_nans_in_logits and request_id in returned.num_nans_in_logits:
            vars(request)["num_nans_in_logits"] = returned.num_nans_in_logits[request_id]
        if told.finish_reason is not None:
            num_sampled_tokens = len(returned.sampled_token_ids[returned.req_id_to_index[request_id]])
            mirror.write_end(
                request,
                before.progress[request_id],
                told,
                told.finish_reason,
                num_scheduled_tokens=step.num_scheduled_tokens[request_id],
                num_sampled_tokens=num_sampled_tokens,
            )
            self._let_go(request_id)
        prefill_stats = mirror.take_prefill_stats(request, told.prefill_stats)
        return to_engine_output(told, request, returned, prefill_stats)

    def _let_go(self, request_id: str) -> VllmRequest:
        request = self._requests.pop(request_id)
        let_go(request)
        return request

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Take in drafts: there must not be any."""
        if any(draft_token_ids.draft_token_ids):
            raise UnsupportedFeature("speculative decoding", "update_draft_token_ids()")

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: VllmSchedulerOutput
    ) -> None:
        """Take in drafts for a step that is planned: there must not be any."""
        self.update_draft_token_ids(draft_token_ids)
        scheduler_output.num_invalid_spec_tokens = {}

    # What comes from outside between the steps.

    def add_request(self, request: VllmRequest) -> None:
        """Let a new request in."""
        self._replace(add_vllm_request(self._state, request))
        self._requests[request.request_id] = request
        hold(request, self)
        if self._state.config.log_stats:
            mirror.write_event(request, EngineCoreEventType.QUEUED)

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: VllmRequestStatus
    ) -> list[VllmRequest]:
        """End requests; ids that are not live are ignored. Gives those that were ended."""
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        wanted = self._requests if request_ids is None else set(request_ids)
        ids = [RequestId(request_id) for request_id in wanted if request_id in self._requests]
        self._replace(finish_requests(self._state, ids, _to_final_status(finished_status)))
        ended = []
        for request_id in ids:
            request = self._let_go(request_id)
            request.status = finished_status
            ended.append(request)
        return ended

    def set_pause_state(self, pause_state: VllmPauseState) -> None:
        """Pause, or go on."""
        self._replace(set_pause_state(self._state, PauseState[pause_state.name]))

    @property
    def pause_state(self) -> VllmPauseState:
        """How much may be scheduled."""
        return VllmPauseState[self._state.pause_state.name]

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks; tell whether it was done."""
        timestamp = time.monotonic()
        before = self._state
        after, done = reset_prefix_cache(before, reset_running_requests=reset_running_requests)
        self._replace(after)
        if reset_running_requests:
            for request_id in reversed(before.running):
                request = self._requests[request_id]
                mirror.write_progress(request, before.progress[request_id], after.progress[request_id])
                if after.config.log_stats:
                    mirror.write_event(request, EngineCoreEventType.PREEMPTED, timestamp)
        return done and (not reset_connector or self.reset_connector_cache())

    def reset_connector_cache(self) -> bool:
        """Forget what a connector caches: there is none, so that is done."""
        return True

    def reset_encoder_cache(self) -> None:
        """Forget encoder outputs: there are none."""

    # Questions.

    def has_request(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        return request_id in self._requests

    def get_num_unfinished_requests(self) -> int:
        """Count the requests that may still be scheduled, as long as the pause lasts."""
        return num_unfinished_requests(self._state)

    def has_finished_requests(self) -> bool:
        """Tell whether the model runner is still to be told of requests that ended."""
        return bool(self._state.finished_request_ids)

    def get_request_counts(self) -> tuple[int, int]:
        """Count what runs and what waits."""
        return len(self._state.running), num_waiting_requests(self._state)

    def get_kv_cache_usage(self) -> float:
        """Give the share of the usable blocks that is not free."""
        return self._state.kv.pool.usage

    def make_stats(self, *_: Any, **__: Any) -> VllmSchedulerStats | None:
        """Give the figures of now, and begin to count look-ups anew."""
        state = self._state
        if not state.config.log_stats:
            return None
        num_deferred = len(state.deferred)
        stats = SchedulerStats(
            num_running_requests=len(state.running),
            num_waiting_requests=num_waiting_requests(state) - num_deferred,
            num_skipped_waiting_requests=num_deferred,
            kv_cache_usage=state.kv.pool.usage,
            prefix_cache_stats=state.kv.prefix_cache_stats,
        )
        kv = attrs.evolve(state.kv, prefix_cache_stats=PrefixCacheStats())
        self._replace(attrs.evolve(state, kv=kv))
        return to_scheduler_stats(stats)

    def shutdown(self) -> None:
        """Let the publisher of events go."""
        if self.kv_event_publisher:
            self.kv_event_publisher.shutdown()

    def get_kv_event_publisher_config(self) -> Any:
        """Give the configuration of the publisher of events."""
        return self.kv_event_publisher.get_publisher_config()


def _to_final_status(status: VllmRequestStatus) -> RequestStatus:
    if not VllmRequestStatus.is_finished(status):
        raise InvalidEvent("finished_status", status, "a final status (FINISHED_...)")
    return RequestStatus[status.name]


class AsyncOracleScheduler(OracleScheduler):
    """The twin for asynchronous scheduling, which is not modelled yet: it cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UnsupportedFeature("asynchronous scheduling", "AsyncOracleScheduler")
