"""The real scheduler, with somebody who is told of every call and of what came of it.

`shadow.py` and `recording.py` say who. A call is told as an event of ours, after it was made; what the real
scheduler answers goes out untouched.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

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

from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.feeding import oldest_step_id
from kvsched_fp.adapters.vllm.requests import to_step_result
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.request import Request, RequestStatus


class Watcher(Protocol):
    """Whoever is told."""

    @property
    def is_watching(self) -> bool:
        """Whether calls are still told."""
        ...

    def before_call(self) -> None:
        """Look at what was assigned on the real scheduler since the last call."""
        ...

    def read_request(self, request: VllmRequest) -> Request:
        """Read a request that is about to be added, or refuse it by an error."""
        ...

    def take(self, event: Event, answer: Any = None, kv_events: tuple[Any, ...] = ()) -> None:
        """Take in a call, what the real scheduler answered, and the KV events that it published."""
        ...

    def take_look_ups(self, stats: Any) -> None:
        """Take in that somebody asked the real scheduler for its figures between two steps."""
        ...

    def close(self) -> None:
        """Finish the files."""
        ...


class WatchedScheduler(Scheduler):  # type: ignore[misc]  # untyped where vLLM is missing
    """The real scheduler, and its watcher.

    Raises `UnsupportedFeature` for a configuration that is not modelled; so do the calls that bring
    something which is not.
    """

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
    ) -> None:
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
        self._watcher: Watcher = self._make_watcher(config)

    def _make_watcher(self, config: SchedulerConfig) -> Watcher:
        """Make the watcher, once the real scheduler is there."""
        raise NotImplementedError

    def schedule(self, throttle_prefills: bool = False) -> VllmSchedulerOutput:
        """Let the real scheduler plan the next step."""
        self._watcher.before_call()
        output = super().schedule(throttle_prefills)
        if self._watcher.is_watching:
            self._answers_due.append(output)
            self._watcher.take(Schedule(throttle_prefills), output)
        return output

    def update_from_output(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Let the real scheduler take in what the model runner returned."""
        self._watcher.before_call()
        if not self._watcher.is_watching:
            return self._update(scheduler_output, model_runner_output)[0]
        step_id = oldest_step_id(self._answers_due, scheduler_output, self.current_step)
        batch = self._answers_due[0].num_scheduled_tokens
        # Before the real one cuts the lists of tokens in place.
        result = to_step_result(step_id, batch, model_runner_output, self.requests)
        told, kv_events = self._update(scheduler_output, model_runner_output)
        self._answers_due.popleft()
        self._watcher.take(Update(result), told, kv_events)
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
        self._watcher.before_call()
        if not self._watcher.is_watching:
            super().add_request(request)
            return
        asked = self._watcher.read_request(request)
        super().add_request(request)
        self._watcher.take(AddRequest(asked))

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: VllmRequestStatus
    ) -> list[VllmRequest]:
        """End requests."""
        self._watcher.before_call()
        ended: list[VllmRequest] = super().finish_requests(request_ids, finished_status)
        if ended:
            ids = [RequestId(request.request_id) for request in ended]
            self._watcher.take(FinishRequests(ids, RequestStatus[finished_status.name]))
        return ended

    def set_pause_state(self, pause_state: VllmPauseState) -> None:
        """Pause, or go on."""
        self._watcher.before_call()
        super().set_pause_state(pause_state)
        self._watcher.take(SetPauseState(PauseState[pause_state.name]))

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks."""
        self._watcher.before_call()
        done: bool = super().reset_prefix_cache(reset_running_requests, reset_connector)
        self._watcher.take(ResetPrefixCache(reset_running_requests), done)
        return done

    def make_stats(self, *arguments: Any, **options: Any) -> Any:
        """Give the figures of now; the watcher is told if that is not part of an update."""
        stats = super().make_stats(*arguments, **options)
        if stats is not None and not self._is_updating:
            self._watcher.take_look_ups(stats)
        return stats

    def shutdown(self) -> None:
        """Finish the files, and let the real scheduler shut down."""
        self._watcher.close()
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
