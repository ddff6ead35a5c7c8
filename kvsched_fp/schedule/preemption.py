"""Making room: preempting the least important until the one at the cursor fits, and giving way to holders.

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
[S-PRE-08] Where a running request waits like that, nobody is in the step, no prompt is held back, and
    nobody who runs is in flight or has its turn later [S-RUN-08], what is lacking is held by those who wait
    with blocks in hand. Once the first of them has its input, each side would wait for the other's blocks.
    So if that is enough for it, all who run give way to it, in the order of [S-PRE-01] or [S-PRE-02].
[S-PRE-09] Without the quirk of deviation D-16: where the first in line of those who wait with blocks in
    hand does not fit, nobody runs, and what the others in line have that have input and nothing in flight
    is enough for it, the last of these gives its blocks back [M-REL-06], and so on until it fits. Nobody
    else is admitted in that step.

Upstream: the `while True` of the running phase in `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

from collections.abc import Iterable

from kvsched_fp.config import Quirk, SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.allocation import append_slots, count_missing_blocks
from kvsched_fp.kvcache.coordinator import count_reclaimable
from kvsched_fp.outputs import BlockIds
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.release import give_blocks_back, preempt_request
from kvsched_fp.request import RequestStatus
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
        victim_index = _choose_victim(plan, plan.running)
        victim_id = plan.running.pop(victim_index)
        plan.preempted(victim_id, request_id, num_new_tokens)
        if victim_index < cursor:
            cursor -= 1  # [S-PRE-03]
        if victim_id in plan.num_scheduled_tokens:
            plan.take_back(victim_id)  # [S-PRE-04]
        _preempt(plan, victim_id)
        if victim_id == request_id:
            return None, cursor  # [S-PRE-05]
        block_ids = append_slots(plan.kv, request, plan.progress[request_id], num_new_tokens)
        if block_ids is not None:
            return block_ids, cursor


def give_way_to_holders(plan: Plan) -> None:
    """Preempt all who run if none of them will go on before one does that waits with blocks [S-PRE-08]."""
    # Prompts that are held back now will not be in the next step.
    if plan.num_scheduled_tokens or plan.hold_prefills or any(_goes_on(plan, it) for it in plan.running):
        return
    first = next(filter(lambda it: _has_input(plan, it), plan.kv_holding_waiting), None)
    if first is None or not _is_enough(plan, first, [*plan.running, *_who_may_give_back(plan, first)]):
        return
    while plan.running:
        victim_id = plan.running.pop(_choose_victim(plan, plan.running))
        plan.gave_way(victim_id)
        _preempt(plan, victim_id)


def _goes_on(plan: Plan, request_id: RequestId) -> bool:
    """Tell whether a request without a row in this step has one in flight, or its turn later [S-RUN-08]."""
    progress = plan.progress[request_id]
    return progress.num_in_flight_tokens > 0 or plan.current_step < progress.next_decode_eligible_step


def _preempt(plan: Plan, victim_id: RequestId) -> None:
    preempt_request(plan, victim_id, drop_stale_output=plan.config.requires_kv_delivery)
    plan.someone_preempted = True


def make_holder_give_back(plan: Plan, request_id: RequestId) -> bool:
    """Make the last in line of the others give its blocks back to a request that holds some [S-PRE-09].

    Gives whether anybody did.
    """
    givers = [] if plan.running else _who_may_give_back(plan, request_id)
    if not givers or not _is_enough(plan, request_id, givers):
        return False
    plan.gave_back(givers[-1], request_id)
    give_blocks_back(plan, givers[-1])
    plan.someone_gave_back = True
    return True


def _who_may_give_back(plan: Plan, request_id: RequestId) -> list[RequestId]:
    """List who would give blocks back to a request, first in line first [S-PRE-09]."""
    if Quirk.KEEPS_BLOCKS_WHILE_WAITING in plan.config.quirks:
        return []
    return [
        holder_id
        for holder_id in plan.kv_holding_waiting
        if holder_id != request_id
        and plan.progress[holder_id].status is RequestStatus.WAITING
        and plan.progress[holder_id].num_in_flight_tokens == 0
    ]


def _has_input(plan: Plan, holder_id: RequestId) -> bool:
    return plan.progress[holder_id].status is not RequestStatus.WAITING_FOR_INPUT


def _is_enough(plan: Plan, request_id: RequestId, givers: Iterable[RequestId]) -> bool:
    """Tell whether all known tokens of a request fit, once all of `givers` have given theirs back."""
    num_tokens = num_known_tokens(plan.requests[request_id], plan.progress[request_id])
    return _num_missing(plan, request_id, num_tokens) <= plan.kv.pool.num_free_blocks + count_reclaimable(
        plan.kv, givers
    )


def _num_missing(plan: Plan, request_id: RequestId, num_tokens: int) -> int:
    """Count the blocks that a request lacks for `num_tokens` tokens and the lookahead."""
    num_slots = num_tokens + plan.config.num_lookahead_tokens
    return sum(count_missing_blocks(plan.kv, plan.kv.tables[request_id], num_slots) or ())


def _can_make_room(plan: Plan, request_id: RequestId, num_new_tokens: int) -> bool:
    """Tell whether all who give way to a request, together, hold enough for it [S-PRE-07]."""
    remaining, victims = list(plan.running), []
    while (victim_id := remaining.pop(_choose_victim(plan, remaining))) != request_id:
        victims.append(victim_id)
    num_tokens = plan.progress[request_id].num_computed_tokens + num_new_tokens
    num_missing = _num_missing(plan, request_id, num_tokens)
    return num_missing <= plan.kv.pool.num_free_blocks + count_reclaimable(plan.kv, victims)


def _choose_victim(plan: Plan, running: list[RequestId]) -> int:
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
