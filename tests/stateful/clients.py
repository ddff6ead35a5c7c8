"""The clients: they keep what they are told, and compare it with what the scheduler knows."""

from itertools import pairwise

from kvsched_fp import SchedulerState
from kvsched_fp.ids import RequestId
from kvsched_fp.progress import RequestEvent, RequestEventType

_FOLLOWS = {
    (RequestEventType.QUEUED, RequestEventType.SCHEDULED),
    (RequestEventType.SCHEDULED, RequestEventType.PREEMPTED),
    (RequestEventType.PREEMPTED, RequestEventType.SCHEDULED),
    # A session that stops is queued again.
    (RequestEventType.SCHEDULED, RequestEventType.QUEUED),
    (RequestEventType.PREEMPTED, RequestEventType.QUEUED),
}


class Clients:
    """Everything that was ever told, by request."""

    def __init__(self) -> None:
        self.asked: set[RequestId] = set()
        self.ended: set[RequestId] = set()
        self._told: dict[RequestId, list[int]] = {}
        self._stories: dict[RequestId, list[RequestEvent]] = {}

    def ask(self, request_id: RequestId) -> None:
        """Send a request; its id may have ended before."""
        self.asked.add(request_id)
        self.ended.discard(request_id)
        self._told[request_id] = []
        self._stories[request_id] = []

    def see_gone(self, before: SchedulerState, after: SchedulerState) -> None:
        """Notice requests that left without a word."""
        self.ended.update(request_id for request_id in before.requests if request_id not in after.requests)

    def listen(self, before: SchedulerState, after: SchedulerState) -> None:
        """Hear what an update tells, in order and once."""
        for client in after.emitted.clients.values():
            for output in client.outputs:
                request_id = output.request_id
                assert request_id not in self.ended

                self._told[request_id].extend(output.new_token_ids)
                self._stories[request_id].extend(output.events)
                if output.finish_reason is not None and request_id not in after.requests:
                    self.ended.add(request_id)
        gone = {request_id for request_id in before.requests if request_id not in after.requests}
        assert gone <= self.ended

    def compare(self, before: SchedulerState, after: SchedulerState) -> None:
        """Compare all that was told with what the scheduler knows of the live requests."""
        for request_id, progress in after.progress.items():
            request, earlier = after.requests[request_id], before.requests.get(request_id, None)
            told = self._told[request_id]
            if earlier is not None and earlier.prompt_token_ids != request.prompt_token_ids:
                # A session has begun its next input, behind all that was said but the last token.
                said = (*earlier.prompt_token_ids, *told)[:-1]
                assert said == request.prompt_token_ids[: len(said)]

                told.clear()
            assert told == list(progress.output_token_ids)

            story = [*self._stories[request_id], *progress.events]
            assert all((one.type, other.type) in _FOLLOWS for one, other in pairwise(story))
            assert sorted(event.time for event in story) == [event.time for event in story]
