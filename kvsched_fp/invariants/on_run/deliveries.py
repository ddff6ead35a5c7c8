"""What the clients were told, from the first token on: a ledger that nobody but they keeps."""

from collections import deque

import attrs

from kvsched_fp.events import AddRequest, FinishRequests, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.invariants.on_run.endings import added, ended, outputs_told
from kvsched_fp.state import SchedulerState


@attrs.define
class _Ledger:
    """What is known of one request outside of the scheduler."""

    asked: tuple[int, ...]
    """Its prompt; for a session, all up to the input that it answers."""
    told: list[int]
    """The answer so far."""
    to_ask: deque[tuple[int, ...]]
    """The input of a session that it has not come to, in order."""


def _ledgers_of(state: SchedulerState) -> dict[RequestId, _Ledger]:
    return {
        request_id: _Ledger(
            request.prompt_token_ids,
            list(state.progress[request_id].output_token_ids),
            deque(chunk.prompt_token_ids for chunk in state.progress[request_id].chunks if chunk),
        )
        for request_id, request in state.requests.items()
    }


@run_invariant(
    "INV-DELIVER-01",
    Cost.CHEAP,
    "From when a request is added until it ends, each position of its output is told once, in order and "
    "without a gap, and nothing is told after that. What was told by the end is the output that it had; "
    "what a session was asked and has told, but for the last token, and then its next input, in the order "
    "in which that came, is what it goes on with.",
    "The text that the client has and the text that the next token is computed behind are one.",
    AddRequest,
    FinishRequests,
    Update,
    start=_ledgers_of,
    memory="for each live request, its prompt and input (shared with the request) and the tokens told",
    reports=("vLLM PR #20739", "vLLM PR #48245"),
)
def _told_is_the_output(ledgers: dict[RequestId, _Ledger], step: Step) -> str | None:
    num_told_now: dict[RequestId, int] = {}
    if isinstance(step.event, AddRequest):
        _ask(ledgers, step)
    elif isinstance(step.event, Update):
        for output in outputs_told(step):
            ledger = ledgers.get(output.request_id)
            if ledger is None:
                return f"{output} is told of a request that is not live"
            ledger.told += output.new_token_ids
            num_told_now[output.request_id] = len(output.new_token_ids)
    for request_id in ended(step):
        evidence = _close(ledgers.pop(request_id), step, request_id, num_told_now.pop(request_id, 0))
        if evidence is not None:
            return evidence
    for request_id in _continued(step):
        evidence = _begin_input(ledgers[request_id], step, request_id)
        if evidence is not None:
            return evidence
    for request_id in num_told_now:
        num_told = len(ledgers[request_id].told)
        num_had = len(step.after.progress[request_id].output_token_ids)
        if num_told != num_had:
            return f"request {request_id} was told {num_told} tokens and has {num_had}"
    return None


def _ask(ledgers: dict[RequestId, _Ledger], step: Step) -> None:
    """Take down a request, or the input of a session; the end of one asks nothing."""
    request = step.event.request
    if added(step) is not None:
        ledgers[request.request_id] = _Ledger(request.prompt_token_ids, [], deque())
    elif request.resumable:
        ledgers[request.request_id].to_ask.append(request.prompt_token_ids)


def _close(ledger: _Ledger, step: Step, request_id: RequestId, num_told_now: int) -> str | None:
    """Compare all that was told until an end with the output until then."""
    told_before = ledger.told[: len(ledger.told) - num_told_now]
    output = list(step.before.progress[request_id].output_token_ids)
    if told_before == output:
        return None
    return f"request {request_id} ends with the output {output}, and was told {told_before}"


def _continued(step: Step) -> list[RequestId]:
    """List the sessions that begin their next input."""
    candidates = step.went_on
    if isinstance(step.event, AddRequest):
        candidates = (step.event.request.request_id,)
    return [
        request_id
        for request_id in candidates
        if request_id in step.before.requests
        and request_id in step.after.requests
        and step.before.requests[request_id] is not step.after.requests[request_id]
    ]


def _begin_input(ledger: _Ledger, step: Step, request_id: RequestId) -> str | None:
    """Compare what was said, and the next input of a session, with what it goes on with."""
    said, chunk = (*ledger.asked, *ledger.told)[:-1], ledger.to_ask.popleft()
    prompt = step.after.requests[request_id].prompt_token_ids
    ledger.asked, ledger.told = prompt, []
    if prompt == (*said, *chunk):
        return None
    return f"session {request_id} has said {said}, is asked {chunk} and goes on with {prompt}"


INVARIANTS: tuple[RunInvariant, ...] = (_told_is_the_output,)
"""In the order in which they are checked."""
