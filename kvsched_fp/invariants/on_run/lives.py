"""The lives of requests: each that was added ends once, and everybody who has to know is told so once."""

from collections import deque

import attrs

from kvsched_fp.events import AddRequest, FinishRequests, Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.invariants.on_run.endings import ended, outputs_told
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.request import FinishReason, Request, RequestStatus
from kvsched_fp.state import SchedulerState


@attrs.define
class _Life:
    """What a client knows of its request that has not ended."""

    is_session: bool
    is_idle: bool
    """Whether it is a session that has answered everything."""
    to_come: deque[bool]
    """The input of a session that is not begun, in order; False is its end."""


def _lives_of(state: SchedulerState) -> dict[RequestId, _Life]:
    return {
        request_id: _Life(
            state.requests[request_id].resumable,
            progress.status is RequestStatus.WAITING_FOR_INPUT,
            deque(chunk is not None for chunk in progress.chunks),
        )
        for request_id, progress in state.progress.items()
    }


@run_invariant(
    "INV-LIFE-01",
    Cost.CHEAP,
    "Every request that was added is live until it ends, which it does once: its client is told the end "
    "of its last output, or it was ended from outside, or it was a session with nothing left to answer and "
    "got its end. Nobody is told of a request that is not live.",
    "A client waits for an end that was forgotten, and does not expect a second one.",
    AddRequest,
    FinishRequests,
    Update,
    start=_lives_of,
    memory="for each live request, whether it is a session, and, for each input not begun, whether it is "
    "the end",
    reports=("vLLM PR #20739",),
)
def _everybody_ends_once(lives: dict[RequestId, _Life], step: Step) -> str | None:
    match step.event:
        case AddRequest(request):
            touched = [request.request_id]
            _hear_request(lives, request)
        case FinishRequests(request_ids):
            touched = list(lives if request_ids is None else request_ids)
            for request_id in touched:
                if lives.pop(request_id, None) is None:
                    return f"request {request_id} is ended from outside and was not live"
        case _:
            outputs = list(outputs_told(step))
            touched = [output.request_id for output in outputs]
            for output in outputs:
                if output.request_id not in lives:
                    return f"{output} is told of a request that is not live"
                _hear_output(lives, output)
    for request_id in touched:
        if (request_id in lives) != (request_id in step.after.requests):
            return (
                f"request {request_id} has not ended: {request_id in lives}, and is live: "
                f"{request_id in step.after.requests}"
            )
    if len(lives) == len(step.after.requests):
        return None
    return f"{len(lives)} requests have not ended, {len(step.after.requests)} are live"


def _hear_request(lives: dict[RequestId, _Life], request: Request) -> None:
    """Take down a request, or the input or the end of a session."""
    life = lives.get(request.request_id)
    if life is None:
        lives[request.request_id] = _Life(request.resumable, False, deque())
    elif not life.is_idle:
        life.to_come.append(request.resumable)
    elif request.resumable:
        life.is_idle = False
    else:
        del lives[request.request_id]


def _hear_output(lives: dict[RequestId, _Life], output: EngineOutput) -> None:
    """Take down what is told of a live request: an end, unless it is a session that has more to do."""
    if output.finish_reason is None:
        return
    life = lives[output.request_id]
    goes_on = life.is_session and output.finish_reason is not FinishReason.ERROR
    if goes_on and not life.to_come:
        life.is_idle = True
    elif not goes_on or not life.to_come.popleft():
        del lives[output.request_id]


@attrs.define
class _Unannounced:
    """Who ended, and who has not been told."""

    to_runner: set[RequestId]
    to_clients: dict[int, set[RequestId]]
    """By front end."""


def _unannounced_of(state: SchedulerState) -> _Unannounced:
    by_client = state.finished_by_client.items()
    return _Unannounced(
        set(state.finished_request_ids), {client: set(request_ids) for client, request_ids in by_client}
    )


@run_invariant(
    "INV-LIFE-02",
    Cost.CHEAP,
    "Every end is told once to the model runner, with the next step, and, with include_finished_set, once "
    "to the front end of its client, with the next update.",
    "Who is not told keeps the row of a request that is gone; who is told twice drops that of another.",
    AddRequest,
    FinishRequests,
    Schedule,
    Update,
    start=_unannounced_of,
    memory="the ids that ended since the last step, and those since the last update",
)
def _ends_are_told_once(unannounced: _Unannounced, step: Step) -> str | None:
    if isinstance(step.event, Schedule):
        expected, unannounced.to_runner = unannounced.to_runner, set()
        return _compare_ids("the model runner", expected, step.output.finished_request_ids)
    tells_clients = step.before.config.include_finished_set
    for request_id in ended(step):
        unannounced.to_runner.add(request_id)
        if tells_clients:
            client_index = step.before.requests[request_id].client_index
            unannounced.to_clients.setdefault(client_index, set()).add(request_id)
    if not tells_clients or not isinstance(step.event, Update):
        return None
    due, unannounced.to_clients = unannounced.to_clients, {}
    clients = step.after.emitted.clients
    for client_index in sorted(due.keys() | clients.keys()):
        outputs = clients.get(client_index)
        told_ids = () if outputs is None else outputs.finished_request_ids or ()
        evidence = _compare_ids(f"client {client_index}", due.get(client_index, set()), told_ids)
        if evidence is not None:
            return evidence
    return None


def _compare_ids(who: str, ended_ids: set[RequestId], told_ids: tuple[RequestId, ...]) -> str | None:
    if len(ended_ids) == len(told_ids) and ended_ids.issuperset(told_ids):
        return None
    return f"{sorted(ended_ids)} have ended since {who} was told last, it is told of {list(told_ids)}"


INVARIANTS: tuple[RunInvariant, ...] = (_everybody_ends_once, _ends_are_told_once)
"""In the order in which they are checked."""
