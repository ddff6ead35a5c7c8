"""Those who wait with blocks in hand, and who would make room for whom so that somebody goes on.

Rules
-----
[S-PRE-08] Where a running request waits like that, nobody is in the step, no prompt is held back, and
    nobody who runs is in flight or has its turn later [S-RUN-08], what is lacking is held by those who wait
    with blocks in hand. Once the first of them has its input, each side would wait for the other's blocks.
    So if that is enough for it, all who run give way to it, in the order of [S-PRE-01] or [S-PRE-02].
[S-PRE-09] Without the quirk of deviation D-16: where the first in line of those who wait with blocks in
    hand does not fit, nobody runs, and what the others in line have that have input and nothing in flight
    is enough for it, the last of these gives its blocks back [M-REL-06], and so on until it fits. Nobody
    else is admitted in that step.

Upstream: nothing; the reference lets them wait for ever (deviations D-07 and D-16).
"""

from collections.abc import Iterable

from kvsched_fp.config import Quirk
from kvsched_fp.ids import RequestId
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.release import give_blocks_back
from kvsched_fp.request import RequestStatus
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.preemption import choose_victim, preempt, would_fit


def give_way_to_holders(plan: Plan) -> None:
    """Preempt all who run if none of them will go on before one does that waits with blocks [S-PRE-08]."""
    # Prompts that are held back now will not be in the next step.
    if plan.num_scheduled_tokens or plan.hold_prefills or any(_goes_on(plan, it) for it in plan.running):
        return
    first = next(filter(lambda it: _has_input(plan, it), plan.kv_holding_waiting), None)
    if first is None or not _is_enough(plan, first, [*plan.running, *_who_may_give_back(plan, first)]):
        return
    while plan.running:
        victim_id = plan.running.pop(choose_victim(plan, plan.running))
        plan.gave_way(victim_id)
        preempt(plan, victim_id)


def _goes_on(plan: Plan, request_id: RequestId) -> bool:
    """Tell whether a request without a row in this step has one in flight, or its turn later [S-RUN-08]."""
    progress = plan.progress[request_id]
    return progress.num_in_flight_tokens > 0 or plan.current_step < progress.next_decode_eligible_step


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
    return would_fit(plan, request_id, num_tokens, givers)
