"""`ShadowScheduler`: vLLM's real scheduler decides, and the machine beside it checks every decision.

    vllm serve MODEL --scheduler-cls kvsched_fp.adapters.vllm.ShadowScheduler

Every output and the progress of the requests are compared after every call. `options.py` says how to choose
what happens on the first difference; after it, the real scheduler goes on alone.
"""

from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.diffusion_scheduler import DiffusionAsyncScheduler, DiffusionScheduler

from kvsched_fp.adapters.vllm.beside import Beside
from kvsched_fp.adapters.vllm.options import choose_shadow_options
from kvsched_fp.adapters.vllm.report import Report
from kvsched_fp.adapters.vllm.watched import WatchedScheduler
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.state import SchedulerState


class ShadowScheduler(WatchedScheduler):
    """The real scheduler, with the machine beside it. Takes what the real one takes, and the options."""

    _watcher: Beside

    def __init__(
        self,
        vllm_config: VllmConfig,
        *arguments: Any,
        on_difference: str | None = None,
        trace: Path | str | None = None,
        folder: Path | str | None = None,
        **named: Any,
    ) -> None:
        given = {"on_difference": on_difference, "trace": trace, "folder": folder}
        self._options = choose_shadow_options(given, vllm_config)
        super().__init__(vllm_config, *arguments, **named)

    def _make_watcher(self, config: SchedulerConfig) -> Beside:
        return Beside(self, config, self._options)

    @property
    def report(self) -> Report | None:
        """The first difference, or None as long as there is none."""
        return self._watcher.report

    @property
    def state(self) -> SchedulerState:
        """The state of the machine."""
        return self._watcher.state


class AsyncShadowScheduler(ShadowScheduler, AsyncScheduler):
    """The twin that schedules asynchronously."""


class DiffusionShadowScheduler(ShadowScheduler, DiffusionScheduler):
    """The twin for diffusion."""


class DiffusionAsyncShadowScheduler(ShadowScheduler, DiffusionAsyncScheduler):
    """The twin for diffusion that schedules asynchronously."""


ShadowScheduler.KINDS = (
    ShadowScheduler,
    AsyncShadowScheduler,
    DiffusionShadowScheduler,
    DiffusionAsyncShadowScheduler,
)
