"""What happened when a result was taken in."""

from collections.abc import Iterator

from kvsched_fp import EngineOutput, FinishReason, RequestStatus, SchedulerState, StepResult
from kvsched_fp.ids import RequestId


def situations_of_result(
    before: SchedulerState, result: StepResult, after: SchedulerState
) -> Iterator[str]:
    """Name what happened as `result` led from `before` to `after`."""
    for request_id, tokens in result.sampled_token_ids.items():
        yield from _of_row(before, after, request_id, len(tokens))
    if after.emitted.kv_events:
        yield "key-value events told"
    clients = [outputs.outputs for _, outputs in after.emitted.clients.items()]
    if sum(map(bool, clients)) > 1:
        yield "outputs for several clients"
    for outputs in clients:
        for output in outputs:
            yield from _of_stop(output)
            if len(output.new_token_ids) < len(result.sampled_token_ids.get(output.request_id, ())):
                yield "tokens cut off behind the stop"


def _of_row(
    before: SchedulerState, after: SchedulerState, request_id: RequestId, num_tokens: int
) -> Iterator[str]:
    progress = before.progress.get(request_id)
    if progress is None:
        yield "a late result ignored"
        return
    if progress.num_stale_output_tokens and num_tokens:
        yield "stale output dropped" if progress.drop_stale_output else "stale output delivered"
    if request_id not in after.progress:
        if progress.status is not RequestStatus.RUNNING:
            yield "stopped while waiting"
    elif after.progress[request_id].num_in_flight_tokens < 0:
        yield "a late result charged to the next request of that id"


def _of_stop(output: EngineOutput) -> Iterator[str]:
    match output.finish_reason:
        case FinishReason.STOP:
            yield "stopped by " + ("the end of sequence" if output.stop_reason is None else "a stop token")
        case FinishReason.LENGTH:
            yield "stopped by length"
        case FinishReason.REPETITION:
            yield "stopped by repetition"
