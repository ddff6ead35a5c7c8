"""Giving back what one request holds: when it is preempted, when others need it, and when it ends.

Rules
-----
[M-REL-01] A preempted request gives back all its blocks and starts again from nothing computed; its
    output stays known, so it will compute prompt and output as one prompt.
    Its drafts and its placeholders are gone.
[M-REL-02] It goes back to the front of the waiting queue (FCFS), or to its place (priority).
[M-REL-03] Its tokens in flight become stale. Normally they are still delivered when they come
    back, and it is not admitted before; after a forced reset, or with `requires_kv_delivery`, they are
    dropped, and it may be admitted at once.
[M-REL-04] A share that is stale from an earlier preemption and still in flight stays dropped if it was; it
    cannot be told apart from the later share, so both are dropped.
[M-REL-05] A request that ends gives back all its blocks and leaves the state; its id is told to the
    model runner with the next step, and to its client if the config asks for it.
[M-REL-06] Without the quirk of deviation D-16, a session that has input and nothing in flight, and waits
    with blocks in hand, may have to give them back. It waits without them, behind the preempted (FCFS) or
    in its place, also while new requests are paused, and starts again from nothing computed. The model
    runner, which keeps its row, is told as of a preemption; it counts as none.

Upstream: `v1/core/sched/scheduler.py::Scheduler._preempt_request`, `_free_request`, `_free_blocks`.
"""

from itertools import takewhile

from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.coordinator import release_blocks
from kvsched_fp.progress import Progress, RequestEvent, RequestEventType, evolve_progress
from kvsched_fp.queues import queue_entry
from kvsched_fp.request import RequestStatus, move
from kvsched_fp.transient import OpenState


def preempt_request(open_state: OpenState, request_id: RequestId, *, drop_stale_output: bool) -> None:
    """Preempt a request that the caller has taken out of `running` [M-REL-01, M-REL-02]."""
    release_blocks(open_state.kv, request_id)
    progress = open_state.progress[request_id]
    events = open_state.with_event(progress, RequestEventType.PREEMPTED)
    open_state.progress[request_id] = _preempted(progress, events, drop_stale_output=drop_stale_output)
    entry = queue_entry(open_state.requests[request_id])
    open_state.waiting = open_state.waiting.put_back((entry,))
    open_state.preempted_request_ids[request_id] = None


def _preempted(
    progress: Progress, events: tuple[RequestEvent, ...], *, drop_stale_output: bool
) -> Progress:
    """Start again from nothing, with all that is in flight stale [M-REL-03]."""
    was_dropped = progress.drop_stale_output and progress.num_stale_output_tokens > 0  # [M-REL-04]
    return Progress(
        status=move(progress.status, RequestStatus.PREEMPTED),
        num_computed_tokens=0,
        num_in_flight_tokens=progress.num_in_flight_tokens,
        is_prefill_chunk=progress.is_prefill_chunk,
        output_token_ids=progress.output_token_ids,
        block_hashes=progress.block_hashes,
        num_preemptions=progress.num_preemptions + 1,
        num_stale_output_tokens=progress.num_in_flight_tokens,
        drop_stale_output=drop_stale_output or was_dropped,
        prefill_stats=progress.prefill_stats,
        next_decode_eligible_step=progress.next_decode_eligible_step,
        spec_decode_metrics=progress.spec_decode_metrics,
        grammar=progress.grammar,
        chunks=progress.chunks,
        events=events,
        stop_reason=progress.stop_reason,
    )


def give_blocks_back(open_state: OpenState, request_id: RequestId) -> None:
    """Let a session that waits with blocks in hand wait without them [M-REL-06]."""
    release_blocks(open_state.kv, request_id)
    progress = open_state.progress[request_id]
    open_state.progress[request_id] = evolve_progress(progress, num_computed_tokens=0)
    open_state.kv_holding_waiting = open_state.kv_holding_waiting.remove({request_id})
    open_state.deferred = open_state.deferred.discard(request_id)
    preempted = list(takewhile(lambda it: _is_preempted(open_state, it), open_state.waiting))
    entries = [queue_entry(open_state.requests[it]) for it in (*preempted, request_id)]
    open_state.waiting = open_state.waiting.remove(preempted).put_back(entries)
    open_state.preempted_request_ids[request_id] = None


def _is_preempted(open_state: OpenState, request_id: RequestId) -> bool:
    return open_state.progress[request_id].status is RequestStatus.PREEMPTED


def end_request(open_state: OpenState, request_id: RequestId) -> None:
    """Let a request leave the state [M-REL-05]. The caller takes it out of its queue."""
    release_blocks(open_state.kv, request_id)
    request = open_state.requests.pop(request_id)
    open_state.left(request_id, open_state.progress.pop(request_id))
    del open_state.add_numbers[request_id]
    open_state.finished_request_ids[request_id] = None
    if open_state.config.include_finished_set:
        finished = open_state.finished_by_client.get(request.client_index, ())
        if request_id not in finished:
            open_state.finished_by_client[request.client_index] = (*finished, request_id)
