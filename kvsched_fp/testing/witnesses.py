"""Situations that a run met, told to Hypothesis: `--hypothesis-show-statistics` counts them.

They are what shows from outside in a state, an event and its outcome; none asks the scheduler under test.
"""

from collections.abc import Iterator

from kvsched_fp.events import (
    AddRequest,
    FinishRequests,
    GrammarFailed,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDraftsInFlight,
)
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.request import RequestStatus
from kvsched_fp.trace.replay import Replayed


def witness(replayed: Replayed) -> Iterator[str]:
    """Name what an event showed."""
    before, after = replayed.before, replayed.after
    match replayed.event:
        case Schedule():
            yield from _of_step(replayed)
        case Update():
            yield from _of_result(replayed)
        case AddRequest(request) if request.request_id in before.requests:
            yield "session: next input"
        case AddRequest(request) if request.request_id in before.finished_request_ids:
            yield "added: an id that was used before"
        case FinishRequests() if any(
            name in output.num_scheduled_tokens and name not in after.requests
            for output in before.in_flight
            for name in before.requests
        ):
            yield "ended from outside while in flight"
        case SetPauseState(pause_state) if pause_state is not PauseState.UNPAUSED:
            yield f"paused: {pause_state.value}"
        case ResetPrefixCache():
            yield (
                "reset: running requests preempted"
                if before.running and not after.running
                else ("reset: done" if replayed.outcome else "reset: refused")
            )
        case UpdateDraftsInFlight():
            yield "drafts: replaced in flight"
        case GrammarFailed():
            yield "grammar: cannot be compiled"


def _of_step(replayed: Replayed) -> Iterator[str]:
    before, after, output = replayed.before, replayed.after, replayed.outcome
    assert isinstance(output, SchedulerOutput)
    if len(before.in_flight) > 0:
        yield "planned while another step is in flight"
    if set(output.preempted_request_ids) & set(before.running):
        yield "preempted"
    if set(output.preempted_request_ids) & set(output.num_scheduled_tokens):
        yield "preempted and admitted again in one step"
    if after.requests and not output.num_scheduled_tokens:
        yield "nobody gets anything"
    if output.scheduled_spec_token_ids:
        yield "drafts: verified"
    if after.kv.pool.num_free_blocks == 0:
        yield "pool: full"
    for request_id in output.num_scheduled_tokens:
        was, now = before.progress[request_id], after.progress[request_id]
        if was.status is RequestStatus.PREEMPTED:
            yield "resumed"
        if (
            was.status is not RequestStatus.RUNNING
            and now.num_computed_tokens > output.num_scheduled_tokens[request_id]
        ):
            yield "admitted: prefix hit"
        if now.num_computed_tokens < num_known_tokens(after.requests[request_id], now):
            yield "prompt computed in pieces"
    if after.waiting and len(output.num_scheduled_tokens) > 0:
        yield "somebody has to wait"


def _of_result(replayed: Replayed) -> Iterator[str]:
    before, after = replayed.before, replayed.after
    batch = before.in_flight[0].num_scheduled_tokens
    if any(request_id not in before.requests for request_id in batch):
        yield "result: of a request that is gone"
    if any(
        request_id in before.requests and before.progress[request_id].num_stale_output_tokens
        for request_id in batch
    ):
        yield "result: stale"
    for client in after.emitted.clients.values():
        for output in client.outputs:
            if output.finish_reason is not None:
                yield f"ended: {output.finish_reason.value}"
