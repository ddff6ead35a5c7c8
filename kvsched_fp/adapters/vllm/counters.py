"""The counters that both sides keep. All are read at once, since they are compared after every call."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import starmap
from operator import attrgetter
from typing import Any

from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.scheduler import Scheduler

from kvsched_fp.adapters.vllm.assignments import STATE_FIELDS
from kvsched_fp.events import PauseState
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.difference import Difference, first_difference

_PLAIN = {
    "current_step": ("current_step", "current_step"),
    "num_waiting_for_input": ("num_waiting_for_streaming_input", "num_waiting_for_input"),
    "num_free_blocks": (
        "kv_cache_manager.block_pool.free_block_queue.num_free_blocks",
        "kv.pool.num_free_blocks",
    ),
    **{name: (name, name) for name in STATE_FIELDS},
}
"""What can be read off, by its name in a report: where the real scheduler has it, and the state."""

_NAMES = (
    *_PLAIN,
    "num_requests",
    "num_waiting",
    "num_kv_holding_waiting",
    "deferred",
    "finished_request_ids",
    "finished_by_client",
    "grammar_errors",
    "pause_state",
)

MAX_DEFERRED_COMPARED = 32
"""Of more deferred requests than that, only the number is compared."""

_PAUSE_STATES = {state: PauseState[state.name] for state in VllmPauseState}

_read_theirs = attrgetter(*[theirs for theirs, _ in _PLAIN.values()])
_read_ours = attrgetter(*[ours for _, ours in _PLAIN.values()])


def find_different_counter(real: Scheduler, state: SchedulerState) -> Difference | None:
    """Give the first counter that differs, or None."""
    theirs, ours = _theirs(real), _ours(state)
    if theirs == ours:
        return None
    triples = zip(theirs, ours, _NAMES, strict=True)
    return next(filter(None, starmap(first_difference, triples)))


def _theirs(real: Scheduler) -> tuple[Any, ...]:
    return (
        *_read_theirs(real),
        len(real.requests),
        len(real.waiting),
        len(real.kv_holding_waiting),
        _few(real.deferred_waiting, lambda request: request.request_id),
        tuple(sorted(real.finished_req_ids)),
        _sorted_by_client(real.finished_req_ids_dict or {}),
        tuple(real.grammar_compile_error_reqs),
        _PAUSE_STATES[real.pause_state],
    )


def _ours(state: SchedulerState) -> tuple[Any, ...]:
    return (
        *_read_ours(state),
        len(state.requests),
        len(state.waiting),
        len(state.kv_holding_waiting),
        _few(state.deferred, str),
        tuple(sorted(state.finished_request_ids)),
        _sorted_by_client(state.finished_by_client),
        tuple(state.grammar_errors),
        state.pause_state,
    )


def _few(waiting: Collection[Any], id_of: Callable[[Any], str]) -> tuple[str, ...] | int:
    """Give the ids in order, or their number if there are many."""
    num_waiting = len(waiting)
    if num_waiting == 0:
        return ()  # nearly always
    return tuple(sorted(map(id_of, waiting))) if num_waiting <= MAX_DEFERRED_COMPARED else num_waiting


def _sorted_by_client(finished: Mapping[int, Iterable[str]]) -> dict[int, tuple[str, ...]]:
    return {client: tuple(sorted(ids)) for client, ids in finished.items() if ids} if finished else {}
