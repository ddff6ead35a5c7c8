"""What became of the drafts of one row.

Rules
-----
[U-SPEC-01] A row with drafts that brought tokens accepted as many drafts as there are tokens beyond the
    sampled one. The others are rejected: they were counted as computed, and with asynchronous scheduling
    as placeholders, and are taken back.
[U-SPEC-02] A stale row takes nothing back: the preemption has done that already.
[U-SPEC-03] Verified drafts count in the statistics of the update and, if the config asks for it, in the
    metrics of the request; drafts that the grammar does not allow are not counted as drafts.

Upstream: `v1/core/sched/scheduler.py::Scheduler.update_from_output`, `make_spec_decoding_stats`.
"""

import attrs

from kvsched_fp.config import SpecDecodeMetricsLevel
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput, SpecDecodingStats
from kvsched_fp.progress import Progress, RequestSpecDecodeMetrics
from kvsched_fp.update.results import Results


def take_back_rejected(
    results: Results,
    output: SchedulerOutput,
    request_id: RequestId,
    progress: Progress,
    sampled_token_ids: tuple[int, ...],
) -> tuple[int, int, RequestSpecDecodeMetrics | None]:
    """Take back what a row counted for drafts that were rejected [U-SPEC-01, U-SPEC-02].

    Gives the computed tokens, the placeholders and the metrics of its request.
    """
    num_computed_tokens, num_placeholders = progress.num_computed_tokens, progress.num_output_placeholders
    num_drafts = len(output.scheduled_spec_token_ids[request_id])
    num_sampled = results.config.num_sampled_tokens_per_step
    if not sampled_token_ids and num_sampled > 0:
        return num_computed_tokens, num_placeholders, progress.spec_decode_metrics
    num_accepted = max(len(sampled_token_ids) - num_sampled, 0)
    num_rejected = num_drafts - num_accepted
    if progress.num_stale_output_tokens <= 0:  # less than nothing: deviation D-05
        num_computed_tokens -= num_rejected if num_computed_tokens > 0 else 0
        num_placeholders -= num_rejected if num_placeholders > 0 else 0
    metrics = _observe(results, output, request_id, progress.spec_decode_metrics, num_drafts, num_accepted)
    return num_computed_tokens, num_placeholders, metrics


def _observe(
    results: Results,
    output: SchedulerOutput,
    request_id: RequestId,
    metrics: RequestSpecDecodeMetrics | None,
    num_drafts: int,
    num_accepted: int,
) -> RequestSpecDecodeMetrics | None:
    """Count a verification [U-SPEC-03]; give the metrics of the request with it."""
    if output.num_invalid_spec_tokens:
        num_drafts -= output.num_invalid_spec_tokens.get(request_id, 0)
    if results.config.log_stats:
        results.spec_decoding_stats = _observed(
            results.spec_decoding_stats or _no_stats(results.config.num_spec_tokens),
            num_drafts,
            num_accepted,
        )
    if metrics is None:
        return None
    detailed = results.config.spec_decode_metrics is SpecDecodeMetricsLevel.DETAILED
    return metrics.observe(num_drafts, num_accepted, detailed=detailed)


def _no_stats(num_spec_tokens: int) -> SpecDecodingStats:
    return SpecDecodingStats(num_spec_tokens, 0, 0, 0, (0,) * num_spec_tokens, (0,) * num_spec_tokens)


def _observed(stats: SpecDecodingStats, num_drafts: int, num_accepted: int) -> SpecDecodingStats:
    return attrs.evolve(
        stats,
        num_drafts=stats.num_drafts + 1,
        num_draft_tokens=stats.num_draft_tokens + num_drafts,
        num_accepted_tokens=stats.num_accepted_tokens + num_accepted,
        num_accepted_tokens_per_pos=_one_more_in_front(stats.num_accepted_tokens_per_pos, num_accepted),
        num_draft_tokens_per_pos=_one_more_in_front(stats.num_draft_tokens_per_pos, num_drafts),
    )


def _one_more_in_front(counts: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Add one to the first `length` counts."""
    return tuple([count + (index < length) for index, count in enumerate(counts)])
