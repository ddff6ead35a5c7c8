"""`ShadowScheduler`: vLLM's real scheduler decides, and the machine beside it checks every decision.

    vllm serve MODEL --no-async-scheduling --scheduler-cls kvsched_fp.adapters.vllm.ShadowScheduler

Every output and the progress of the requests are compared after every call. `options.py` says how to choose
what happens on the first difference; after it, the real scheduler goes on alone.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.adapters.vllm.beside import Beside
from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.feeding import add_vllm_request, oldest_step
from kvsched_fp.adapters.vllm.options import choose_options
from kvsched_fp.adapters.vllm.report import Report
from kvsched_fp.adapters.vllm.requests import to_step_result
from kvsched_fp.errors import UnsupportedFeature
from kvsched_fp.events import (
    AddRequest,
    FinishRequests,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


class ShadowScheduler(Scheduler):  # type: ignore[misc]  # untyped where vLLM is missing
    """The real scheduler, with the machine beside it."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
        *,
        on_difference: str | None = None,
        trace: Path | str | None = None,
        folder: Path | str | None = None,
    ) -> None:
        given = {"on_difference": on_difference, "trace": trace, "folder": folder}
        options = choose_options(given, vllm_config.additional_config)
        config = to_scheduler_config(
            vllm_config,
            kv_cache_config,
            block_size=block_size,
            hash_block_size=hash_block_size,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        super().__init__(
            vllm_config=vllm_config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=structured_output_manager,
            block_size=block_size,
            hash_block_size=hash_block_size,
            mm_registry=mm_registry,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        self.kv_event_publisher: Any
        self._answers_due: deque[VllmSchedulerOutput] = deque()
        self._is_updating = False
        self._beside = Beside(self, config, options)

    @property
    def report(self) -> Report | None:
        """The first difference, or None as long as there is none."""
        return self._beside.report

    @property
    def state(self) -> SchedulerState:
        """The state of the machine."""
        return self._beside.state

    def schedule(self, throttle_prefills: bool = False) -> VllmSchedulerOutput:
        """Let the real scheduler plan the next step, and compare."""
        if not self._beside.is_comparing:
            return super().schedule(throttle_prefills)
        self._beside.follow_assignments()
        output = super().schedule(throttle_prefills)
        self._answers_due.append(output)
        self._beside.run(Schedule(throttle_prefills), output)
        return output

    def update_from_output(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Let the real scheduler take in what the model runner returned, and compare."""
        if not self._beside.is_comparing:
            return self._update(scheduler_output, model_runner_output)[0]
        self._beside.follow_assignments()
        state = self._beside.state
        step = oldest_step(state, self._answers_due, scheduler_output)
        # Before the real one cuts the lists of tokens in place.
        result = to_step_result(
            step.step_id, step.num_scheduled_tokens, model_runner_output, state.requests
        )
        told, kv_events = self._update(scheduler_output, model_runner_output)
        self._answers_due.popleft()
        self._beside.run(Update(result), told, kv_events)
        return told

    def _update(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> tuple[dict[int, EngineCoreOutputs], tuple[Any, ...]]:
        """Update, and see which KV events are published by it."""
        publisher: Any = self.kv_event_publisher
        tap = _Tap(publisher)
        self._is_updating = True
        if self.enable_kv_cache_events:
            self.kv_event_publisher = tap
        try:
            return super().update_from_output(scheduler_output, model_runner_output), tuple(tap.seen)
        finally:
            self._is_updating = False
            self.kv_event_publisher = publisher

    def add_request(self, request: VllmRequest) -> None:
        """Let a new request in."""
        if not self._beside.is_comparing:
            super().add_request(request)
            return
        self._beside.follow_assignments()
        asked = add_vllm_request(self._beside.state, request).requests[request.request_id]
        super().add_request(request)
        self._beside.run(AddRequest(asked))

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: VllmRequestStatus
    ) -> list[VllmRequest]:
        """End requests."""
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        if not self._beside.is_comparing:
            return super().finish_requests(request_ids, finished_status)  # type: ignore[no-any-return]
        self._beside.follow_assignments()
        ended: list[VllmRequest] = super().finish_requests(request_ids, finished_status)
        if ended:
            ids = [RequestId(request.request_id) for request in ended]
            self._beside.run(FinishRequests(ids, RequestStatus[finished_status.name]))
        return ended

    def set_pause_state(self, pause_state: VllmPauseState) -> None:
        """Pause, or go on."""
        self._beside.follow_assignments()
        super().set_pause_state(pause_state)
        self._beside.run(SetPauseState(PauseState[pause_state.name]))

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks."""
        self._beside.follow_assignments()
        done: bool = super().reset_prefix_cache(reset_running_requests, reset_connector)
        self._beside.run(ResetPrefixCache(reset_running_requests), done)
        return done

    def make_stats(self, *arguments: Any, **options: Any) -> Any:
        """Give the figures of now; the machine is told if that is not part of an update."""
        stats = super().make_stats(*arguments, **options)
        if not self._is_updating:
            self._beside.take_look_ups(stats)
        return stats

    def shutdown(self) -> None:
        """Finish the files, and let the real scheduler shut down."""
        self._beside.close()
        super().shutdown()


class _Tap:
    """Stands before a publisher of KV events, and keeps what is published."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self.seen: list[Any] = []

    def publish(self, batch: Any) -> None:
        """Keep the events, and pass them on."""
        self.seen.extend(batch.events)
        self._publisher.publish(batch)


class AsyncShadowScheduler(ShadowScheduler):
    """The twin for asynchronous scheduling, which is not modelled yet: it cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UnsupportedFeature("asynchronous scheduling", "AsyncShadowScheduler")
