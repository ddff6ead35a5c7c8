"""Sessions: requests whose input comes in chunks.

Rules
-----
[M-SESS-01] A resumable request that stops goes on with its next chunk, or waits for one; it keeps its
    blocks and its row. It ends when the end marker comes up, or with an error, or from outside.
[M-SESS-02] A chunk makes all known tokens but the last sampled one the prompt, and puts its own behind;
    that last token was never computed. It brings its own sampling parameters (whether the prefix cache
    is read stays as it was) and arrival time.
[M-SESS-03] Chunks that come while the session is busy wait in order. One for a session that waits for
    input is begun at once, where the session stands in its queue.
[M-SESS-04] What a stop leaves in flight is stale and will be dropped; placeholders are given up, and
    what they had counted as computed is not.
[M-SESS-05] A session that goes on waits behind the others, like a new request.
[M-SESS-06] The stop reason stays with the session, and is told with every output until another one
    takes its place.
[M-SESS-07] With look-ahead, the hash of a block that was kept may cover the token that a chunk
    discarded. It stands for what is in the cache; when the session starts again from nothing, it is
    hashed anew.
[M-SESS-08] A result cannot stop a session that has computed less than is cut off behind the stop: a late
    one of an earlier request of its id, or more tokens than a row could sample. It is refused, where the
    reference fails an assertion (deviation D-05).
[M-SESS-09] A session may grow beyond `max_model_len` (deviation D-11). Without that quirk, input is refused
    where it comes unless it surely fits: behind all that is known if the session waits for it, else behind
    the longest answers that it may give until then.

Upstream: `v1/core/sched/scheduler.py::Scheduler.add_request`, `_handle_stopped_request`,
`_update_request_as_session`, `_enqueue_waiting_request`.
"""

import attrs
from pyrsistent import pvector

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.naming import hash_new_blocks
from kvsched_fp.progress import (
    Chunk,
    Progress,
    RequestEventType,
    evolve_progress,
    known_tokens,
    num_known_tokens,
)
from kvsched_fp.queues import queue_entry
from kvsched_fp.release import end_request
from kvsched_fp.request import Request, RequestStatus, SamplingParams, move
from kvsched_fp.transient import OpenState


def end_or_continue(
    open_state: OpenState, request_id: RequestId, status: RequestStatus, stop_reason: int | str | None
) -> bool:
    """Let a request that stopped end, or its session go on [M-SESS-01]; tell whether it goes on.

    The caller takes it out of its queue, and puts a session that goes on into another [M-SESS-05]. Raises
    `InvalidEvent` as `begin_chunk` does, and if less than nothing would be left computed [M-SESS-08].
    """
    request, progress = open_state.requests[request_id], open_state.progress[request_id]
    at_end = progress.chunks[:1] == (None,)
    if not request.resumable or status is RequestStatus.FINISHED_ERROR or at_end:
        move(progress.status, status)
        end_request(open_state, request_id)
        return False
    num_computed_tokens = progress.num_computed_tokens - progress.num_output_placeholders
    if num_computed_tokens < 0:
        allowed = "no more tokens behind the stop of a session than it has computed"
        raise InvalidEvent("sampled_token_ids", request_id, allowed)
    progress = evolve_progress(
        progress,
        num_computed_tokens=num_computed_tokens,
        spec_token_ids=(),
        drop_stale_output=True,
        num_stale_output_tokens=progress.num_in_flight_tokens,
        num_output_placeholders=0,
        stop_reason=stop_reason,
    )  # [M-SESS-04, M-SESS-06]
    if not progress.chunks:
        status = move(progress.status, RequestStatus.WAITING_FOR_INPUT)
        open_state.progress[request_id] = evolve_progress(progress, status=status)
        open_state.num_waiting_for_input += 1
        return True
    chunk, *rest = progress.chunks
    open_state.progress[request_id] = evolve_progress(progress, chunks=tuple(rest))
    assert chunk is not None
    begin_chunk(open_state, request_id, chunk)
    return True


def require_room(config: SchedulerConfig, request: Request, progress: Progress, chunk: Chunk) -> None:
    """Refuse the next input of a session if it may not fit into `max_model_len` [M-SESS-09].

    Raises `InvalidEvent` naming `prompt_token_ids`.
    """
    num_kept = most_kept_tokens(config, request, progress)
    num_room = config.max_model_len - num_kept
    if len(chunk.prompt_token_ids) > num_room:
        raise InvalidEvent(
            "prompt_token_ids",
            f"{len(chunk.prompt_token_ids)} tokens",
            f"at most {max(num_room, 0)} tokens for session {request.request_id!r}, which may keep "
            f"{num_kept} until then: max_model_len = {config.max_model_len}",
        )


def most_kept_tokens(config: SchedulerConfig, request: Request, progress: Progress) -> int:
    """Count the tokens that may stand before the next input of a session at most [M-SESS-09].

    That is all that is known but the last token, when it has answered all the input that it has. The
    session must not have got its end: nothing may come behind it.
    """
    if progress.status is RequestStatus.WAITING_FOR_INPUT:
        return num_known_tokens(request, progress) - 1
    most = _most_behind_answer(config, request.num_prompt_tokens, request.sampling_params)
    # No chunk is the end: the caller has refused what comes behind one.
    for chunk in progress.chunks:
        assert chunk is not None
        num_prompt_tokens = most - 1 + len(chunk.prompt_token_ids)
        most = _most_behind_answer(config, num_prompt_tokens, chunk.sampling_params)
    return most - 1


def _most_behind_answer(config: SchedulerConfig, num_prompt_tokens: int, params: SamplingParams) -> int:
    """Count what is known at most when an answer has stopped, which has at least one token."""
    longest = max(config.max_model_len, num_prompt_tokens + 1)
    return min(num_prompt_tokens + params.max_tokens, longest)


def begin_chunk(open_state: OpenState, request_id: RequestId, chunk: Chunk) -> None:
    """Go on with the next input [M-SESS-02].

    Raises `InvalidEvent` if more is computed than is kept: drafts that came while a step was in flight were
    computed behind a token that stopped the session.
    """
    request, progress = open_state.requests[request_id], open_state.progress[request_id]
    config = open_state.config
    num_kept = num_known_tokens(request, progress) - 1
    if progress.num_computed_tokens > num_kept:
        # The reference fails an assertion here.
        num_computed_tokens = progress.num_computed_tokens
        allowed = f"a session with at most {num_kept} computed tokens: it has {num_computed_tokens}"
        raise InvalidEvent("request_id", request_id, allowed)
    prompt_token_ids = (*known_tokens(request, progress, 0, num_kept), *chunk.prompt_token_ids)
    request = attrs.evolve(
        request,
        prompt_token_ids=prompt_token_ids,
        sampling_params=attrs.evolve(
            chunk.sampling_params,
            skip_reading_prefix_cache=request.sampling_params.skip_reading_prefix_cache,
        ),
        arrival_time=chunk.arrival_time,
    )
    kept_hashes = progress.block_hashes[: num_kept // config.block_size]
    new_token_ids = prompt_token_ids[len(kept_hashes) * config.block_size :]
    block_hashes = hash_new_blocks(config, request, kept_hashes, new_token_ids)
    if progress.status is RequestStatus.WAITING_FOR_INPUT:
        open_state.num_waiting_for_input -= 1
    open_state.requests[request_id] = request
    open_state.progress[request_id] = evolve_progress(
        progress,
        status=move(progress.status, RequestStatus.WAITING),
        output_token_ids=pvector(),
        block_hashes=block_hashes,
        events=open_state.with_event(progress, RequestEventType.QUEUED),
    )


def renew_hashes(open_state: OpenState, request_id: RequestId) -> None:
    """Hash a session anew that starts again from nothing [M-SESS-07]."""
    request, progress = open_state.requests[request_id], open_state.progress[request_id]
    known = known_tokens(request, progress, 0, num_known_tokens(request, progress))
    block_hashes = hash_new_blocks(open_state.config, request, (), known)
    open_state.progress[request_id] = evolve_progress(progress, block_hashes=block_hashes)


def enqueue(open_state: OpenState, request_id: RequestId) -> None:
    """Let a request wait: with those that hold blocks if it does.

    It is deferred from the start if something outside holds it.
    """
    progress = open_state.progress[request_id]
    if progress.status is not RequestStatus.WAITING:
        open_state.deferred = open_state.deferred.add(request_id)
    entry = queue_entry(open_state.requests[request_id])
    if progress.num_computed_tokens > 0:
        open_state.kv_holding_waiting = open_state.kv_holding_waiting.add(entry)
    else:
        open_state.waiting = open_state.waiting.add(entry)
