"""`VllmAdapter`: any class behind vLLM's `SchedulerInterface` as a scheduler under test.

    from kvsched_fp.adapters.vllm.driving import VllmAdapter
    from kvsched_fp.testing import scheduler_machine
    TestMyScheduler = scheduler_machine(VllmAdapter(MyScheduler)).TestCase

The scheduler is built as the engine builds it, and gets the requests, the results and the calls that an
engine makes. Blocks are named by the configuration's own hash function. KV events are read where the
scheduler publishes them, at its `kv_event_publisher`.
"""

import types
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import attrs
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.adapters.vllm.driving.build import build_scheduler, reference_class
from kvsched_fp.adapters.vllm.driving.calls import (
    reset_prefix_cache,
    to_vllm_drafts,
    update_from_output,
)
from kvsched_fp.adapters.vllm.driving.clock import Clock
from kvsched_fp.adapters.vllm.driving.hasher import make_named_hasher
from kvsched_fp.adapters.vllm.driving.requests import VllmGrammar, to_model_runner_output, to_vllm_request
from kvsched_fp.adapters.vllm.pairings import first_unmodelled
from kvsched_fp.adapters.vllm.recorded import read_told
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidConfig, UnsupportedFeature
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.request import Request
from kvsched_fp.testing.adapter import Adapter
from kvsched_fp.testing.features import EVERYTHING, Feature, features_named
from kvsched_fp.trace.codec import Told

Kind: TypeAlias = type[Any] | Callable[[SchedulerConfig], type[Any]]
"""A class of schedulers, or what chooses one for a configuration."""

OF_EVERY_CLASS = EVERYTHING - {Feature.ASYNC, Feature.DIFFUSION}
"""What one class can be tested for: steps ahead, and diffusion, have classes of their own."""


class VllmAdapter(Adapter):
    """A scheduler class for vLLM 0.33.0, or a function that gives one for a configuration."""

    def __init__(
        self,
        kind: Kind = reference_class,
        *,
        features: Collection[Feature | str] | None = None,
        compare_state: bool = False,
    ) -> None:
        """`features` are those of the class if not given; a function is taken to know all of them.

        A subclass of `AsyncScheduler` is always driven with asynchronous scheduling. `compare_state`
        compares queues, counters and free blocks after every event, too, of a subclass of `Scheduler`.
        Raises `InvalidConfig` for a class that is no scheduler, and for features that are none.
        """
        if isinstance(kind, type) or not callable(kind):
            _check_kind(kind)
        self._kind = kind
        self._is_async = isinstance(kind, type) and issubclass(kind, AsyncScheduler)
        self._compares_state = compare_state
        self.name = getattr(kind, "__name__", type(kind).__name__)
        if features is None:
            features = OF_EVERY_CLASS if isinstance(kind, type) else EVERYTHING
        always = {Feature.ASYNC} if self._is_async else set()
        self.features = features_named(features) | always
        self._clock = Clock()

    def adapt_config(self, config: SchedulerConfig) -> SchedulerConfig:
        """Switch on what the class always does; vLLM tells the events of requests with the figures."""
        return attrs.evolve(
            config,
            async_scheduling=config.async_scheduling or self._is_async,
            log_request_events=config.log_request_events and config.log_stats,
        )

    def start(self, config: SchedulerConfig) -> None:
        """Build a scheduler."""
        kind = self._kind if isinstance(self._kind, type) else self._kind(config)
        _check_kind(kind)
        self._clock.now = 0.0
        self._clock.reach(kind)
        with self._clock.shown():
            self.scheduler: Any = build_scheduler(config, kind)
        self._config = config
        self._hasher = make_named_hasher(config)
        self._in_flight: deque[tuple[int, Any]] = deque()
        self._num_steps = 0
        self._requests: dict[str, Any] = {}
        self._published: list[Any] = []
        self.scheduler.kv_event_publisher = types.SimpleNamespace(
            publish=lambda batch: self._published.extend(batch.events), shutdown=lambda: None
        )

    def happen(self, event: Event) -> Told:
        """Make the call of the event, and read what it gave."""
        self._clock.now = getattr(event, "time", 0.0)
        with self._clock.shown():
            answer = self._call(event)
        if isinstance(event, Schedule) and (unmodelled := first_unmodelled(answer)) is not None:
            name, value = unmodelled
            raise UnsupportedFeature(f"SchedulerOutput.{name}", repr(value))
        if isinstance(event, Update) and not self._config.log_request_events:
            _forget_events(answer)
        published, self._published = self._published, []
        return read_told(event, answer, published, self._num_steps, runs_on=False)

    def _call(self, event: Event) -> Any:  # noqa: PLR0911  one case per event
        match event:
            case Schedule(throttle_prefills):
                output = self.scheduler.schedule(throttle_prefills=throttle_prefills)
                self._num_steps += 1
                self._in_flight.append((self._num_steps, output))
                return output
            case Update(result):
                _, output = self._in_flight.popleft()
                returned = to_model_runner_output(
                    output.num_scheduled_tokens, result.sampled_token_ids, result.pooled_request_ids
                )
                return update_from_output(self.scheduler, output, returned)
            case AddRequest(request):
                return self.scheduler.add_request(self._to_vllm(request))
            case FinishRequests(request_ids, status):
                return self._finish(request_ids, VllmRequestStatus[status.name])
            case UpdateDrafts(draft_token_ids):
                return self.scheduler.update_draft_token_ids(to_vllm_drafts(draft_token_ids))
            case UpdateDraftsInFlight(step_id, draft_token_ids):
                output = dict(self._in_flight)[step_id]
                return self.scheduler.update_draft_token_ids_in_output(
                    to_vllm_drafts(draft_token_ids), output
                )
            case GrammarReady(request_id, grammar):
                self._requests[request_id].structured_output_request.grammar = VllmGrammar(grammar)
                return None
            case GrammarFailed(request_id, message):
                self._requests[request_id].structured_output_request.grammar = ValueError(message)
                return None
            case SetPauseState(pause_state):
                return self.scheduler.set_pause_state(VllmPauseState[pause_state.name])
            case ResetPrefixCache(reset_running_requests):
                return reset_prefix_cache(self.scheduler, reset_running_requests=reset_running_requests)

    def _to_vllm(self, request: Request) -> Any:
        made = to_vllm_request(request, self._hasher)
        live = self._requests.get(request.request_id)
        if live is None or not live.resumable or live.is_finished():
            self._requests[request.request_id] = made  # else it is the next input of a session
        return made

    def _finish(self, request_ids: tuple[str, ...] | None, status: VllmRequestStatus) -> None:
        if request_ids is None:
            self.scheduler.finish_requests(None, status)
            return
        # Several at once go through a set, whose order changes with the hash seed of the process.
        for request_id in request_ids:
            self.scheduler.finish_requests([request_id], status)

    def view(self) -> Mapping[str, object] | None:
        """Give queues, counters and blocks, if they are to be compared and are there."""
        return self._view() if self._compares_state and isinstance(self.scheduler, Scheduler) else None

    def _view(self) -> Mapping[str, object]:
        scheduler = self.scheduler
        requests = scheduler.requests
        manager = scheduler.kv_cache_manager
        return {
            "running": [request.request_id for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting],
            "kv_holding_waiting": [request.request_id for request in scheduler.kv_holding_waiting],
            "num_computed_tokens": {
                name: request.num_computed_tokens for name, request in requests.items()
            },
            "num_output_placeholders": {
                name: request.num_output_placeholders for name, request in requests.items()
            },
            "block_ids": {
                name: [list(block_ids) for block_ids in manager.get_block_ids(name)]
                if manager.coordinator.get_blocks(name)[0]
                else []
                for name in requests
            },
            "free_block_ids": [
                block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()
            ],
        }

    def stop(self) -> None:
        """Let the scheduler go."""
        self.scheduler = None


def _check_kind(kind: object) -> None:
    """Refuse what is no class of schedulers that can be built."""
    if not isinstance(kind, type) or not issubclass(kind, SchedulerInterface):
        allowed = "a subclass of vLLM's SchedulerInterface, or a function of a configuration that gives one"
        raise InvalidConfig("kind", kind, allowed)
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise InvalidConfig(
            "kind", kind, f"a class without abstract methods; it lacks {', '.join(missing)}"
        )


def _forget_events(clients: Mapping[int, Any]) -> None:
    """Take the events of requests out: vLLM tells them with the figures, and ours may not be asked to."""
    for told in clients.values():
        for output in told.outputs:
            output.events = None
