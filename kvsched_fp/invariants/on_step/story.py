"""What happens to requests is noted when it happens, and told once."""

from collections.abc import Iterator

from kvsched_fp.events import AddRequest, ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.sessions import begins_input, is_input
from kvsched_fp.progress import RequestEvent, RequestEventType


@step_invariant(
    "INV-STORY-01",
    Cost.CHEAP,
    "If it is kept, it is noted at the time of the event when a request is queued, scheduled and "
    "preempted, behind what is noted already.",
    "A client measures by it how long it waited and how long it ran.",
    AddRequest,
    Schedule,
    ResetPrefixCache,
)
def _noted_at_once(step: Step) -> str | None:
    if not step.before.config.log_request_events:
        return None
    for request_id, kind in _happened(step):
        earlier = step.before.progress.get(request_id)
        noted = () if earlier is None else earlier.events
        expected = (*noted, RequestEvent(kind, step.event.time))
        found = step.after.progress[request_id].events
        if found != expected:
            return f"request {request_id} is {kind.name} at {step.event.time}; {noted} became {found}"
    return None


@step_invariant(
    "INV-STORY-02",
    Cost.CHEAP,
    "What is noted of a request goes out with its next output, and only then; for a session that goes on, "
    "also that it is queued again.",
    "Each client gets each event once.",
    Update,
)
def _told_once(step: Step) -> str | None:
    before, after = step.before, step.after
    told = {}
    for client in after.emitted.clients.values():
        for output in client.outputs:
            request_id = output.request_id
            told[request_id] = ()
            expected = before.progress[request_id].events
            if begins_input(step, request_id) and before.config.log_request_events:
                expected += (RequestEvent(RequestEventType.QUEUED, step.event.time),)
            if output.events != expected:
                return f"request {request_id} is told {output.events}, not {expected}"
    for request_id, _, _, earlier, progress, _ in step.rows:
        if progress is not None and earlier is not None:
            left = told.get(request_id, earlier.events)
            if progress.events != left:
                return f"request {request_id} keeps {progress.events}, not {left}"
    return None


def _happened(step: Step) -> Iterator[tuple[RequestId, RequestEventType]]:
    """Give what happens to whom."""
    match step.event:
        case AddRequest(request=request):
            if not is_input(step) or begins_input(step, request.request_id):
                yield request.request_id, RequestEventType.QUEUED
        case ResetPrefixCache(reset_running_requests=True):
            yield from ((request_id, RequestEventType.PREEMPTED) for request_id in step.before.running)
        case Schedule():
            yield from ((request_id, RequestEventType.SCHEDULED) for request_id in step.admitted)
            yield from ((request_id, RequestEventType.PREEMPTED) for request_id in step.victims)


INVARIANTS: tuple[StepInvariant, ...] = (
    _noted_at_once,
    _told_once,
)
"""In the order in which they are checked."""
