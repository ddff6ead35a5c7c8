"""Sessions: what their input changes, and when they go on or end."""

from collections.abc import Iterable

import attrs

from kvsched_fp.events import AddRequest, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.progress import Chunk
from kvsched_fp.queues import FCFSQueue
from kvsched_fp.request import FinishReason, Request, RequestStatus


@step_invariant(
    "INV-INPUT-01",
    Cost.FULL,
    "Input for a busy session waits in store, behind what is there, and so does its end; nothing else "
    "changes. A session that waits for input begins at once, where it stands, or ends.",
    "What a client says is answered in order.",
    AddRequest,
)
def _input_is_taken(step: Step) -> str | None:
    if not is_input(step):
        return None
    before, after, request = step.before, step.after, step.event.request
    request_id, chunk = request.request_id, _as_chunk(request)
    earlier, later = before.progress[request_id], after.progress.get(request_id)
    if earlier.status is not RequestStatus.WAITING_FOR_INPUT:
        stored = attrs.evolve(earlier, chunks=(*earlier.chunks, chunk))
        expected = attrs.evolve(before, progress=before.progress.set(request_id, stored))
        return None if after == expected else f"session {request_id} is busy; {earlier} became {later}"
    if chunk is None:
        is_told = request_id in after.finished_request_ids
        if later is None and is_told and request_id not in after.kv.tables:
            return None
        return f"session {request_id} got its end; {later}, told: {is_told}"
    places = (after.running, after.waiting, after.kv_holding_waiting, after.kv)
    if places == (before.running, before.waiting, before.kv_holding_waiting, before.kv):
        return None if later is not None else f"session {request_id} got input, and is gone"
    return f"session {request_id} got input; it or others moved"


@step_invariant(
    "INV-INPUT-02",
    Cost.CHEAP,
    "The input that a session begins stands behind all that is known but the last token, which was never "
    "computed; it brings its own parameters and arrival time, and the output starts anew.",
    "The next answer continues all that was said.",
    AddRequest,
    Update,
)
def _input_is_behind_the_known(step: Step) -> str | None:
    for request_id in _beginning(step):
        request, progress = step.after.requests[request_id], step.after.progress[request_id]
        expected = _with_input(step, request_id)
        waits = progress.status is RequestStatus.WAITING
        if waits and request == expected and not progress.output_token_ids:
            continue
        return (
            f"session {request_id} is {progress.status.name} and goes on with {request}, output "
            f"{list(progress.output_token_ids)}; expected is {expected}"
        )
    return None


@step_invariant(
    "INV-INPUT-03",
    Cost.CHEAP,
    "Of the requests that stop, exactly sessions whose end has not come up go on, unless with an error: "
    "with the input in store, or waiting for some. They wait behind the others, in the order of the batch.",
    "A session ends when its client says so.",
    Update,
)
def _sessions_go_on(step: Step) -> str | None:
    before, after = step.before, step.after
    stopped = _finish_reasons(step)
    for request_id, reason in stopped.items():
        earlier = before.progress[request_id]
        may_go_on = before.requests[request_id].resumable and earlier.chunks[:1] != (None,)
        if (request_id in step.went_on) != (may_go_on and reason is not FinishReason.ERROR):
            return f"request {request_id} stopped with {reason}, goes on: {request_id in step.went_on}"
    if not step.went_on:
        return None
    for request_id in step.went_on:
        status, chunks = after.progress[request_id].status, before.progress[request_id].chunks
        goes_on_with = RequestStatus.WAITING if chunks else RequestStatus.WAITING_FOR_INPUT
        if status is not goes_on_with or after.progress[request_id].chunks != chunks[1:]:
            return f"session {request_id} had {len(chunks)} chunks in store and is {status.name}"
    for queue in (after.waiting, after.kv_holding_waiting):
        went_on = [request_id for request_id in step.went_on if request_id in set(queue)]
        if went_on and isinstance(queue, FCFSQueue) and list(queue)[-len(went_on) :] != went_on:
            return f"{went_on} go on, and wait in {list(queue)}"
    return None


def is_input(step: Step) -> bool:
    """Tell whether a request that is added brings input, or the end, for a session."""
    return step.event.request.request_id in step.before.requests


def begins_input(step: Step, request_id: RequestId) -> bool:
    """Tell whether a session begins with its next input in this step."""
    return request_id in _beginning(step)


def _beginning(step: Step) -> Iterable[RequestId]:
    if isinstance(step.event, AddRequest):
        request = step.event.request
        earlier = step.before.progress.get(request.request_id)
        waited = earlier is not None and earlier.status is RequestStatus.WAITING_FOR_INPUT
        return (request.request_id,) if waited and request.resumable else ()
    return [request_id for request_id in step.went_on if step.before.progress[request_id].chunks]


def _with_input(step: Step, request_id: RequestId) -> Request:
    """Give a session with the input that it begins."""
    request, earlier = step.before.requests[request_id], step.before.progress[request_id]
    known = (*request.prompt_token_ids, *earlier.output_token_ids)
    if isinstance(step.event, AddRequest):
        chunk = _as_chunk(step.event.request)
    else:
        chunk = earlier.chunks[0]
        known += _told_tokens(step, request_id)
    assert chunk is not None
    params = attrs.evolve(
        chunk.sampling_params, skip_reading_prefix_cache=request.sampling_params.skip_reading_prefix_cache
    )
    return attrs.evolve(
        request,
        prompt_token_ids=(*known[:-1], *chunk.prompt_token_ids),
        sampling_params=params,
        arrival_time=chunk.arrival_time,
    )


def _as_chunk(request: Request) -> Chunk | None:
    if not request.resumable:
        return None
    return Chunk(request.prompt_token_ids, request.sampling_params, request.arrival_time)


def _told_tokens(step: Step, request_id: RequestId) -> tuple[int, ...]:
    return next(
        output.new_token_ids
        for client in step.after.emitted.clients.values()
        for output in client.outputs
        if output.request_id == request_id
    )


def _finish_reasons(step: Step) -> dict[RequestId, FinishReason]:
    return {
        output.request_id: output.finish_reason
        for client in step.after.emitted.clients.values()
        for output in client.outputs
        if output.finish_reason is not None and output.error is None
    }


INVARIANTS: tuple[StepInvariant, ...] = (
    _input_is_taken,
    _input_is_behind_the_known,
    _sessions_go_on,
)
"""In the order in which they are checked."""
