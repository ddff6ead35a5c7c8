"""Who came, who was thrown out and who ended in a step, as the predicates on runs read it."""

from collections.abc import Iterator

from kvsched_fp.events import AddRequest, FinishRequests, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Step
from kvsched_fp.outputs import EngineOutput


def added(step: Step) -> RequestId | None:
    """Give the request that was added, if one was; input for a session is none."""
    if not isinstance(step.event, AddRequest):
        return None
    request_id: RequestId = step.event.request.request_id
    return None if request_id in step.before.requests else request_id


def outputs_told(step: Step) -> Iterator[EngineOutput]:
    """Give what is told by an update, of all clients."""
    for client in step.after.emitted.clients.values():
        yield from client.outputs


def preempted_by_reset(step: Step) -> list[RequestId]:
    """List whom a reset of the prefix cache preempted: who was running and is not any more."""
    still_running = set(step.after.running)
    return [request_id for request_id in step.before.running if request_id not in still_running]


def ended(step: Step) -> list[RequestId]:
    """List whom an event ended: who was told so, who was ended from outside, a session that got its end."""
    if isinstance(step.event, Update):
        return [
            output.request_id
            for output in outputs_told(step)
            if output.finish_reason is not None and output.request_id not in step.after.requests
        ]
    if isinstance(step.event, FinishRequests):
        return list(step.before.requests if step.event.request_ids is None else step.event.request_ids)
    if isinstance(step.event, AddRequest):
        request_id = step.event.request.request_id
        return [request_id] if request_id not in step.after.requests else []
    return []
