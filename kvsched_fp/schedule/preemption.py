"""Making room: preempting the least important until the one at the cursor fits.

Rules
-----
[S-PRE-01] FCFS: the victim is the last of the running requests, which may be the one at the cursor.
[S-PRE-02] Priority: the victim is the running request with the largest (priority, arrival time), the
    first of them in scheduling order where that is equal (deviation D-10; the last of them without the
    quirk).
[S-PRE-03] A victim ahead of the cursor moves the cursor back by one, so that no request is passed over.
[S-PRE-04] A victim that was given tokens in this step gives everything back [S-BUD-03].
[S-PRE-05] When the victim is the request at the cursor, it gets nothing in this step.
[S-PRE-06] Victims are taken one by one, before it is known whether even all of them suffice (deviation
    D-07).
[S-PRE-07] Without that quirk, nobody is preempted where all who would be before the request itself hold too
    little: the request keeps what it has and waits for somebody to end. Nobody is admitted meanwhile, and
    capacity counts as short, so that the next steps hold no prompt back for its sake [S-HOLD-01].

Upstream: the `while True` of the running phase in `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

from collections.abc import Iterable

from kvsched_fp.config import Quirk, SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.allocation import append_slots, count_missing_blocks
from kvsched_fp.kvcache.coordinator import count_reclaimable
from kvsched_fp.outputs import BlockIds
from kvsched_fp.release import preempt_request
from kvsched_fp.schedule.plan import Plan


def append_slots_by_preemption(plan: Plan, cursor: int, num_new_tokens: int) -> tuple[BlockIds | None, int]:
    """Preempt until the request at `cursor` fits or is itself the victim [S-PRE-06].

    Gives its new blocks (None if it was the victim, or waits) and the new cursor.
    """
    request_id = plan.running[cursor]
    request = plan.requests[request_id]
    if Quirk.PREEMPTS_IN_VAIN not in plan.config.quirks and not _can_make_room(
        plan, request_id, num_new_tokens
    ):
        plan.kept_waiting(request_id)
        plan.someone_lacks_blocks = plan.capacity_bound = True
        return None, cursor + 1  # [S-PRE-07]
    while True:
        victim_index = choose_victim(plan, plan.running)
        victim_id = plan.running.pop(victim_index)
        plan.preempted(victim_id, request_id, num_new_tokens)
        if victim_index < cursor:
            cursor -= 1  # [S-PRE-03]
        if victim_id in plan.num_scheduled_tokens:
            plan.take_back(victim_id)  # [S-PRE-04]
        preempt(plan, victim_id)
        if victim_id == request_id:
            return None, cursor  # [S-PRE-05]
        block_ids = append_slots(plan.kv, request, plan.progress[request_id], num_new_tokens)
        if block_ids is not None:
            return block_ids, cursor


def preempt(plan: Plan, victim_id: RequestId) -> None:
    """Let a victim, which has left the running ones, give everything back and wait."""
    preempt_request(plan, victim_id, drop_stale_output=plan.config.requires_kv_delivery)
    plan.someone_preempted = True


def would_fit(plan: Plan, request_id: RequestId, num_tokens: int, givers: Iterable[RequestId]) -> bool:
    """Tell whether so many tokens of a request and the lookahead fit, once `givers` gave theirs back."""
    num_slots = num_tokens + plan.config.num_lookahead_tokens
    num_missing = sum(count_missing_blocks(plan.kv, plan.kv.tables[request_id], num_slots) or ())
    return num_missing <= plan.kv.pool.num_free_blocks + count_reclaimable(plan.kv, givers)


def _can_make_room(plan: Plan, request_id: RequestId, num_new_tokens: int) -> bool:
    """Tell whether all who give way to a request, together, hold enough for it [S-PRE-07]."""
    remaining, victims = list(plan.running), []
    while (victim_id := remaining.pop(choose_victim(plan, remaining))) != request_id:
        victims.append(victim_id)
    return would_fit(
        plan, request_id, plan.progress[request_id].num_computed_tokens + num_new_tokens, victims
    )


def choose_victim(plan: Plan, running: list[RequestId]) -> int:
    """Give the index of the victim in `running` [S-PRE-01, S-PRE-02]."""
    if plan.config.policy is SchedulingPolicy.FCFS:
        return len(running) - 1

    def least_important(index: int) -> tuple[int, float]:
        request = plan.requests[running[index]]
        return (request.priority, request.arrival_time)

    indices = range(len(running))
    if Quirk.OLDEST_OF_EQUALS_GIVES_WAY not in plan.config.quirks:
        indices = indices[::-1]
    return max(indices, key=least_important)
