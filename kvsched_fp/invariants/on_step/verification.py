"""What came of drafts: the statistics of an update, and what is kept about each request."""

from kvsched_fp.config import SpecDecodeMetricsLevel
from kvsched_fp.events import Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.brought import outputs_told, read_row
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import SpecDecodingStats
from kvsched_fp.progress import RequestSpecDecodeMetrics


@step_invariant(
    "INV-SPEC-01",
    Cost.CHEAP,
    "The statistics of drafts add up over the rows that verified any, by position too: at most as many "
    "accepted as there were; drafts that the grammar does not allow were none.",
    "The rate of acceptance is read from them.",
    Update,
)
def _statistics_add_up(step: Step) -> str | None:
    config, verified = step.before.config, _verified(step)
    expected = None
    if verified and config.log_stats:
        positions = range(config.num_spec_tokens)
        expected = SpecDecodingStats(
            num_spec_tokens=config.num_spec_tokens,
            num_drafts=len(verified),
            num_draft_tokens=sum(num_drafts for num_drafts, _ in verified.values()),
            num_accepted_tokens=sum(num_accepted for _, num_accepted in verified.values()),
            num_accepted_tokens_per_pos=tuple(
                sum(num_accepted > position for _, num_accepted in verified.values())
                for position in positions
            ),
            num_draft_tokens_per_pos=tuple(
                sum(num_drafts > position for num_drafts, _ in verified.values()) for position in positions
            ),
        )
    stats = [client.scheduler_stats for client in step.after.emitted.clients.values()]
    found = [told.spec_decoding_stats for told in stats if told is not None]
    if found == ([expected] if config.log_stats else []):
        return None
    return f"{verified} (drafts, accepted) were verified; told are {found}, not {expected}"


@step_invariant(
    "INV-SPEC-02",
    Cost.CHEAP,
    "If they are kept, the metrics of a request count each of its verifications once, and go out with what "
    "tells that it stopped.",
    "A client sees how well its text could be guessed.",
    Update,
)
def _metrics_count_verifications(step: Step) -> str | None:
    level = step.before.config.spec_decode_metrics
    stopped = {output.request_id: output.spec_decode_metrics for output in outputs_told(step)}
    if level is SpecDecodeMetricsLevel.NONE:
        return f"metrics are told: {stopped}" if any(stopped.values()) else None
    verified = _verified(step)
    stops = {
        output.request_id
        for output in outputs_told(step)
        if output.finish_reason is not None and output.error is None
    }
    for request_id, _, _, earlier, progress, _ in step.rows:
        if earlier is None:
            continue
        expected = earlier.spec_decode_metrics
        if request_id in verified:
            expected = _counted(expected, *verified[request_id], level)
        kept = expected if progress is None else progress.spec_decode_metrics
        is_told = stopped.get(request_id)
        if kept != expected or is_told != (expected if request_id in stops else None):
            return f"request {request_id} keeps {kept} and is told {is_told}, not {expected}"
    return None


def _verified(step: Step) -> dict[RequestId, tuple[int, int]]:
    """Count per row that verified drafts those that the grammar allows, and the accepted ones."""
    if not step.output.scheduled_spec_token_ids:
        return {}
    num_invalid = step.output.num_invalid_spec_tokens or OrderedMap[RequestId, int]()
    verified = {}
    for request_id in step.output.scheduled_spec_token_ids:
        earlier = step.before.progress.get(request_id)
        if earlier is None:
            continue
        row = read_row(step, request_id, earlier)
        if row.num_drafts:
            num_drafts = row.num_drafts - num_invalid.get(request_id, 0)
            verified[request_id] = (num_drafts, row.num_accepted)
    return verified


def _counted(
    metrics: RequestSpecDecodeMetrics | None,
    num_drafts: int,
    num_accepted: int,
    level: SpecDecodeMetricsLevel,
) -> RequestSpecDecodeMetrics | None:
    if metrics is None:
        return None
    histogram = metrics.histogram
    accepted, drafted = metrics.per_step_accepted, metrics.per_step_drafted
    if level is SpecDecodeMetricsLevel.DETAILED:
        accepted, drafted = (*accepted, num_accepted), (*drafted, num_drafts)
    return RequestSpecDecodeMetrics(
        metrics.num_spec_tokens,
        (*histogram[:num_accepted], histogram[num_accepted] + 1, *histogram[num_accepted + 1 :]),
        metrics.num_draft_tokens + num_drafts,
        accepted,
        drafted,
    )


INVARIANTS: tuple[StepInvariant, ...] = (
    _statistics_add_up,
    _metrics_count_verifications,
)
"""In the order in which they are checked."""
