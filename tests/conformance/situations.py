"""Which of the rare situations a history went through: what makes "identical" worth something.

Both sides agreed when this is asked, so it looks at our states alone.
"""

from collections.abc import Iterator

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    RequestStatus,
    ResetPrefixCache,
    Schedule,
    SchedulerState,
    Update,
)
from kvsched_fp.ids import RequestId

from .counterfactuals import COUNTERFACTUALS, rules_that_decided
from .situations_of_features import situations_of_features
from .situations_of_results import situations_of_result
from .situations_of_steps import situations_of_step

SITUATIONS = (
    "preempted, first come first served",
    "preempted, by priority",
    "preempted, though ahead of one that was served",
    "several preempted in one step",
    "resumed, V1 output",
    "resumed, V2 output",
    "waited for stale output",
    "prefix hit",
    "prefix hit on everything but the last block",
    "prefix hit after a preemption",
    "prefix hit with several groups",
    "a block held twice",
    "a table of more than 256 blocks",
    "a hash cached twice",
    "evicted from the prefix index",
    "a prompt in pieces",
    "a lone request above the threshold",
    "an empty step with requests there",
    "a step while new requests were paused",
    "a step while everything was paused",
    "blocks to zero",
    *COUNTERFACTUALS,
    "stale output delivered",
    "stale output dropped",
    "a late result ignored",
    "a late result charged to the next request of that id",
    "stopped by the end of sequence",
    "stopped by a stop token",
    "stopped by length",
    "stopped by repetition",
    "stopped while waiting",
    "tokens cut off behind the stop",
    "outputs for several clients",
    "key-value events told",
    "ended from outside while in flight",
    "ended from outside while waiting",
    "ended from outside after a preemption",
    "several ended from outside at once",
    "an id used again while its old step was in flight",
    "reset done",
    "reset refused",
    "reset that preempted",
    "reset that preempted what was in flight",
)
"""Everything that is counted."""


def situations_of(before: SchedulerState, event: Event, after: SchedulerState) -> Iterator[str]:
    """Name what happened between two states; one name may come several times."""
    yield from situations_of_features(before, event, after)
    match event:
        case Schedule(throttle_prefills):
            yield from situations_of_step(before, after)
            yield from rules_that_decided(before, throttle_prefills=throttle_prefills)
        case Update(result):
            yield from situations_of_result(before, result, after)
        case AddRequest(request):
            if any(request.request_id in output.num_scheduled_tokens for output in before.in_flight):
                yield "an id used again while its old step was in flight"
        case FinishRequests(request_ids):
            yield from _of_finish(before, tuple(before.requests) if request_ids is None else request_ids)
        case ResetPrefixCache(reset_running_requests):
            yield from _of_reset(before, reset_running_requests=reset_running_requests)


def _of_finish(before: SchedulerState, request_ids: tuple[RequestId, ...]) -> Iterator[str]:
    for request_id in request_ids:
        progress = before.progress[request_id]
        if progress.num_in_flight_tokens > 0:
            yield "ended from outside while in flight"
        if progress.status is RequestStatus.WAITING:
            yield "ended from outside while waiting"
        if progress.status is RequestStatus.PREEMPTED:
            yield "ended from outside after a preemption"
    if len(request_ids) > 1:
        yield "several ended from outside at once"


def _of_reset(before: SchedulerState, *, reset_running_requests: bool) -> Iterator[str]:
    refused = not reset_running_requests and len(before.kv.tables) > 0
    yield "reset refused" if refused else "reset done"
    if reset_running_requests and before.running:
        yield "reset that preempted"
        if any(before.progress[request_id].num_in_flight_tokens for request_id in before.running):
            yield "reset that preempted what was in flight"
