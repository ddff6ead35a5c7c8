"""What every driver of a vLLM scheduler does: show it a clock, hand it drafts, reset it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from vllm.v1 import engine as engine_module
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.outputs import DraftTokenIds

from kvsched_fp.ids import RequestId


class Clock:
    """Stands in for the module `time`: shows what it was set to."""

    now = 0.0

    def monotonic(self) -> float:
        """Give the time."""
        return self.now

    time = monotonic

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let vLLM look at this clock."""
        with (
            mock.patch.object(scheduler_module, "time", self),
            mock.patch.object(engine_module, "time", self),
        ):
            yield


def to_vllm_drafts(drafts: Mapping[RequestId, tuple[int, ...]]) -> DraftTokenIds:
    """Make what a drafter hands over."""
    return DraftTokenIds(list(drafts), [list(token_ids) for token_ids in drafts.values()])


def reset_prefix_cache(scheduler: Any, *, reset_running_requests: bool) -> bool:
    """Reset the prefix cache of a scheduler; tell whether it was done."""
    try:
        done: bool = scheduler.reset_prefix_cache(reset_running_requests=reset_running_requests)
    except RuntimeError:
        if not getattr(scheduler, "kv_holding_waiting", ()):
            raise
        # Sessions that wait for input hold blocks. What ran was preempted by then (deviation D-12).
        return False
    return done
