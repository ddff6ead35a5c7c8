"""The waiting phase: admit waiting requests while anything is left to give.

Rules
-----
[S-WAIT-01] There is no waiting phase in a step that preempted, nor while everything is paused; such a step
    notes nothing about capacity either [S-WAIT-11].
[S-WAIT-02] Requests that hold blocks are served before all others, and are the only ones served while
    new requests are paused.
[S-WAIT-03] The phase ends when a budget or the number of active requests is used up.
[S-WAIT-04] A request is skipped while stale output of it is still to be delivered: admitted earlier, it
    would compute one position twice, and the client would be told both tokens.
[S-WAIT-05] A request starts behind its prefix hit [K-HIT-01] and gets what is known of it beyond, cut by
    the long-prefill threshold and by what is left of both budgets.
[S-WAIT-06] Without chunked prefill, a request that does not fit whole ends the phase. The long-prefill
    threshold comes first, so with it pieces occur even then.
[S-WAIT-07] A request whose blocks do not fit ends the phase [K-FIT-01]: those behind it may not overtake.
[S-WAIT-08] While prompts are held back, a request with more than one token to compute ends the phase.
[S-WAIT-09] Skipped requests go back to where they were, as deferred, when the phase is over.
[S-WAIT-10] Look-ups count in the statistics when the request is admitted, not before.
[S-WAIT-11] A phase that did not hold prompts back notes whether anybody waits who is not deferred: then
    capacity is short, and the next steps hold nothing back. Who was deferred by an earlier scan does not
    count, even if it is its blocks that do not fit now.

Upstream: the waiting loop of `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

import attrs

from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.allocation import admit_slots
from kvsched_fp.kvcache.coordinator import find_longest_cache_hit
from kvsched_fp.outputs import BlockIds
from kvsched_fp.queues import QueueEntry, queue_entry
from kvsched_fp.request import (
    PrefillStats,
    Progress,
    Request,
    RequestStatus,
    move,
    num_known_tokens,
)
from kvsched_fp.schedule.plan import Plan


def schedule_waiting(plan: Plan) -> None:
    """Run the phase."""
    if plan.someone_preempted or plan.pause_state is PauseState.PAUSED_ALL:
        return  # [S-WAIT-01]
    skipped: list[QueueEntry] = []
    while plan.token_budget > 0 and plan.input_budget > 0:
        request_id = _peek(plan)
        if request_id is None or len(plan.running) >= plan.config.max_num_active:
            break  # [S-WAIT-03]
        request = plan.requests[request_id]
        progress = plan.progress[request_id]
        if progress.num_stale_output_tokens and not progress.drop_stale_output:
            plan.refused(request_id, "S-WAIT-04")
            _pop(plan)
            plan.deferred = plan.deferred.add(request_id)
            skipped.append(queue_entry(request))
        elif not _admit(plan, request, progress):
            break
    if skipped:
        plan.waiting = plan.waiting.put_back(skipped)  # [S-WAIT-09]
    if not plan.hold_prefills:
        plan.capacity_bound = plan.num_waiting > len(plan.deferred)  # [S-WAIT-11]


def _peek(plan: Plan) -> RequestId | None:
    """Give the request to be served next, or None [S-WAIT-02]."""
    if len(plan.kv_holding_waiting):
        return plan.kv_holding_waiting.peek()
    if len(plan.waiting) and plan.pause_state is PauseState.UNPAUSED:
        return plan.waiting.peek()
    return None


def _pop(plan: Plan) -> None:
    """Take the request that `_peek` gives out of its queue."""
    if len(plan.kv_holding_waiting):
        plan.kv_holding_waiting = plan.kv_holding_waiting.pop()
    else:
        plan.waiting = plan.waiting.pop()


def _admit(plan: Plan, request: Request, progress: Progress) -> bool:
    """Try to admit the next request; False ends the phase."""
    num_known = num_known_tokens(request, progress)
    hit = _look_up(plan, request, progress)
    num_computed_tokens = progress.num_computed_tokens + len(hit[0]) * plan.config.block_size
    progress = attrs.evolve(progress, prefill_stats=_prefill_stats(request, progress, num_computed_tokens))
    plan.progress[request.request_id] = progress
    num_new_tokens = _num_new_tokens(plan, num_known, num_computed_tokens)
    if num_new_tokens == 0:
        plan.refused(request.request_id, "S-WAIT-08" if plan.hold_prefills else "S-WAIT-06")
        return False
    block_ids = admit_slots(
        plan.kv,
        request,
        progress,
        hit,
        num_computed_tokens,
        num_new_tokens,
        others_run=bool(plan.running),
    )
    if block_ids is None:
        plan.refused(request.request_id, "S-WAIT-07")
        return False
    if progress.num_computed_tokens == 0:
        _record_look_up(plan, request, progress, num_known, num_computed_tokens)
    _start(plan, request, progress, num_computed_tokens)
    plan.give(request.request_id, num_new_tokens, block_ids)
    plan.prefill_admitted |= num_computed_tokens < num_known - 1
    return True


def _look_up(plan: Plan, request: Request, progress: Progress) -> BlockIds:
    """Find the cached prefix of a request that holds no blocks [S-WAIT-05]."""
    if progress.num_computed_tokens > 0 or not _reads_prefix_cache(plan, request):
        return plan.kv.no_block_ids
    num_known = num_known_tokens(request, progress)
    return find_longest_cache_hit(plan.kv, progress.block_hashes, num_known)


def _reads_prefix_cache(plan: Plan, request: Request) -> bool:
    return plan.config.enable_prefix_caching and not request.sampling_params.skip_reading_prefix_cache


def _prefill_stats(request: Request, progress: Progress, num_computed_tokens: int) -> PrefillStats | None:
    """Note how much of the prompt was found, until the first preemption or output."""
    stats = progress.prefill_stats
    if stats is None or progress.num_preemptions > 0 or progress.num_computed_tokens > 0:
        return stats
    num_prompt_tokens = request.num_prompt_tokens
    return PrefillStats(num_prompt_tokens, num_prompt_tokens - num_computed_tokens, num_computed_tokens)


def _num_new_tokens(plan: Plan, num_known: int, num_computed_tokens: int) -> int:
    """Decide how many tokens a request computes in its first step; 0 ends the phase."""
    if plan.hold_prefills and num_computed_tokens < num_known - 1:
        return 0  # [S-WAIT-08]
    budget = min(plan.token_budget, plan.input_budget)
    num_new_tokens = min(num_known - num_computed_tokens, plan.most_tokens_per_request)
    if num_new_tokens > budget and not plan.config.enable_chunked_prefill:
        return 0  # [S-WAIT-06]
    return min(num_new_tokens, budget)


def _record_look_up(
    plan: Plan, request: Request, progress: Progress, num_known: int, num_hit_tokens: int
) -> None:
    """Count the look-up, now that the request is admitted [S-WAIT-10]."""
    if plan.config.log_stats and _reads_prefix_cache(plan, request):
        plan.kv.stats = plan.kv.stats.record(
            num_known, num_hit_tokens, preempted=progress.num_preemptions > 0
        )


def _start(plan: Plan, request: Request, progress: Progress, num_computed_tokens: int) -> None:
    """Move a request from its queue to the running ones."""
    request_id = request.request_id
    _pop(plan)
    plan.deferred = plan.deferred.discard(request_id)
    plan.running.append(request_id)
    resumed = progress.status is RequestStatus.PREEMPTED
    (plan.scheduled_resumed if resumed else plan.scheduled_new).append(request_id)
    plan.progress[request_id] = attrs.evolve(
        progress,
        status=move(progress.status, RequestStatus.RUNNING),
        num_computed_tokens=num_computed_tokens,
    )
