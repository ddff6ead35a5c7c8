"""When a run cannot go on: which requests are stuck, and why."""

from collections.abc import Iterable

from kvsched_fp.errors import KvschedError
from kvsched_fp.ids import RequestId
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.queues import WaitingQueue
from kvsched_fp.state import SchedulerState

MAX_NAMED = 5
"""Stuck requests that the message describes; the others are counted."""


class StalledError(KvschedError):
    """The scheduler has live requests, and no step brings any of them further."""

    def __init__(self, request_ids: tuple[RequestId, ...], reason: str) -> None:
        super().__init__(request_ids, reason)
        self.request_ids = request_ids
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def make_stalled_error(state: SchedulerState, time: float, what: str) -> StalledError:
    """Describe a state that goes nowhere at `time` (simulated seconds); `what` says how it shows."""
    stuck = (*state.running, *state.kv_holding_waiting, *state.waiting)
    described = [_describe(state, request_id) for request_id in stuck[:MAX_NAMED]]
    if len(stuck) > MAX_NAMED:
        described.append(f"and {len(stuck) - MAX_NAMED} more")
    pool = state.kv.pool
    return StalledError(
        stuck,
        f"the run is stuck at step {state.current_step}, {time:.3f} simulated seconds: {what}; "
        f"{pool.num_free_blocks} of {pool.num_blocks - 1} blocks free; "
        f"{len(stuck)} live requests: {'; '.join(described)}",
    )


def _describe(state: SchedulerState, request_id: RequestId) -> str:
    request, progress = state.requests[request_id], state.progress[request_id]
    num_known = num_known_tokens(request, progress)
    num_needed = sum(group.num_blocks_for(num_known) for group in state.config.kv_cache_groups)
    text = (
        f"{request_id} ({_where(state, request_id)}, {progress.num_computed_tokens} of {num_known} known "
        f"tokens computed, {num_needed} blocks for them"
    )
    return f"{text}{_reason(state, num_known, num_needed)})"


def _reason(state: SchedulerState, num_known: int, num_needed: int) -> str:
    num_usable = state.kv.pool.num_blocks - 1
    if num_needed > num_usable:
        return f", more than the pool's {num_usable}"
    if num_known >= state.config.max_model_len:
        return f", no room for output in max_model_len = {state.config.max_model_len}"
    return ""


def _where(state: SchedulerState, request_id: RequestId) -> str:
    if request_id in state.running:
        return "running"
    return f"waiting at place {_place(request_id, (state.kv_holding_waiting, state.waiting))}"


def _place(request_id: RequestId, queues: Iterable[WaitingQueue]) -> int:
    return [waiting_id for queue in queues for waiting_id in queue].index(request_id) + 1
