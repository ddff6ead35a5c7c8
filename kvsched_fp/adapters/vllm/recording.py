"""`RecordingScheduler`: vLLM's real scheduler decides, and everything that it says goes into a trace.

    export KVSCHED_FP_TRACE=FILE
    vllm serve MODEL --scheduler-cls kvsched_fp.adapters.vllm.RecordingScheduler

No machine runs beside it; `kvsched-fp check FILE` compares afterwards.
"""

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.diffusion_scheduler import DiffusionAsyncScheduler, DiffusionScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.assignments import STATE_FIELDS, AssignedConfig
from kvsched_fp.adapters.vllm.options import choose_trace
from kvsched_fp.adapters.vllm.pairings import PREFIX_CACHE_STATS, first_unmodelled
from kvsched_fp.adapters.vllm.recorded import read_told
from kvsched_fp.adapters.vllm.requests import to_request
from kvsched_fp.adapters.vllm.trace_file import ASKED_FOR_FIGURES, ASSIGNED, REJECTED, TraceFile
from kvsched_fp.adapters.vllm.watched import WatchedScheduler
from kvsched_fp.config import SchedulerConfig, SchedulingPolicy
from kvsched_fp.errors import UnsupportedFeature
from kvsched_fp.events import AddRequest, Event, FinishRequests, Schedule
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.lifecycle import require_servable
from kvsched_fp.outputs import Emitted, PrefixCacheStats
from kvsched_fp.request import Request

_read_state_fields = attrgetter(*STATE_FIELDS)


class RecordingScheduler(WatchedScheduler):
    """The real scheduler, written down. Takes what the real one takes, and where the trace goes."""

    def __init__(
        self, vllm_config: VllmConfig, *arguments: Any, trace: Path | str | None = None, **named: Any
    ) -> None:
        self._trace_path = choose_trace({"trace": trace}, vllm_config)
        super().__init__(vllm_config, *arguments, **named)

    def _make_watcher(self, config: SchedulerConfig) -> "Recorder":
        return Recorder(self, config, self._trace_path)


class AsyncRecordingScheduler(RecordingScheduler, AsyncScheduler):
    """The twin that schedules asynchronously."""


class DiffusionRecordingScheduler(RecordingScheduler, DiffusionScheduler):
    """The twin for diffusion."""


class DiffusionAsyncRecordingScheduler(RecordingScheduler, DiffusionAsyncScheduler):
    """The twin for diffusion that schedules asynchronously."""


RecordingScheduler.KINDS = (
    RecordingScheduler,
    AsyncRecordingScheduler,
    DiffusionRecordingScheduler,
    DiffusionAsyncRecordingScheduler,
)


class Recorder:
    """Writes down what a real scheduler does. What a trace cannot tell ends it, and is logged."""

    def __init__(self, real: Scheduler, config: SchedulerConfig, path: Path) -> None:
        self._real = real
        self._config = config
        self._trace = TraceFile(path, config)
        self._assigned = AssignedConfig(real)
        self._state_fields = _read_state_fields(real)
        self._priorities: dict[str, int] = {}
        """As recorded, of the requests that are live; kept where priorities matter."""

    @property
    def is_watching(self) -> bool:
        """Whether the trace still goes on."""
        return self._trace.is_open

    def before_call(self) -> None:
        """End the trace if something was assigned since the last call, unless that can still go into it."""
        config = self._assigned.follow(self._config)
        if config is not self._config:
            self._config = config
            self._trace.restart(config)
        if self._state_fields != _read_state_fields(self._real) or self._has_other_priority():
            self._trace.stop(ASSIGNED)

    def _has_other_priority(self) -> bool:
        if self._config.policy is not SchedulingPolicy.PRIORITY:
            return False
        known = self._priorities
        return any(request.priority != known[request.request_id] for request in self._real.running)

    def read_request(self, request: VllmRequest) -> Request:
        """Read a request that is about to be added, or refuse it by an error."""
        asked = to_request(request, self._config)
        require_servable(asked, self._config)
        return asked

    def take(self, event: Event, answer: Any = None, kv_events: tuple[Any, ...] = ()) -> None:
        """Write down a call, and what the real scheduler answered."""
        if not self.is_watching:
            return
        if isinstance(event, Schedule) and (unmodelled := first_unmodelled(answer)) is not None:
            name, value = unmodelled
            raise UnsupportedFeature(f"SchedulerOutput.{name}", repr(value))
        told = read_told(event, answer, kv_events, self._real.current_step)
        self._trace.write(event, told)
        self._state_fields = _read_state_fields(self._real)
        if self._config.policy is SchedulingPolicy.PRIORITY:
            self._keep_priorities(event, told)

    def _keep_priorities(self, event: Event, told: object) -> None:
        if isinstance(event, AddRequest):
            self._priorities[event.request.request_id] = event.request.priority
        elif isinstance(event, FinishRequests):
            for request_id in event.request_ids or ():
                self._priorities.pop(request_id, None)
        elif isinstance(told, Emitted):
            for client in told.clients.values():
                for output in client.outputs:
                    if output.request_id not in self._real.requests:
                        self._priorities.pop(output.request_id, None)

    def take_look_ups(self, stats: Any) -> None:
        """End the trace: the next figures that an update tells do not go back to the one before."""
        if PREFIX_CACHE_STATS.to_ours(stats.prefix_cache_stats) != PrefixCacheStats():
            self._trace.stop(ASKED_FOR_FIGURES)

    def take_rejections(self, request_ids: Iterable[RequestId]) -> None:  # noqa: ARG002
        """End the trace: it could not tell that."""
        self._trace.stop(REJECTED)

    def take_rows(self, step_id: StepId, rows: Any) -> None:
        """Do nothing: a trace does not tell which rows need a mask."""

    def close(self) -> None:
        """Finish the trace."""
        self._trace.close()
