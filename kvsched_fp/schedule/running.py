"""The running phase: every running request gets the tokens that it still lacks.

Rules
-----
[S-RUN-01] Requests are looked at in scheduling order, each exactly once, until a budget is used up.
[S-RUN-02] A request gets what is known of it and not computed yet, with its placeholders and drafts, cut by
    the long-prefill threshold, by what is left of both budgets, and so that the sampled token still
    fits into `max_model_len`.
[S-RUN-03] A request that gets nothing is passed over; the ones behind it go on.
[S-RUN-04] While prompts are held back, a request in the middle of its prompt is passed over.
[S-RUN-05] When its blocks do not fit, others are preempted until they do [S-PRE-06].
[S-RUN-06] When the request itself was preempted, the phase goes on with the next one: by priority, those
    behind it are more important and may fit now; in FCFS, none is left behind it.
[S-RUN-07] A request is passed over once it is sure to reach `max_tokens` with what is in flight. Of its
    placeholders one counts as sure, since the others may be drafts that are rejected; so where more than
    two steps are in flight, some steps too many are planned.
[S-RUN-08] With asynchronous scheduling and V2, a request is decoded again only after as many steps as the
    pipeline has stages.
[S-RUN-09] Drafts are used up by the step that could verify them, whether or not it does.
[S-RUN-10] Cut as in [S-RUN-02], a prompt of `max_model_len` tokens that comes in pieces never has its last
    token computed (deviation D-06). Without the quirk it has, in a step of its own, or together with
    those behind which no piece may end [S-DRAFT-03].

Upstream: the running loop of `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

from kvsched_fp.config import Quirk
from kvsched_fp.kvcache.allocation import append_slots
from kvsched_fp.progress import Progress, num_known_tokens
from kvsched_fp.request import Request
from kvsched_fp.schedule.drafts import drafts_to_verify, note_use_of_drafts, without_drafter_gap
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.preemption import append_slots_by_preemption


def schedule_running(plan: Plan) -> None:
    """Run the phase [S-RUN-01]."""
    cursor = 0
    may_wait = plan.hold_prefills or plan.config.async_scheduling
    while cursor < len(plan.running) and plan.token_budget > 0 and plan.input_budget > plan.draft_slots:
        request_id = plan.running[cursor]
        request = plan.requests[request_id]
        progress = plan.progress[request_id]
        must_wait = may_wait and waits(plan, request, progress)
        num_new_tokens = 0 if must_wait else _num_new_tokens(plan, request, progress)
        if num_new_tokens == 0:
            plan.passed_over(request_id)
            cursor += 1  # [S-RUN-03]
            continue
        block_ids = append_slots(plan.kv, request, progress, num_new_tokens)
        if block_ids is None:
            block_ids, cursor = append_slots_by_preemption(plan, cursor, num_new_tokens)  # [S-RUN-05]
        if block_ids is None:
            continue  # [S-RUN-06]
        plan.scheduled_running.append(request_id)
        plan.prefill_scheduled |= progress.is_prefill_chunk
        plan.give(request_id, num_new_tokens, block_ids)
        if not plan.drafts_needed:
            note_use_of_drafts(plan, request, progress, progress.num_computed_tokens, num_new_tokens)
        if progress.spec_token_ids:
            _verify_drafts(plan, request, progress, num_new_tokens)
        cursor += 1


def waits(plan: Plan, request: Request, progress: Progress) -> str | None:
    """Give the rule by which a running request is passed over in this step, or None."""
    num_placeholders = progress.num_output_placeholders
    if num_placeholders > 0:
        # Of the placeholders, one is sure to become a token; it is computed with the next step.
        num_sure = progress.num_computed_tokens - (num_placeholders - 1) + 1
        if num_sure >= request.num_prompt_tokens + request.sampling_params.max_tokens:
            return "S-RUN-07"
    if plan.current_step < progress.next_decode_eligible_step:
        return "S-RUN-08"
    if plan.hold_prefills and progress.is_prefill_chunk:
        return "S-RUN-04"
    return None


def _num_new_tokens(plan: Plan, request: Request, progress: Progress) -> int:
    """Decide how many tokens a running request may compute now; 0 for none [S-RUN-02]."""
    num_known = num_known_tokens(request, progress)
    num_computed_tokens = progress.num_computed_tokens
    num_wanted = num_known + len(progress.spec_token_ids) + progress.num_output_placeholders
    num_new_tokens = min(
        num_wanted - num_computed_tokens,
        plan.most_tokens_per_request,
        plan.token_budget,
        plan.input_budget - plan.draft_slots,
        plan.config.max_model_len - num_computed_tokens - plan.num_sampled_tokens,
    )
    if num_new_tokens > 0 and plan.config.num_prefill_lookahead_tokens:
        num_new_tokens = without_drafter_gap(plan, num_known, num_computed_tokens, num_new_tokens)
    if num_new_tokens <= 0:
        return _num_last_prompt_tokens(plan, request, num_computed_tokens)
    return num_new_tokens


def _num_last_prompt_tokens(plan: Plan, request: Request, num_computed_tokens: int) -> int:
    """Give what a prompt of `max_model_len` tokens lacks, if that fits [S-RUN-10], else 0."""
    config = plan.config
    if request.num_prompt_tokens != config.max_model_len or Quirk.LEAVES_LAST_PROMPT_TOKEN in config.quirks:
        return 0
    num_left = request.num_prompt_tokens - num_computed_tokens
    return num_left if 0 < num_left <= min(plan.most_tokens_per_request, plan.row_budget) else 0


def _verify_drafts(plan: Plan, request: Request, progress: Progress, num_new_tokens: int) -> None:
    """Enter the drafts of a row into the batch [S-RUN-09]; `count_as_computed` takes them from it."""
    drafts = drafts_to_verify(request, progress, num_new_tokens)
    if drafts:
        plan.scheduled_spec_token_ids[request.request_id] = drafts
