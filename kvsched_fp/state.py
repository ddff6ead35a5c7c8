"""The state of a scheduler: one immutable record.

Rules
-----
[M-STATE-01] A state is a value: keep it, compare it, hash it, branch from it. No function changes it.
[M-STATE-02] Equal histories give equal states.
[M-STATE-03] Order is behaviour, so every order is a vector, a tuple or an `OrderedMap`; the maps and
    sets that iterate in hash order are for look-up only.
[M-STATE-04] A live request is in exactly one of `running`, `waiting` and `kv_holding_waiting`; a request
    that ended is in none, and in no map of live requests.
"""

import attrs
from immutables import Map
from pyrsistent import PSet, pset

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import KVCache, make_kv_cache
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import Emitted, SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.queues import WaitingQueue, make_queue
from kvsched_fp.records import quick_evolver
from kvsched_fp.request import Request


@attrs.frozen(kw_only=True, weakref_slot=False)
class SchedulerState:
    """Everything that a scheduler knows between two calls [M-STATE-01, M-STATE-02, M-STATE-03]."""

    config: SchedulerConfig
    """What never changes."""
    requests: Map[RequestId, Request] = Map()
    """The live requests: what the clients asked for."""
    progress: Map[RequestId, Progress] = Map()
    """The live requests: where the scheduler stands with each."""
    add_numbers: Map[RequestId, int] = Map()
    """The live requests: the how many-th each was to be added; orders an end of all."""
    running: tuple[RequestId, ...] = ()
    """The ids that run, in scheduling order [M-STATE-04]."""
    waiting: WaitingQueue
    """The ids that wait and hold no blocks."""
    kv_holding_waiting: WaitingQueue
    """The ids that wait and hold blocks; always served first."""
    deferred: PSet[RequestId] = pset()
    """The waiting ids that some scan has skipped, or that wait for something outside, until they are
    admitted or end."""
    num_waiting_for_input: int = 0
    """Sessions that wait for their next input."""
    grammar_errors: OrderedMap[RequestId, str] = OrderedMap()
    """Requests that the next update ends because there is no grammar for them, and why."""
    kv: KVCache
    """The KV cache."""
    in_flight: tuple[SchedulerOutput, ...] = ()
    """The steps whose result has not come back, the oldest first."""
    emitted: Emitted = Emitted()
    """What the last update told the world."""
    pause_state: PauseState = PauseState.UNPAUSED
    """How much may be scheduled."""
    num_added: int = 0
    """Requests added so far."""
    current_step: int = 0
    """Calls of `schedule()` so far."""
    num_executed_steps: int = 0
    """Of those, the ones that scheduled anything."""
    last_prefill_step: int
    """`num_executed_steps` at the last step that carried prompt."""
    prefill_capacity_bound: bool = False
    """Whether the last scan that admitted prompts left requests behind that it could have taken."""
    finished_request_ids: tuple[RequestId, ...] = ()
    """Finished since the last step, in that order."""
    finished_by_client: OrderedMap[int, tuple[RequestId, ...]] = OrderedMap()
    """Per client, finished since the last update; kept only with `include_finished_set`."""
    preempted_request_ids: tuple[RequestId, ...] = ()
    """Preempted since the last step, or made to give their blocks back [M-REL-06], in that order."""
    prev_step_request_ids: frozenset[RequestId] = frozenset()
    """Ids in the last step's batch; kept only for the V1 output shape. For look-up only."""


evolve_state = quick_evolver(SchedulerState)
"""Copy a state with the fields changed that are given by name."""


def initial_state(config: SchedulerConfig) -> SchedulerState:
    """Make the state of a scheduler that nothing has happened to."""
    return SchedulerState(
        config=config,
        waiting=make_queue(config.policy),
        kv_holding_waiting=make_queue(config.policy),
        kv=make_kv_cache(config),
        # A full interval back, so that the first step is never held.
        last_prefill_step=-config.local_prefill_interval,
    )


def num_unfinished_requests(state: SchedulerState) -> int:
    """Count the live requests that the pause state lets be scheduled; sessions that wait for input are not.

    Upstream: `v1/core/sched/scheduler.py::Scheduler.get_num_unfinished_requests`.
    """
    match state.pause_state:
        case PauseState.PAUSED_ALL:
            return 0
        case PauseState.PAUSED_NEW:
            num_waiting = len(state.kv_holding_waiting)
        case PauseState.UNPAUSED:
            num_waiting = num_waiting_requests(state)
    return len(state.running) + num_waiting - state.num_waiting_for_input


def has_unfinished_requests(state: SchedulerState) -> bool:
    """Tell whether there is anything that may be scheduled; `state.requests` tells whether any is live.

    Upstream: `v1/core/sched/interface.py::SchedulerInterface.has_unfinished_requests`.
    """
    return num_unfinished_requests(state) > 0


def num_waiting_requests(state: SchedulerState) -> int:
    """Count the requests in both waiting queues."""
    return len(state.waiting) + len(state.kv_holding_waiting)


def live_request_ids(state: SchedulerState) -> list[RequestId]:
    """List the live ids in the order in which they were added."""
    return sorted(state.requests, key=state.add_numbers.__getitem__)
