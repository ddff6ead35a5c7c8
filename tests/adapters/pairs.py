"""The real scheduler and another one behind the same interface, fed with equal requests and results.

Importing this module imports vLLM.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any
from unittest import mock

import attrs
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.utils import ConstantList

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SchedulerConfig,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.adapters.vllm import OracleScheduler
from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.driving.build import build_scheduler
from kvsched_fp.adapters.vllm.driving.calls import reset_prefix_cache, to_vllm_drafts
from kvsched_fp.adapters.vllm.driving.clock import Clock
from kvsched_fp.adapters.vllm.driving.requests import (
    VllmGrammar,
    make_request_hasher,
    to_model_runner_output,
    to_vllm_request,
)
from kvsched_fp.errors import KvschedError
from kvsched_fp.grammar import GrammarError
from kvsched_fp.machine import step
from kvsched_fp.state import SchedulerState, initial_state
from tests.conformance.compare import Difference, first_difference
from tests.conformance.histories import History
from tests.conformance.kinds import Kind
from tests.conformance.known_crashes import is_known_crash
from tests.conformance.random_configs import OutputShape
from tests.conformance.vllm_hasher import VllmBlockHasher
from tests.conformance.vllm_view import scheduler_to_plain

CLOCK = Clock()
"""What all drivers' schedulers look at, set to the time of the event."""


def _with_stranger(drafts: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Put drafts for somebody who is gone before them: a drafter may be behind the scheduler."""
    return {"nobody": (1,), **drafts}


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

    def apply(self, event: Event) -> Any:  # noqa: PLR0911  one return per event
        """Let `event` happen; give what the scheduler answers, all fields of it."""
        CLOCK.now = getattr(event, "time", 0.0)
        match event:
            case Schedule(throttle_prefills):
                output = self.scheduler.schedule(throttle_prefills=throttle_prefills)
                self._in_flight.append(output)
                return plain(output)
            case Update(result):
                output = self._in_flight.popleft()
                returned = to_model_runner_output(
                    output.num_scheduled_tokens, result.sampled_token_ids, result.pooled_request_ids
                )
                told = self.scheduler.update_from_output(output, returned)
                return {"told": plain(told), "cut": plain(returned.sampled_token_ids)}
            case UpdateDrafts(draft_token_ids):
                return self.scheduler.update_draft_token_ids(
                    to_vllm_drafts(_with_stranger(draft_token_ids))
                )
            case UpdateDraftsInFlight(step_id, draft_token_ids):
                index = step_id - 1 - self.scheduler.current_step
                output = self._in_flight[index]
                drafts = to_vllm_drafts(_with_stranger(draft_token_ids))
                self.scheduler.update_draft_token_ids_in_output(drafts, output)
                return plain(output)
            case GrammarReady(request_id, grammar):
                self._structured(request_id).grammar = VllmGrammar(grammar)
                return None
            case GrammarFailed(request_id, message):
                self._structured(request_id).grammar = ValueError(message)
                return None
            case AddRequest(request):
                made = to_vllm_request(request, self._hasher)
                if request.request_id not in self.scheduler.requests:
                    self.requests.append(made)
                return self.scheduler.add_request(made)
            case FinishRequests(request_ids, status):
                ids = None if request_ids is None else [*request_ids, "nobody"]
                ended = self.scheduler.finish_requests(ids, VllmRequestStatus[status.name])
                return [request.request_id for request in ended]
            case SetPauseState(pause_state):
                return self.scheduler.set_pause_state(VllmPauseState[pause_state.name])
            case ResetPrefixCache(reset_running_requests):
                return reset_prefix_cache(self.scheduler, reset_running_requests=reset_running_requests)
        raise NotImplementedError(event)

    def _structured(self, request_id: str) -> Any:
        return self.scheduler.requests[request_id].structured_output_request

    def _grammar_rows(self) -> Any:
        """Give the rows of the steps in flight that need a mask; the mask itself is the manager's."""
        with mock.patch.object(StructuredOutputManager, "grammar_bitmask", return_value=None):
            return plain([self.scheduler.get_grammar_bitmask(output) for output in self._in_flight])

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
            "grammar_rows": self._grammar_rows(),
            "inside": scheduler_to_plain(scheduler),
        }


_PLAIN = {type(None), bool, int, float, str}


def plain(value: Any) -> Any:  # noqa: PLR0911  one line per kind of value
    """Write down all of a value; of a time only that there is one."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, VllmGrammar | Exception):
        return repr(vars(value) or value)
    if isinstance(value, list | tuple | deque | ConstantList):
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
    for name in ("num_lookahead_tokens", "requires_kv_delivery"):
        if getattr(made, name) != getattr(real, name):
            setattr(made, name, getattr(real, name))
    return made


def draw_events(
    seed: int, observed: Any, features: frozenset[str] = frozenset(), own_rng: Random | None = None
) -> Iterator[tuple[SchedulerState, Event]]:
    """Give the events of a random history, each with the state before; `observed` has the state of now."""
    history = History(Random(seed), observed.state, features, own_rng)
    for event in history.events():
        yield observed.state, event
        history.observe(_with_automatons(observed))


def _with_automatons(observed: Any) -> SchedulerState:
    """Give the state of now with the grammars that the history handed in, behind whatever they are."""
    state: SchedulerState = observed.state
    for request_id, progress in state.progress.items():
        request = observed.requests.get(request_id)
        structured = None if request is None else request.structured_output_request
        if structured is None or structured.grammar is None:
            continue
        answer = structured.grammar
        known = GrammarError(str(answer)) if isinstance(answer, Exception) else answer.value
        seen = attrs.evolve(progress, grammar=known)
        state = attrs.evolve(state, progress=state.progress.set(request_id, seen))
    return state


def draw_world(
    seed: int, shape: OutputShape = "both", *, with_all_features: bool = False
) -> tuple[SchedulerConfig, frozenset[str], Random]:
    """Draw a configuration, what its engine does besides, and the random numbers for that."""
    drawn = Kind(shape, with_all_features).draw(seed, VllmBlockHasher())
    config = drawn.config
    if not with_all_features:
        config = attrs.evolve(config, log_request_events=config.log_stats)
    return config, drawn.features, drawn.features_rng


def play(
    seed: int,
    kind: type = OracleScheduler,
    shape: OutputShape = "both",
    *,
    with_all_features: bool = False,
    **options: Any,
) -> Difference | None:
    """Play a random history against the real scheduler and one of class `kind`; give the difference."""
    config, features, own_rng = draw_world(seed, shape, with_all_features=with_all_features)
    real, other = build_pair(config, kind, **options)
    for index, (before, event) in enumerate(draw_events(seed, other.scheduler, features, own_rng)):
        try:
            expected = real.apply(event)
        except (AssertionError, AttributeError, IndexError) as error:
            raised = f"{type(error).__name__}: {error}"
            if is_known_crash(before, event, raised, _refusal(other, before, event)):
                return None
            raise
        actual = other.apply(event)
        left, right = {"answer": expected, "view": real.view()}, {"answer": actual, "view": other.view()}
        # Almost always they are equal, and comparing two texts is the fastest way to know.
        difference = None if repr(left) == repr(right) else first_difference(left, right, f"[{index}]")
        if difference is not None:
            return difference
    return None


def _refusal(other: Driver, before: SchedulerState, event: Event) -> str:
    """Say what the other side, or the machine beside it, raises at what makes the real scheduler fail."""
    try:
        other.apply(event)
    except KvschedError as error:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the other side is a real scheduler, too
        return refusal(before, event)
    return ""


def raises_as_known(before: SchedulerState, event: Event, error: Exception) -> bool:
    """Tell whether the real scheduler raises where it is known to give up."""
    raised = f"{type(error).__name__}: {error}"
    return is_known_crash(before, event, raised, refusal(before, event)) is not None


def refusal(before: SchedulerState, event: Event) -> str:
    """Say what the machine raises at an event."""
    try:
        step(before, event)
    except KvschedError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fresh_state(real: Scheduler) -> SchedulerState:
    """Give the state that a scheduler of ours starts with in the place of `real`."""
    config = to_scheduler_config(real.vllm_config, real.kv_cache_config, block_size=real.block_size)
    return initial_state(config)
