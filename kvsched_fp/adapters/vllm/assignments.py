"""What may be assigned on a scheduler, or on a request that it holds, after it was made.

Much of the code around vLLM assigns attributes of a scheduler (`use_v2_model_runner`, limits of a test).
Each of them either takes effect here or is refused; none is ignored.
"""

import types
from operator import attrgetter
from typing import Any, cast

import attrs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.requests import to_sampling_params
from kvsched_fp.config import SchedulerConfig, SchedulingPolicy
from kvsched_fp.deque import make_deque
from kvsched_fp.errors import InvalidConfig, InvalidEvent
from kvsched_fp.ids import RequestId
from kvsched_fp.queues import FCFSQueue, PriorityQueue, QueueEntry, WaitingQueue, queue_entry
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState

CONFIG_FIELDS = {
    "max_num_active_reqs": "max_num_active_seqs",
    "max_num_scheduled_tokens": "max_num_scheduled_tokens",
    "use_v2_model_runner": "use_v2_model_runner",
    "num_lookahead_tokens": "num_lookahead_tokens",
    "scheduler_reserve_full_isl": "scheduler_reserve_full_isl",
    "adaptive_long_prefill_threshold": "long_prefill_token_threshold_adaptive",
    "local_prefill_interval": "prefill_schedule_interval",
    "requires_kv_delivery": "requires_kv_delivery",
}
"""Attributes of the real scheduler that it reads in every step, and the fields of ours that they are."""

READ_IN_EVERY_STEP = (
    "long_prefill_token_threshold",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
)
"""Fields of vLLM's `scheduler_config` that the real scheduler reads in every step."""

_read_fields = attrgetter(*CONFIG_FIELDS)
_read_in_every_step = attrgetter(*READ_IN_EVERY_STEP)

STATE_FIELDS = ("prefill_capacity_bound", "last_prefill_step", "num_executed_steps")
"""Fields of the state that may be assigned under their own name."""


def assign_config(config: SchedulerConfig, name: str, value: Any) -> SchedulerConfig:
    """Change one of `CONFIG_FIELDS`.

    Raises `InvalidConfig` for a value that cannot work, or that would change what the real scheduler fixes
    when it is made.
    """
    changes = {CONFIG_FIELDS[name]: value}
    if name == "max_num_active_reqs" and isinstance(value, int):
        changes["max_num_seqs"] = max(config.max_num_seqs, value)
    if name == "local_prefill_interval":
        # Whoever sets it wants it kept here, however many ranks there are.
        changes["data_parallel_size"] = 1
    changed = attrs.evolve(config, **changes)
    if changed.can_skip_drafts is not config.can_skip_drafts:
        allowed = (
            "a value that does not change whether drafts can be skipped, which is fixed at construction"
        )
        raise InvalidConfig(name, value, allowed)
    return changed


def follow_scheduler_config(config: SchedulerConfig, theirs: Any) -> SchedulerConfig:
    """Take over what vLLM's `scheduler_config` says now; the same value if nothing changed."""
    for name in READ_IN_EVERY_STEP:
        if getattr(theirs, name) != getattr(config, name):
            return attrs.evolve(config, **{name: getattr(theirs, name) for name in READ_IN_EVERY_STEP})
    return config


class AssignedConfig:
    """What is assigned on a real scheduler from one call to the next, as far as it is configuration."""

    def __init__(self, real: Scheduler) -> None:
        self._real = real
        self._seen = self._read()

    def _read(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _read_fields(self._real), _read_in_every_step(self._real.scheduler_config)

    def follow(self, config: SchedulerConfig) -> SchedulerConfig:
        """Take over what was assigned since the last time; the same value if nothing was.

        Raises `InvalidConfig` for a value that cannot work.
        """
        now = self._read()
        if now == self._seen:
            return config
        config = follow_scheduler_config(config, self._real.scheduler_config)
        for name, old, new in zip(CONFIG_FIELDS, self._seen[0], now[0], strict=True):
            if new != old:
                config = assign_config(config, name, new)
        self._seen = now
        return config


def reassign_request(state: SchedulerState, request: VllmRequest, name: str, value: Any) -> SchedulerState:
    """Let an assignment to a held request take effect.

    Raises `InvalidEvent` for one that the reference's priority queue would not survive.
    """
    request_id = RequestId(request.request_id)
    asked = _change(state.requests[request_id], request, name, value)
    entry = queue_entry(asked)
    return attrs.evolve(
        state,
        requests=state.requests.set(request_id, asked),
        waiting=_replace(state, state.waiting, entry, name),
        kv_holding_waiting=_replace(state, state.kv_holding_waiting, entry, name),
    )


def _change(asked: Request, request: VllmRequest, name: str, value: Any) -> Request:
    if name == "max_tokens":
        return attrs.evolve(asked, sampling_params=attrs.evolve(asked.sampling_params, max_tokens=value))
    if name == "sampling_params":
        changed = types.SimpleNamespace(
            max_tokens=request.max_tokens,
            sampling_params=value,
            skip_reading_prefix_cache=request.skip_reading_prefix_cache,
        )
        return attrs.evolve(asked, sampling_params=to_sampling_params(changed))
    return attrs.evolve(asked, **{name: value})


def _replace(state: SchedulerState, queue: WaitingQueue, entry: QueueEntry, name: str) -> WaitingQueue:
    """Put a changed entry where the old one is."""
    entries = cast("FCFSQueue | PriorityQueue", queue).entries
    if all(old.request_id != entry.request_id or old == entry for old in entries):
        return queue
    if state.config.policy is SchedulingPolicy.PRIORITY and len(entries) > 1:
        raise InvalidEvent(
            f"request {entry.request_id!r}.{name}",
            getattr(entry, name),
            "no change while it waits among others: the reference's heap would be left out of order",
        )
    replaced = [entry if old.request_id == entry.request_id else old for old in entries]
    if isinstance(queue, FCFSQueue):
        return FCFSQueue(make_deque(replaced))
    return PriorityQueue(tuple(replaced))
