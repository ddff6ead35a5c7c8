"""The waiting phase: admit waiting requests while anything is left to give.

Rules
-----
[S-WAIT-01] There is no waiting phase in a step that preempted, nor in one in which a running request lacks
    blocks [S-PRE-07], nor while everything is paused; such a step does not note who waits either
    [S-WAIT-11].
[S-WAIT-02] Requests that hold blocks are served before all others, and are the only ones served while
    new requests are paused.
[S-WAIT-03] The phase ends when a budget or the number of active requests is used up. Sessions that wait for
    input are active: they keep their row of the model runner.
[S-WAIT-04] A request is skipped while stale output of it is still to be delivered: admitted earlier, it
    would compute one position twice, and the client would be told both tokens.
[S-WAIT-05] A request starts behind its prefix hit [K-HIT-01] and gets what is known of it beyond, cut by
    the long-prefill threshold and by what is left of both budgets.
[S-WAIT-06] Without chunked prefill, a request that does not fit whole ends the phase. The long-prefill
    threshold comes first, so with it pieces occur even then. An encoder instance takes pieces anyway.
[S-WAIT-07] A request whose blocks do not fit ends the phase [K-FIT-01]: those behind it may not overtake.
[S-WAIT-08] While prompts are held back, a request with more than one token to compute ends the phase.
[S-WAIT-09] Skipped requests go back to where they were, as deferred, when the phase is over.
[S-WAIT-10] Look-ups count in the statistics when the request is admitted, not before.
[S-WAIT-11] A phase that did not hold prompts back notes whether anybody waits who is not deferred: then
    capacity is short, and the next steps hold nothing back. Who was deferred by an earlier scan does not
    count, even if it is its blocks that do not fit now.
[S-WAIT-12] A request is skipped while it waits for its grammar, or for the next input of its session.
[S-WAIT-13] A request whose adapter would be one too many among the running ones is skipped.

Upstream: the waiting loop of `v1/core/sched/scheduler.py::Scheduler.schedule`,
`_handle_blocked_waiting_request`.
"""

import enum

from kvsched_fp.config import RunnerType
from kvsched_fp.events import PauseState
from kvsched_fp.kvcache.allocation import admit_slots
from kvsched_fp.kvcache.coordinator import find_longest_cache_hit
from kvsched_fp.outputs import BlockIds
from kvsched_fp.progress import PrefillStats, Progress, RequestEventType, evolve_progress, num_known_tokens
from kvsched_fp.queues import QueueEntry, queue_entry
from kvsched_fp.request import Request, RequestStatus, move
from kvsched_fp.schedule.blocked import unblock
from kvsched_fp.schedule.drafts import (
    PLACEHOLDER,
    note_use_of_drafts,
    pads_with_drafts,
    without_drafter_gap,
)
from kvsched_fp.schedule.holders import make_holder_give_back
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.sessions import renew_hashes


class _Outcome(enum.Enum):
    """What an attempt to admit a request comes to."""

    ADMITTED = enum.auto()
    SKIPPED = enum.auto()
    ENDS_PHASE = enum.auto()


def schedule_waiting(plan: Plan) -> None:
    """Run the phase."""
    if plan.someone_preempted or plan.someone_lacks_blocks:
        return  # [S-WAIT-01]
    if plan.pause_state is PauseState.PAUSED_ALL:
        return
    plan.count_loras()
    skipped: dict[str, list[QueueEntry]] = {"waiting": [], "kv_holding_waiting": []}
    while plan.has_budget and not plan.someone_gave_back:  # [S-PRE-09]
        queue = _queue_to_serve(plan)
        if queue is None or len(plan.running) + plan.num_waiting_for_input >= plan.config.max_num_active:
            break  # [S-WAIT-03]
        request = plan.requests[getattr(plan, queue).peek()]
        rule_id = _waits(plan, request)
        outcome = _Outcome.SKIPPED if rule_id else _admit(plan, request, queue)
        if outcome is _Outcome.SKIPPED:
            plan.refused(request.request_id, rule_id or "S-DRAFT-03")
            _pop(plan, queue)
            plan.deferred = plan.deferred.add(request.request_id)
            skipped[queue].append(queue_entry(request))
        elif outcome is _Outcome.ENDS_PHASE:
            break
    for queue, entries in skipped.items():
        if entries:
            setattr(plan, queue, getattr(plan, queue).put_back(entries))  # [S-WAIT-09]
    if not plan.hold_prefills:
        plan.capacity_bound = plan.num_waiting > len(plan.deferred)  # [S-WAIT-11]


def _queue_to_serve(plan: Plan) -> str | None:
    """Name the queue that is served next, or None [S-WAIT-02]."""
    if len(plan.kv_holding_waiting):
        return "kv_holding_waiting"
    if len(plan.waiting) and plan.pause_state is PauseState.UNPAUSED:
        return "waiting"
    return None


def _pop(plan: Plan, queue: str) -> None:
    setattr(plan, queue, getattr(plan, queue).pop())


def _waits(plan: Plan, request: Request) -> str | None:
    """Give the rule by which a request is skipped before anything is looked up, or None."""
    if not unblock(plan, request):
        return "S-WAIT-12"
    progress = plan.progress[request.request_id]
    if progress.num_stale_output_tokens and not progress.drop_stale_output:
        return "S-WAIT-04"
    if request.lora is not None and not plan.has_room_for_lora(request.lora.lora_id):
        return "S-WAIT-13"
    return None


def _admit(plan: Plan, request: Request, queue: str) -> _Outcome:
    """Try to admit the next request."""
    progress, hit, num_computed_tokens = _look_up(plan, request)
    num_known = num_known_tokens(request, progress)
    decided = _num_new_tokens(plan, num_known, num_computed_tokens)
    if isinstance(decided, str):
        plan.refused(request.request_id, decided)
        return _Outcome.ENDS_PHASE
    num_new_tokens, is_padded = decided
    num_new_tokens = without_drafter_gap(plan, num_known, num_computed_tokens, num_new_tokens)
    if num_new_tokens == 0:
        return _Outcome.SKIPPED
    block_ids = _take_slots(plan, request, progress, hit, num_computed_tokens, num_new_tokens)
    if block_ids is None:
        plan.refused(request.request_id, "S-WAIT-07")
        return _Outcome.ENDS_PHASE
    if progress.num_computed_tokens == 0:
        _record_look_up(plan, request, progress, num_known, num_computed_tokens)
    _pop(plan, queue)
    _start(plan, request, progress, num_computed_tokens)
    plan.give(request.request_id, num_new_tokens, block_ids)
    if not plan.drafts_needed:
        note_use_of_drafts(plan, request, progress, num_computed_tokens, num_new_tokens)
    if is_padded:
        placeholders = (PLACEHOLDER,) * plan.config.num_spec_tokens
        plan.scheduled_spec_token_ids[request.request_id] = placeholders
    plan.prefill_admitted |= num_computed_tokens < num_known - 1
    return _Outcome.ADMITTED


def _take_slots(
    plan: Plan,
    request: Request,
    progress: Progress,
    hit: BlockIds,
    num_computed_tokens: int,
    num_new_tokens: int,
) -> BlockIds | None:
    """Take the blocks for the first step of a request; those who wait with blocks may have to give way."""
    while True:
        block_ids = admit_slots(
            plan.kv,
            request,
            progress,
            hit,
            num_computed_tokens,
            num_new_tokens,
            others_run=bool(plan.running),
        )
        holds_blocks = progress.num_computed_tokens > 0
        if block_ids is not None or not holds_blocks or not make_holder_give_back(plan, request.request_id):
            return block_ids


def _look_up(plan: Plan, request: Request) -> tuple[Progress, BlockIds, int]:
    """Find the cached prefix of a request that holds no blocks [S-WAIT-05]; it keeps how much was found.

    Gives its progress, the blocks of the prefix, and how many tokens need not be computed.
    """
    progress = plan.progress[request.request_id]
    if request.resumable and plan.config.num_hash_lookahead_tokens and progress.num_computed_tokens == 0:
        renew_hashes(plan, request.request_id)  # [M-SESS-07]
        progress = plan.progress[request.request_id]
    hit = plan.kv.no_block_ids
    if progress.num_computed_tokens == 0 and _reads_prefix_cache(plan, request):
        num_known = num_known_tokens(request, progress)
        hit = find_longest_cache_hit(plan.kv, progress.block_hashes, num_known)
    num_computed_tokens = progress.num_computed_tokens + len(hit[0]) * plan.config.block_size
    stats = _prefill_stats(request, progress, num_computed_tokens)
    progress = plan.progress[request.request_id] = evolve_progress(progress, prefill_stats=stats)
    return progress, hit, num_computed_tokens


def _reads_prefix_cache(plan: Plan, request: Request) -> bool:
    return plan.config.enable_prefix_caching and not request.sampling_params.skip_reading_prefix_cache


def _prefill_stats(request: Request, progress: Progress, num_computed_tokens: int) -> PrefillStats | None:
    """Note how much of the prompt was found, until the first preemption or output."""
    stats = progress.prefill_stats
    if stats is None or progress.num_preemptions > 0 or progress.num_computed_tokens > 0:
        return stats
    num_prompt_tokens = request.num_prompt_tokens
    return PrefillStats(num_prompt_tokens, num_prompt_tokens - num_computed_tokens, num_computed_tokens)


def _num_new_tokens(plan: Plan, num_known: int, num_computed_tokens: int) -> tuple[int, bool] | str:
    """Decide how many tokens a request computes in its first step, and whether they are padded with drafts.

    Gives the rule by which the phase ends if it may compute none.
    """
    if plan.hold_prefills and num_computed_tokens < num_known - 1:
        return "S-WAIT-08"
    budget = plan.row_budget
    num_new_tokens = num_known - num_computed_tokens
    is_padded = pads_with_drafts(plan, num_computed_tokens, num_new_tokens)
    if is_padded:
        num_new_tokens = 1 + plan.config.num_spec_tokens
        if num_new_tokens > budget:
            return "S-DRAFT-04"
    num_new_tokens = min(num_new_tokens, plan.most_tokens_per_request)
    takes_pieces = plan.config.enable_chunked_prefill or plan.config.runner_type is RunnerType.ENCODER_ONLY
    if num_new_tokens > budget and not takes_pieces:
        return "S-WAIT-06"
    return min(num_new_tokens, budget), is_padded


def _record_look_up(
    plan: Plan, request: Request, progress: Progress, num_known: int, num_hit_tokens: int
) -> None:
    """Count the look-up, now that the request is admitted [S-WAIT-10]."""
    if plan.config.log_stats and _reads_prefix_cache(plan, request):
        plan.kv.stats = plan.kv.stats.record(
            num_known, num_hit_tokens, preempted=progress.num_preemptions > 0
        )


def _start(plan: Plan, request: Request, progress: Progress, num_computed_tokens: int) -> None:
    """Move a request that left its queue to the running ones."""
    request_id = request.request_id
    plan.deferred = plan.deferred.discard(request_id)
    plan.running.append(request_id)
    plan.use_lora(request)
    resumed = progress.status is RequestStatus.PREEMPTED
    (plan.scheduled_resumed if resumed else plan.scheduled_new).append(request_id)
    plan.progress[request_id] = evolve_progress(
        progress,
        status=move(progress.status, RequestStatus.RUNNING),
        num_computed_tokens=num_computed_tokens,
        events=plan.with_event(progress, RequestEventType.SCHEDULED),
    )
