"""The real scheduler, written down: its outcomes as values of this package.

Importing this module imports vLLM.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvsched_fp import Event, FinishReason, SchedulerConfig
from kvsched_fp.adapters.vllm import RecordingScheduler
from kvsched_fp.adapters.vllm.driving.hasher import make_named_hasher
from kvsched_fp.progress import RequestEventType
from kvsched_fp.trace.codec import Told, decode_told, told_key
from tests.adapters.pairs import build_like
from tests.conformance.reference import ReferenceScheduler
from tests.conformance.vllm_hasher import VllmBlockHasher

_KINDS = {
    "BlockStored": "block_stored",
    "BlockRemoved": "block_removed",
    "AllBlocksCleared": "all_blocks_cleared",
}


class RecordedScheduler(ReferenceScheduler):
    """A real scheduler whose requests name blocks as `config.block_hasher` does."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        if config.enable_prefix_caching and not isinstance(config.block_hasher, VllmBlockHasher):
            self._hasher = make_named_hasher(config)
        self.seconds = 0.0
        """Processor time that the real scheduler took for its own calls."""
        self._time_calls()

    def happen(self, event: Event) -> Told:
        """Let `event` happen, and give what came of it."""
        outcome = self.apply(event)["outcome"]
        key = told_key(event)
        if key is None:
            return None
        return decode_told({"event": None, key: _as_in_a_trace(outcome)}, event)

    def _time_calls(self) -> None:
        for name in ("schedule", "update_from_output", "add_request", "finish_requests"):
            setattr(self.scheduler, name, self._timed(getattr(self.scheduler, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.process_time() - started

        return timed


class SelfRecordingScheduler(RecordedScheduler):
    """A real scheduler that writes its trace by itself, as in an engine; `seconds` include the writing."""

    def __init__(self, config: SchedulerConfig, trace: Path) -> None:
        super().__init__(config)
        self.scheduler = build_like(self.scheduler, RecordingScheduler, trace=trace)
        self.scheduler.kv_event_publisher = self._events
        self._logs_events = config.log_stats  # as every engine does
        self._time_calls()


def _as_in_a_trace(plain: Any) -> Any:
    """Turn the normal form of the conformance suite into that of a trace; lists of ids need no runs."""
    if isinstance(plain, Mapping):
        made = {key: _as_in_a_trace(value) for key, value in plain.items()}
        if made.get("kind") in _KINDS:
            made = {"kind": _KINDS[made.pop("kind")], **made}
        if made.get("finish_reason") is not None:
            made["finish_reason"] = FinishReason[made["finish_reason"]].value
        if made.keys() == {"type", "time"}:
            made["type"] = RequestEventType[made["type"]].value
        return made
    return [_as_in_a_trace(item) for item in plain] if isinstance(plain, list) else plain
