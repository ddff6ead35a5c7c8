"""The real scheduler and another one behind the same interface, fed with equal requests and results.

Importing this module imports vLLM.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any

from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.utils import ConstantList

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    ResetPrefixCache,
    Schedule,
    SchedulerConfig,
    SetPauseState,
    Update,
)
from kvsched_fp.adapters.vllm import OracleScheduler
from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.state import SchedulerState, initial_state
from tests.conformance.compare import Difference, first_difference
from tests.conformance.histories import History
from tests.conformance.known_crashes import is_known_crash
from tests.conformance.random_configs import draw_config
from tests.conformance.vllm_config import build_scheduler
from tests.conformance.vllm_hasher import VllmBlockHasher
from tests.conformance.vllm_requests import make_request_hasher, to_model_runner_output, to_vllm_request
from tests.conformance.vllm_view import scheduler_to_plain


class Driver:
    """One scheduler behind vLLM's interface, and the requests that it was given."""

    def __init__(self, scheduler: Any, config: SchedulerConfig) -> None:
        self.scheduler = scheduler
        self.requests: list[VllmRequest] = []
        self.published: list[Any] = []
        self._hasher = make_request_hasher(config)
        self._in_flight: deque[Any] = deque()
        scheduler.kv_event_publisher = self

    def publish(self, batch: Any) -> None:
        """Take a batch of KV events, as a publisher."""
        self.published.append(batch.events)

    def shutdown(self) -> None:
        """Do nothing, as a publisher."""

    def apply(self, event: Event) -> Any:
        """Let `event` happen; give what the scheduler answers, all fields of it."""
        match event:
            case Schedule(throttle_prefills):
                output = self.scheduler.schedule(throttle_prefills=throttle_prefills)
                self._in_flight.append(output)
                return plain(output)
            case Update(result):
                output = self._in_flight.popleft()
                returned = to_model_runner_output(output.num_scheduled_tokens, result.sampled_token_ids)
                told = self.scheduler.update_from_output(output, returned)
                return {"told": plain(told), "cut": plain(returned.sampled_token_ids)}
            case AddRequest(request):
                self.requests.append(to_vllm_request(request, self._hasher))
                return self.scheduler.add_request(self.requests[-1])
            case FinishRequests(request_ids, status):
                ids = None if request_ids is None else [*request_ids, "nobody"]
                ended = self.scheduler.finish_requests(ids, VllmRequestStatus[status.name])
                return [request.request_id for request in ended]
            case SetPauseState(pause_state):
                return self.scheduler.set_pause_state(VllmPauseState[pause_state.name])
            case ResetPrefixCache(reset_running_requests):
                return self.scheduler.reset_prefix_cache(reset_running_requests=reset_running_requests)
        raise NotImplementedError(event)

    def view(self) -> Any:
        """Give all that can be seen: the answers to questions, the inside, and the requests."""
        scheduler = self.scheduler
        requests = [request_to_plain(request) for request in self.requests]
        # One that has ended is looked at once more, and then it is nobody's business.
        self.requests = [request for request in self.requests if request.request_id in scheduler.requests]
        return {
            "requests": requests,
            "counts": scheduler.get_request_counts(),
            "unfinished": scheduler.get_num_unfinished_requests(),
            "has_requests": scheduler.has_requests(),
            "has_finished": scheduler.has_finished_requests(),
            "usage": scheduler.get_kv_cache_usage(),
            "published": plain(self.published[-1:]),
            "inside": scheduler_to_plain(scheduler),
        }


_PLAIN = {type(None), bool, int, float, str}


def plain(value: Any) -> Any:  # noqa: PLR0911  one line per kind of value
    """Write down all of a value; of a time only that there is one."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple | ConstantList):
        return list(value) if set(map(type, value)) <= _PLAIN else [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "__struct_fields__"):
        times = {"timestamp"}
        return {
            name: "(a time)" if name in times else plain(getattr(value, name))
            for name in value.__struct_fields__
        }
    if isinstance(value, Mapping):
        return [[key, plain(item)] for key, item in value.items()]
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value))
    return value.hex() if isinstance(value, bytes) else value


def request_to_plain(request: VllmRequest) -> Any:
    """Write down all attributes of a request but its hasher, which is shared."""
    hidden = {"_block_hasher", "_kvsched_fp_holder"}
    return {name: plain(value) for name, value in vars(request).items() if name not in hidden}


def build_pair(
    config: SchedulerConfig, kind: type = OracleScheduler, **options: Any
) -> tuple[Driver, Driver]:
    """Build the real scheduler and one of class `kind`, from the same configuration of vLLM's."""
    real = build_scheduler(config)
    return Driver(real, config), Driver(build_like(real, kind, **options), config)


def build_like(real: Scheduler, kind: type, **options: Any) -> Any:
    """Build a scheduler of class `kind` from what `real` was built from."""
    made = kind(
        vllm_config=real.vllm_config,
        kv_cache_config=real.kv_cache_config,
        structured_output_manager=real.structured_output_manager,
        block_size=real.block_size,
        hash_block_size=real.hash_block_size,
        include_finished_set=real.finished_req_ids_dict is not None,
        log_stats=real.log_stats,
        **options,
    )
    made.num_lookahead_tokens = real.num_lookahead_tokens
    return made


def draw_events(seed: int, observed: Any) -> Iterator[tuple[SchedulerState, Event]]:
    """Give the events of a random history, each with the state before; `observed` has the state of now."""
    history = History(Random(seed), observed.state)
    for event in history.events():
        yield observed.state, event
        history.observe(observed.state)


def play(seed: int, kind: type = OracleScheduler) -> Difference | None:
    """Play a random history against the real scheduler and one of class `kind`; give the difference."""
    config = draw_config(Random(seed), VllmBlockHasher())
    real, other = build_pair(config, kind)
    for index, (before, event) in enumerate(draw_events(seed, other.scheduler)):
        try:
            expected = real.apply(event)
        except AssertionError as error:
            if is_known_crash(before, event, f"AssertionError: {error}", _refusal(other, event)):
                return None
            raise
        actual = other.apply(event)
        left, right = {"answer": expected, "view": real.view()}, {"answer": actual, "view": other.view()}
        # Almost always they are equal, and comparing two texts is the fastest way to know.
        difference = None if repr(left) == repr(right) else first_difference(left, right, f"[{index}]")
        if difference is not None:
            return difference
    return None


def _refusal(other: Driver, event: Event) -> str:
    """Say what the other side raises at an event that makes the real scheduler fail."""
    try:
        other.apply(event)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fresh_state(real: Scheduler) -> SchedulerState:
    """Give the state that a scheduler of ours starts with in the place of `real`."""
    config = to_scheduler_config(real.vllm_config, real.kv_cache_config, block_size=real.block_size)
    return initial_state(config)
