"""The transient of a whole state: opened at the start of a public function, closed at its end.

Inside one call it is cheaper to change things in place than to make a value for each change. An
`OpenState` holds the persistent maps opened for mutation, plain lists, and the opened KV cache. It is
made from a state, changed by the phases, and closed into a new state; it never escapes the public
function that made it, and the state that it was made from is never changed [M-STATE-01].
"""

from typing import Any

from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import OpenKVCache
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.progress import Progress, RequestEvent, RequestEventType
from kvsched_fp.state import SchedulerState, evolve_state


class OpenState:
    """The parts of a `SchedulerState` that more than one public function changes."""

    __slots__ = (
        "_before",
        "add_numbers",
        "config",
        "deferred",
        "finished_by_client",
        "finished_request_ids",
        "grammar_errors",
        "kv",
        "kv_holding_waiting",
        "num_waiting_for_input",
        "preempted_request_ids",
        "progress",
        "requests",
        "running",
        "time",
        "waiting",
    )

    def __init__(self, state: SchedulerState, time: float = 0.0) -> None:
        self._before = state
        self.config = state.config
        self.requests = state.requests.mutate()
        self.progress = state.progress.mutate()
        self.add_numbers = state.add_numbers.mutate()
        self.running: list[RequestId] = list(state.running)
        self.waiting = state.waiting
        self.kv_holding_waiting = state.kv_holding_waiting
        self.deferred = state.deferred
        self.kv = OpenKVCache(state.kv, state.config)
        # Ids in the order in which things happened, each once: an id may be used again and end again.
        self.finished_request_ids = dict.fromkeys(state.finished_request_ids)
        self.preempted_request_ids = dict.fromkeys(state.preempted_request_ids)
        self.grammar_errors = state.grammar_errors.thaw()
        self.num_waiting_for_input = state.num_waiting_for_input
        self.time = time
        self.finished_by_client = state.finished_by_client.thaw()

    @property
    def num_waiting(self) -> int:
        """Requests in both waiting queues."""
        return len(self.waiting) + len(self.kv_holding_waiting)

    def with_event(self, progress: Progress, type_: RequestEventType) -> tuple[RequestEvent, ...]:
        """Give the events of a request with one more, if they are kept."""
        if not self.config.log_request_events:
            return progress.events
        return (*progress.events, RequestEvent(type_, self.time))

    def left(self, request_id: RequestId, progress: Progress) -> None:
        """Hear that a request has left, and where it stood; for those who show that to others."""

    def remove_from_queues(self, request_ids: set[RequestId]) -> None:
        """Take requests out of whichever of the three queues they are in, and out of `deferred`."""
        remaining = [request_id for request_id in self.running if request_id not in request_ids]
        if len(self.running) - len(remaining) < len(request_ids):
            self.waiting = self.waiting.remove(request_ids)
            self.kv_holding_waiting = self.kv_holding_waiting.remove(request_ids)
            for request_id in request_ids:
                self.deferred = self.deferred.discard(request_id)
        self.running = remaining

    def close(self, **changes: Any) -> SchedulerState:
        """Freeze into a state; `changes` are the fields that one caller alone changes."""
        fields: dict[str, Any] = {
            "requests": self.requests.finish(),
            "progress": self.progress.finish(),
            "add_numbers": self.add_numbers.finish(),
            "running": tuple(self.running),
            "waiting": self.waiting,
            "kv_holding_waiting": self.kv_holding_waiting,
            "deferred": self.deferred,
            "num_waiting_for_input": self.num_waiting_for_input,
            "grammar_errors": OrderedMap.adopt(self.grammar_errors),
            "kv": self.kv.close(),
            "finished_request_ids": tuple(self.finished_request_ids),
            "finished_by_client": OrderedMap.adopt(self.finished_by_client),
            "preempted_request_ids": tuple(self.preempted_request_ids),
        }
        fields.update(changes)
        return evolve_state(self._before, **fields)
