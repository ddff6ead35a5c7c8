"""Making room: preempting the least important requests until the one at the cursor fits.

Rules
-----
[S-PRE-01] FCFS: the victim is the last of the running requests, which may be the one at the cursor.
[S-PRE-02] Priority: the victim is the running request with the largest (priority, arrival time), the
    first of them in scheduling order where that is equal.
[S-PRE-03] A victim ahead of the cursor moves the cursor back by one, so that no request is passed over.
[S-PRE-04] A victim that was given tokens in this step gives everything back [S-BUD-03].
[S-PRE-05] When the victim is the request at the cursor, it gets nothing in this step.
[S-PRE-06] Victims are taken one by one, before it is known whether even all of them suffice.

Upstream: the `while True` of the running phase in `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.kvcache.allocation import append_slots
from kvsched_fp.outputs import BlockIds
from kvsched_fp.release import preempt_request
from kvsched_fp.schedule.plan import Plan


def append_slots_by_preemption(plan: Plan, cursor: int, num_new_tokens: int) -> tuple[BlockIds | None, int]:
    """Preempt until the request at `cursor` fits or is itself the victim [S-PRE-06].

    Gives its new blocks (None if it was the victim) and the new cursor.
    """
    request_id = plan.running[cursor]
    request = plan.requests[request_id]
    while True:
        victim_index = _choose_victim(plan)
        victim_id = plan.running.pop(victim_index)
        plan.preempted(victim_id, request_id, num_new_tokens)
        if victim_index < cursor:
            cursor -= 1  # [S-PRE-03]
        if victim_id in plan.num_scheduled_tokens:
            plan.take_back(victim_id)  # [S-PRE-04]
        preempt_request(plan, victim_id, drop_stale_output=plan.config.requires_kv_delivery)
        plan.someone_preempted = True
        if victim_id == request_id:
            return None, cursor  # [S-PRE-05]
        block_ids = append_slots(plan.kv, request, plan.progress[request_id], num_new_tokens)
        if block_ids is not None:
            return block_ids, cursor


def _choose_victim(plan: Plan) -> int:
    """Give the index of the victim in `running` [S-PRE-01, S-PRE-02]."""
    if plan.config.policy is SchedulingPolicy.FCFS:
        return len(plan.running) - 1

    def least_important(index: int) -> tuple[int, float]:
        request = plan.requests[plan.running[index]]
        return (request.priority, request.arrival_time)

    return max(range(len(plan.running)), key=least_important)
