"""Drafts in a step: which are verified, and whether the next ones can be used.

Rules
-----
[S-DRAFT-01] Drafts are verified behind what is known of a request; the budgets cut them from the end.
[S-DRAFT-02] `skip_drafts` is said when no row can use the drafts that would follow: each is a piece of
    prompt with more to come, or samples the last token that `max_tokens` allows. A row that is taken
    back from a victim still counts.
[S-DRAFT-03] A piece of prompt never ends within `num_prefill_lookahead_tokens` of the prompt's end: the
    drafter reads that far ahead, and would have to take its own guesses for prompt.
[S-DRAFT-04] A request that is admitted with one token to compute is padded with placeholders to the rows of
    the others, if those are decodes with drafts; if that does not fit, it is not admitted.

Upstream: `v1/core/sched/scheduler.py::Scheduler._drafts_unused`, `_reserve_prefill_lookahead`, the
padding in the waiting loop of `schedule`.
"""

from kvsched_fp.progress import Progress, num_known_tokens
from kvsched_fp.request import Request
from kvsched_fp.schedule.plan import Plan

PLACEHOLDER = -1
"""Stands for a draft that only the worker knows."""


def drafts_to_verify(request: Request, progress: Progress, num_new_tokens: int) -> tuple[int, ...]:
    """Give the drafts of a running request that `num_new_tokens` reach [S-DRAFT-01]."""
    num_known = num_known_tokens(request, progress) + progress.num_output_placeholders
    num_drafts = progress.num_computed_tokens + num_new_tokens - num_known
    return progress.spec_token_ids[: max(num_drafts, 0)]


def note_use_of_drafts(
    plan: Plan, request: Request, progress: Progress, num_computed_tokens: int, num_new_tokens: int
) -> None:
    """Note whether a row can use the drafts that follow it [S-DRAFT-02]."""
    if num_computed_tokens + num_new_tokens < num_known_tokens(request, progress):
        return
    # If all drafts are rejected, this step brings one token, and so does the one in flight.
    num_sure = len(progress.output_token_ids) + 1 + (progress.num_output_placeholders > 0)
    plan.drafts_needed = num_sure < request.sampling_params.max_tokens


def without_drafter_gap(plan: Plan, num_known: int, num_computed_tokens: int, num_new_tokens: int) -> int:
    """Shorten a piece of prompt that would end too close to the prompt's end [S-DRAFT-03]."""
    lookahead = plan.config.num_prefill_lookahead_tokens
    num_remaining = num_known - num_computed_tokens - num_new_tokens
    if 0 < num_remaining < lookahead:
        num_new_tokens -= lookahead - num_remaining
    return max(num_new_tokens, 0)


def pads_with_drafts(plan: Plan, num_computed_tokens: int, num_new_tokens: int) -> bool:
    """Tell whether a request that is admitted is padded to the decodes' uniform size [S-DRAFT-04]."""
    config = plan.config
    num_padded = 1 + config.num_spec_tokens
    return (
        config.num_spec_tokens > 0
        and config.num_spec_tokens_per_batch_size is None
        and config.num_sampled_tokens_per_step > 0
        and num_new_tokens == 1
        and not plan.prefill_scheduled
        and (bool(plan.scheduled_running) or num_computed_tokens > 0)
        and num_computed_tokens + num_padded + config.num_sampled_tokens_per_step <= config.max_model_len
    )
