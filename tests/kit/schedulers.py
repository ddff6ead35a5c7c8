"""Schedulers under test: the machine of this package behind each kind of adapter, and with faults."""

from kvsched_fp import (
    Emitted,
    PauseState,
    Request,
    RequestStatus,
    SchedulerConfig,
    SchedulerOutput,
    StepResult,
)
from kvsched_fp.events import Event, Schedule
from kvsched_fp.ids import RequestId
from kvsched_fp.lifecycle import add_request, finish_requests, reset_prefix_cache, set_pause_state
from kvsched_fp.schedule import schedule
from kvsched_fp.state import initial_state
from kvsched_fp.testing import CallAdapter, Feature, PureAdapter
from kvsched_fp.testing.adapter import Json
from kvsched_fp.trace import encode_emitted, encode_output
from kvsched_fp.trace.codec import Told
from kvsched_fp.update import update


class CalledAdapter(CallAdapter):
    """The pure functions, called one by one, which answer with plain JSON values."""

    features = frozenset({Feature.PREFIX_CACHING, Feature.PAUSE, Feature.RESET, Feature.V1_RUNNER})

    def start(self, config: SchedulerConfig) -> None:
        """Begin."""
        self.state = initial_state(config)

    def add_request(self, request: Request, time: float) -> None:
        """Let a request in."""
        self.state = add_request(self.state, request, time=time)

    def schedule(self, throttle_prefills: bool, time: float) -> Json:
        """Plan a step."""
        self.state, output = schedule(self.state, throttle_prefills=throttle_prefills, time=time)
        return encode_output(self.change(output))

    def change(self, output: SchedulerOutput) -> SchedulerOutput:
        """Do nothing; a fault does something else."""
        return output

    def update(self, result: StepResult, time: float) -> Json:
        """Take in a result."""
        self.state = update(self.state, result, time=time)
        return encode_emitted(self.tell(self.state.emitted))

    def tell(self, emitted: Emitted) -> Emitted:
        """Do nothing; a fault does something else."""
        return emitted

    def finish_requests(self, request_ids: tuple[RequestId, ...] | None, status: RequestStatus) -> None:
        """End requests."""
        self.state = finish_requests(self.state, request_ids, status)

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Pause, or go on."""
        self.state = set_pause_state(self.state, pause_state)

    def reset_prefix_cache(self, reset_running_requests: bool, time: float) -> bool:
        """Forget all cached blocks."""
        self.state, done = reset_prefix_cache(
            self.state, reset_running_requests=reset_running_requests, time=time
        )
        return done


class Crashing(PureAdapter):
    """A scheduler that cannot plan a step for three requests."""

    def happen(self, event: Event) -> Told:
        """Give up, or do what is right."""
        if isinstance(event, Schedule) and len(self.state.requests) == 3:
            raise ZeroDivisionError("three")
        return super().happen(event)


class LooksWrong(PureAdapter):
    """A scheduler that shows its running requests the wrong way round."""

    def view(self) -> dict[str, object]:
        """Turn them."""
        return {"running": [*reversed(self.state.running)]}
