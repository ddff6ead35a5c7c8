"""Counting the step: what is scheduled counts as computed at once.

Rules
-----
[S-STEP-02] Scheduled tokens count as computed at once, so that the next step can be planned before this
    one has come back; a request is in the middle of its prompt while known tokens are not computed.
[S-ASYNC-01] With asynchronous scheduling, a row that will sample gets a placeholder for each token that
    it may bring: the sampled one, and one per draft. Placeholders count as known, so that the next step
    can follow.
[S-ASYNC-02] Such a row also gets placeholders for its next drafts, as many as the step asks for.
[S-ASYNC-03] The output tells whether a row samples under a grammar, and whether such a row still
    waits for a token of the step before, which its bitmask needs.

Upstream: `v1/core/sched/scheduler.py::Scheduler._update_after_schedule`,
`v1/core/sched/async_scheduler.py::AsyncScheduler._update_after_schedule`.
"""

import attrs

from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import Progress, after_schedule, num_known_tokens, with_placeholders
from kvsched_fp.schedule.drafts import PLACEHOLDER
from kvsched_fp.schedule.plan import Plan


def count_as_computed(plan: Plan, output: SchedulerOutput) -> SchedulerOutput:
    """Advance every request in the batch [S-STEP-02]; give the output with what shows only then."""
    ran_before = frozenset(plan.scheduled_running)
    samples_under_grammar = waits_for_token = False
    is_async = plan.config.async_scheduling
    for request_id, num_new_tokens in plan.num_scheduled_tokens.items():
        request, progress = plan.requests[request_id], plan.progress[request_id]
        num_placeholders = progress.num_output_placeholders
        num_computed_tokens = progress.num_computed_tokens + num_new_tokens
        is_prefill_chunk = num_computed_tokens < num_known_tokens(request, progress) + num_placeholders
        if request.needs_grammar and not is_prefill_chunk:
            samples_under_grammar = True
            waits_for_token |= is_async and num_placeholders > 0
        spec_token_ids = progress.spec_token_ids
        if spec_token_ids and request_id in ran_before:
            spec_token_ids = ()  # [S-RUN-09]
        advanced = after_schedule(
            progress,
            num_computed_tokens,
            progress.num_in_flight_tokens + num_new_tokens,
            is_prefill_chunk,
            spec_token_ids,
        )
        if is_async and not is_prefill_chunk:
            advanced = _with_placeholders(plan, request_id, advanced, output.num_spec_tokens_to_schedule)
        plan.progress[request_id] = advanced
    if not samples_under_grammar:
        return output
    return attrs.evolve(
        output,
        has_structured_output_requests=True,
        pending_structured_output_tokens=waits_for_token,
    )  # [S-ASYNC-03]


def _with_placeholders(
    plan: Plan, request_id: RequestId, progress: Progress, num_next_drafts: int
) -> Progress:
    """Expect what a row that samples will bring [S-ASYNC-01, S-ASYNC-02, S-RUN-08]."""
    num_drafts = len(plan.scheduled_spec_token_ids.get(request_id, ()))
    next_step = progress.next_decode_eligible_step
    if plan.config.use_v2_model_runner:
        next_step = plan.current_step + plan.config.pipeline_parallel_size
    return with_placeholders(
        progress,
        progress.num_output_placeholders + plan.num_sampled_tokens + num_drafts,
        (PLACEHOLDER,) * num_next_drafts,
        next_step,
    )
