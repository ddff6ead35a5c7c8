"""The running phase: every running request gets the tokens that it still lacks.

Rules
-----
[S-RUN-01] Requests are looked at in scheduling order, each exactly once, until a budget is used up.
[S-RUN-02] A request gets what is known of it and not computed yet, cut by the long-prefill threshold,
    by what is left of both budgets, and so that the sampled token still fits into `max_model_len`.
[S-RUN-03] A request that gets nothing is passed over; the ones behind it go on.
[S-RUN-04] While prompts are held back, a request in the middle of its prompt is passed over.
[S-RUN-05] When its blocks do not fit, others are preempted until they do [S-PRE-06].
[S-RUN-06] When the request itself was preempted, the phase ends (FCFS: nothing behind it is left), or
    goes on with the next one (priority: those are more important and may fit now).

Upstream: the running loop of `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.kvcache.allocation import append_slots
from kvsched_fp.request import Progress, Request, num_known_tokens
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.preemption import append_slots_by_preemption

NUM_SAMPLED_TOKENS_PER_STEP = 1
"""Text generation appends one sampled token to a finished prompt, and needs its position."""


def schedule_running(plan: Plan) -> None:
    """Run the phase [S-RUN-01]."""
    cursor = 0
    while cursor < len(plan.running) and plan.token_budget > 0 and plan.input_budget > 0:
        request_id = plan.running[cursor]
        request = plan.requests[request_id]
        progress = plan.progress[request_id]
        num_new_tokens = _num_new_tokens(plan, request, progress)
        if num_new_tokens == 0:
            plan.passed_over(request_id)
            cursor += 1  # [S-RUN-03]
            continue
        block_ids = append_slots(plan.kv, request, progress, num_new_tokens)
        if block_ids is None:
            block_ids, cursor = append_slots_by_preemption(plan, cursor, num_new_tokens)  # [S-RUN-05]
        if block_ids is None:
            if plan.config.policy is SchedulingPolicy.FCFS:
                break  # [S-RUN-06]
            continue
        plan.scheduled_running.append(request_id)
        plan.prefill_scheduled |= progress.is_prefill_chunk
        plan.give(request_id, num_new_tokens, block_ids)
        cursor += 1


def _num_new_tokens(plan: Plan, request: Request, progress: Progress) -> int:
    """Decide how many tokens a running request may compute now; 0 for none [S-RUN-02, S-RUN-04]."""
    if plan.hold_prefills and progress.is_prefill_chunk:
        return 0
    num_lacking = num_known_tokens(request, progress) - progress.num_computed_tokens
    num_new_tokens = min(
        num_lacking,
        plan.most_tokens_per_request,
        plan.token_budget,
        plan.input_budget,
        plan.config.max_model_len - progress.num_computed_tokens - NUM_SAMPLED_TOKENS_PER_STEP,
    )
    return max(num_new_tokens, 0)
