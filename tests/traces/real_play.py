"""The driver of `kvsched-fp run` for the real scheduler: the same clock and the same stub model.

Nothing of our machine is asked: what waits, what is live and what samples is read off the real scheduler.

Importing this module imports vLLM.
"""

from collections.abc import Iterable, Iterator

from kvsched_fp import AddRequest, Event, Schedule, StepResult, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.trace.codec import Told
from kvsched_fp.workloads.play import DEFAULT_MAX_WAITING, StepCost
from kvsched_fp.workloads.request import WorkloadRequest, make_request
from kvsched_fp.workloads.stub import output_token_id

from .recorder import RecordedScheduler


class RealPlayer:
    """The real scheduler, the clock and the next request of a workload."""

    def __init__(self, recorded: RecordedScheduler, workload: Iterable[WorkloadRequest]) -> None:
        self.recorded = recorded
        self._workload = iter(workload)
        self._upcoming = next(self._workload, None)
        self._time = 0.0
        self._add_numbers: dict[RequestId, int] = {}

    def play(self) -> Iterator[tuple[Event, Told]]:
        """Give every event and what came of it, right after it happened."""
        scheduler, cost = self.recorded.scheduler, StepCost()
        while True:
            while self._has_arrival():
                yield self._add_next()
            if not scheduler.has_requests():
                if self._upcoming is None:
                    return
                self._time = max(self._time, self._upcoming.arrival_time)
                continue
            output = self.recorded.happen(Schedule())
            assert isinstance(output, SchedulerOutput)
            yield Schedule(), output
            self._time += cost.seconds(output.total_num_scheduled_tokens)
            update = Update(self._stub_result(output))
            yield update, self.recorded.happen(update)

    def _has_arrival(self) -> bool:
        scheduler = self.recorded.scheduler
        num_waiting = len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
        return (
            self._upcoming is not None
            and self._upcoming.arrival_time <= self._time
            and num_waiting < DEFAULT_MAX_WAITING
        )

    def _add_next(self) -> tuple[Event, Told]:
        assert self._upcoming is not None
        event = AddRequest(make_request(self._upcoming))
        self._add_numbers[event.request.request_id] = len(self._add_numbers)
        self._upcoming = next(self._workload, None)
        return event, self.recorded.happen(event)

    def _stub_result(self, output: SchedulerOutput) -> StepResult:
        sampled = {}
        for request_id in output.num_scheduled_tokens:
            request = self.recorded.scheduler.requests.get(request_id)
            if request is not None and not request.is_prefill_chunk:
                number = self._add_numbers[request_id]
                sampled[request_id] = (output_token_id(number, request.num_output_tokens),)
        return StepResult(step_id=output.step_id, sampled_token_ids=sampled)
