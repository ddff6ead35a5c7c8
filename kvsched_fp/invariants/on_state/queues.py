"""Every live request waits or runs, in its place."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.queues import FCFSQueue, PriorityQueue, QueueEntry
from kvsched_fp.request import RequestStatus, is_finished
from kvsched_fp.state import SchedulerState

_HELD_FROM_OUTSIDE = (RequestStatus.WAITING_FOR_GRAMMAR, RequestStatus.WAITING_FOR_INPUT)


@state_invariant(
    "INV-QUEUE-01",
    Cost.CHEAP,
    "The three queues together are as long as the maps of live requests.",
    "A request in no queue is lost; one in two is served twice.",
    reports=("vLLM PR #20739",),
)
def _lengths_agree(state: SchedulerState) -> str | None:
    num_queued = len(state.running) + len(state.waiting) + len(state.kv_holding_waiting)
    if num_queued == len(state.requests) == len(state.progress) == len(state.add_numbers):
        return None
    return (
        f"{num_queued} requests in the queues, {len(state.requests)} in requests, "
        f"{len(state.progress)} in progress, {len(state.add_numbers)} in add_numbers"
    )


@state_invariant(
    "INV-QUEUE-02",
    Cost.CHEAP,
    "At most max_num_active requests run.",
    "The model runner has no row for one more.",
)
def _running_fit(state: SchedulerState) -> str | None:
    if len(state.running) <= state.config.max_num_active:
        return None
    return f"{len(state.running)} requests run, {state.config.max_num_active} are allowed"


@state_invariant(
    "INV-QUEUE-03",
    Cost.FULL,
    "Each live request is in exactly one of the queues, once, and nothing else is in any.",
    "A request in two queues is served twice, and one in none never ends.",
    reports=("vLLM PR #20739",),
)
def _one_queue_each(state: SchedulerState) -> str | None:
    queued = [*state.running, *state.waiting, *state.kv_holding_waiting]
    if len(queued) == len(state.requests) and set(queued) == set(state.requests):
        return None
    places = Counter(queued)
    for request_id, num_places in places.items():
        if num_places != 1 or request_id not in state.requests:
            live = "live" if request_id in state.requests else "not live"
            return f"request {request_id}, which is {live}, stands in {num_places} places"
    lost = next(request_id for request_id in state.requests if request_id not in places)
    return f"request {lost} is in no queue"


@state_invariant(
    "INV-QUEUE-04",
    Cost.FULL,
    "The maps of live requests have the same ids.",
    "A leftover in one of them makes equal situations unequal, and is found by a later request of that id.",
)
def _maps_agree(state: SchedulerState) -> str | None:
    for name, other in (("progress", state.progress), ("add_numbers", state.add_numbers)):
        if len(other) != len(state.requests):
            return f"{len(state.requests)} requests, {len(other)} entries in {name}"
        for request_id in state.requests:
            if request_id not in other:
                return f"request {request_id} is missing in {name}"
    for request_id, request in state.requests.items():
        if request.request_id != request_id:
            return f"request {request.request_id} is filed under {request_id}"
    return None


@state_invariant(
    "INV-QUEUE-05",
    Cost.FULL,
    "The status says which queue: RUNNING for the running, any other live status for the waiting.",
    "What a result means for a request depends on its status.",
)
def _status_says_queue(state: SchedulerState) -> str | None:
    _, running, waiting, holding = places(state)
    for request_id, _, progress, _ in running:
        status = progress.status
        if status is not RequestStatus.RUNNING:
            return f"request {request_id} is {status.name} in running"
    for request_id, _, progress, _ in chain(waiting, holding):
        status = progress.status
        if status is RequestStatus.RUNNING or is_finished(status):
            return f"request {request_id} is {status.name} in a waiting queue"
    return None


@state_invariant(
    "INV-QUEUE-06",
    Cost.FULL,
    "Deferred requests wait.",
    "They are counted off the waiting ones when the scheduler asks whether capacity is short.",
)
def _deferred_wait(state: SchedulerState) -> str | None:
    if not state.deferred:
        return None
    waiting = set(chain(state.waiting, state.kv_holding_waiting))
    for request_id in state.deferred:
        if request_id not in waiting:
            return f"deferred request {request_id} is in no waiting queue"
    return None


@state_invariant(
    "INV-QUEUE-07",
    Cost.FULL,
    "A queue entry has the priority and the arrival time of its request; for a session, the arrival time "
    "may be that of an earlier input.",
    "The queue is ordered by its entries; a wrong one is served at the wrong time. New input does not "
    "move a session.",
)
def _entries_are_true(state: SchedulerState) -> str | None:
    _, _, waiting, holding = places(state)
    if not waiting and not holding:
        return None
    entries = chain(_entries(state.waiting), _entries(state.kv_holding_waiting))
    for entry, (_, request, _, _) in zip(entries, chain(waiting, holding), strict=True):
        if entry.priority != request.priority or (
            entry.arrival_time != request.arrival_time and not request.resumable
        ):
            return (
                f"{entry} stands for request {request.request_id} of priority {request.priority}, "
                f"arrived at {request.arrival_time}"
            )
    return None


@state_invariant(
    "INV-QUEUE-08",
    Cost.FULL,
    "By priority, both waiting queues are sorted by (priority, arrival time, request id).",
    "The first one is served first.",
)
def _priority_is_sorted(state: SchedulerState) -> str | None:
    if state.config.policy is not SchedulingPolicy.PRIORITY:
        return None
    for queue in (state.waiting, state.kv_holding_waiting):
        for entry, following in pairwise(_entries(queue)):
            if not entry < following:
                return f"{entry} stands before {following}"
    return None


@state_invariant(
    "INV-QUEUE-09",
    Cost.FULL,
    "First come, first served: preempted requests stand before the others, and those that are no sessions "
    "stand in the order in which they were added.",
    "A later request must not overtake. A session that goes on waits like a new request.",
    reports=("vLLM #41951",),
)
def _first_come_first(state: SchedulerState) -> str | None:
    if state.config.policy is not SchedulingPolicy.FCFS or not state.waiting:
        return None
    last: RequestId | None = None
    someone: RequestId | None = None
    for request_id, request, progress, _ in places(state).waiting:
        if progress.status is RequestStatus.PREEMPTED:
            if someone is not None:
                return f"preempted request {request_id} stands behind {someone}, which is not"
            continue
        someone = request_id
        if request.resumable:
            continue
        if last is not None and state.add_numbers[request_id] < state.add_numbers[last]:
            return f"request {request_id}, added before {last}, stands behind it"
        last = request_id
    return None


@state_invariant(
    "INV-QUEUE-10",
    Cost.FULL,
    "Whoever waits for a grammar or for input is deferred.",
    "What no step can give it is no lack of capacity.",
)
def _held_from_outside_is_deferred(state: SchedulerState) -> str | None:
    _, _, waiting, holding = places(state)
    for request_id, _, progress, _ in chain(waiting, holding):
        status = progress.status
        if status in _HELD_FROM_OUTSIDE and request_id not in state.deferred:
            return f"request {request_id} is {status.name} and not deferred"
    return None


@state_invariant(
    "INV-QUEUE-11",
    Cost.FULL,
    "Who waits stands among those that hold blocks exactly while it has computed tokens.",
    "Those are served first, since their blocks are taken from all others.",
    reports=("vLLM PR #57841",),
)
def _computed_says_which_queue(state: SchedulerState) -> str | None:
    _, _, waiting, holding = places(state)
    for request_id, _, progress, _ in waiting:
        if progress.num_computed_tokens > 0:
            num_tokens = progress.num_computed_tokens
            return f"request {request_id} stands in waiting with {num_tokens} computed tokens"
    for request_id, _, progress, _ in holding:
        if progress.num_computed_tokens <= 0:
            num_tokens = progress.num_computed_tokens
            return f"request {request_id} stands in kv_holding_waiting with {num_tokens} computed tokens"
    return None


@state_invariant(
    "INV-QUEUE-12",
    Cost.FULL,
    "The running requests use at most max_loras adapters, and none where there are no adapters.",
    "The model runner has no room for one more.",
)
def _adapters_fit(state: SchedulerState) -> str | None:
    loras = [request.lora for _, request, _, _ in places(state).running if request.lora is not None]
    if not loras:
        return None
    lora_ids = sorted({lora.lora_id for lora in loras})
    most = state.config.max_loras or 0
    return None if len(lora_ids) <= most else f"the adapters {lora_ids} are in use, {most} are allowed"


def _entries(queue: object) -> Iterator[QueueEntry]:
    if isinstance(queue, FCFSQueue | PriorityQueue):
        yield from queue.entries


INVARIANTS: tuple[StateInvariant, ...] = (
    _lengths_agree,
    _running_fit,
    _one_queue_each,
    _maps_agree,
    _status_says_queue,
    _deferred_wait,
    _entries_are_true,
    _priority_is_sorted,
    _first_come_first,
    _held_from_outside_is_deferred,
    _computed_says_which_queue,
    _adapters_fit,
)
"""In the order in which they are checked."""
