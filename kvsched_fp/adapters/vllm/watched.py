"""The real scheduler, with somebody who is told of every call and of what came of it.

`shadow.py` and `recording.py` say who. A call is told as an event of ours, after it was made; what the real
scheduler answers goes out untouched.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

from vllm.config import VllmConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.diffusion_scheduler import DiffusionScheduler
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.request import StreamingUpdate

from kvsched_fp.adapters.vllm.config import as_scheduled, to_scheduler_config
from kvsched_fp.adapters.vllm.ending import end_as_found
from kvsched_fp.adapters.vllm.feeding import oldest_step_id, step_id_of
from kvsched_fp.adapters.vllm.requests import to_drafts, to_step_result
from kvsched_fp.adapters.vllm.taps import ManagerTap, PublisherTap
from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import UnsupportedFeature
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import PermissiveGrammar
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.request import Request, RequestStatus


class Watcher(Protocol):
    """Whoever is told."""

    @property
    def is_watching(self) -> bool:
        """Whether calls are still told."""
        ...

    def before_call(self) -> None:
        """Look at what was assigned on the real scheduler since the last call."""
        ...

    def read_request(self, request: VllmRequest) -> Request:
        """Read a request that is about to be added, or refuse it by an error."""
        ...

    def take(self, event: Event, answer: Any = None, kv_events: tuple[Any, ...] = ()) -> None:
        """Take in a call, what the real scheduler answered, and the KV events that it published."""
        ...

    def take_look_ups(self, stats: Any) -> None:
        """Take in that somebody asked the real scheduler for its figures between two steps."""
        ...

    def take_rejections(self, request_ids: Iterable[RequestId]) -> None:
        """Hear whose tokens their grammars did not allow in the update that is told next."""
        ...

    def take_rows(self, step_id: StepId, rows: GrammarOutput | None) -> None:
        """Take in which rows of a step need a mask, as the real scheduler says."""
        ...

    def close(self) -> None:
        """Finish the files."""
        ...


class WatchedScheduler(Scheduler):  # type: ignore[misc]  # untyped where vLLM is missing
    """The real scheduler, and its watcher.

    vLLM has four: two that schedule asynchronously, two for diffusion. A class that sets `KINDS` makes the
    one that the configuration asks for. Raises `UnsupportedFeature` for a configuration that is not
    modelled; so do the calls that bring something which is not.
    """

    KINDS: tuple[type, ...] = ()
    """The class itself, and its twins."""

    def __new__(cls, vllm_config: VllmConfig, *_: Any, **__: Any) -> Self:
        """Choose among the twins."""
        kind: Any = super()
        return kind.__new__(_choose(cls, vllm_config))  # type: ignore[no-any-return]

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        config = to_scheduler_config(
            vllm_config,
            kv_cache_config,
            block_size=block_size,
            hash_block_size=hash_block_size,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        config = as_scheduled(config, is_async=isinstance(self, AsyncScheduler))
        if (config.runner_type is RunnerType.DIFFUSION) is not isinstance(self, DiffusionScheduler):
            raise UnsupportedFeature(f"{config.runner_type.value} models", type(self).__name__)
        super().__init__(
            vllm_config=vllm_config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=structured_output_manager,
            block_size=block_size,
            hash_block_size=hash_block_size,
            mm_registry=mm_registry,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        self.kv_event_publisher: Any
        self.structured_output_manager: Any
        self._answers_due: deque[VllmSchedulerOutput] = deque()
        self._without_grammar: dict[str, VllmRequest] = {}
        self._with_grammar: set[str] = set()
        self._is_inside = False
        self._error_order: tuple[str, ...] = ()
        self._time: float | None = None
        self._watcher: Watcher = self._make_watcher(config)

    def _make_watcher(self, config: SchedulerConfig) -> Watcher:
        """Make the watcher, once the real scheduler is there."""
        raise NotImplementedError

    # One call of the real scheduler.

    @contextmanager
    def _inside(self) -> Iterator[ManagerTap]:
        """Let the real scheduler work, whose own calls are no events; give what it asks of grammars."""
        manager = self.structured_output_manager
        tap = ManagerTap(manager)
        self._is_inside, self._time = True, None
        self._with_grammar &= self.requests.keys()
        if self._with_grammar:  # the real scheduler asks for every row, and only theirs are of interest
            self.structured_output_manager = tap
        try:
            yield tap
        finally:
            self._is_inside, self.structured_output_manager = False, manager

    def _note_time(self, time: float) -> None:
        """Keep the first reading of the clock that this call wrote on a request."""
        if self.log_stats and self._time is None:
            self._time = time

    @property
    def _event_time(self) -> float:
        """The time of the call, where it wrote one on a request."""
        return 0.0 if self._time is None else self._time

    def _preempt_request(
        self, request: VllmRequest, timestamp: float, drop_stale_output: bool = False
    ) -> None:
        self._note_time(timestamp)
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _update_request_as_session(self, session: VllmRequest, update: StreamingUpdate) -> None:
        super()._update_request_as_session(session, update)
        if self.log_stats:
            self._note_time(session.events[-1].timestamp)

    def _look_for_grammars(self) -> None:
        """Tell of the grammars that have been compiled since the last call, and of errors."""
        for request_id, request in tuple(self._without_grammar.items()):
            grammar = request.structured_output_request.grammar
            if self.requests.get(request_id) is not request:
                del self._without_grammar[request_id]
            elif grammar is not None:
                del self._without_grammar[request_id]
                if isinstance(grammar, Exception):
                    self._watcher.take(GrammarFailed(RequestId(request_id), str(grammar)))
                else:
                    self._watcher.take(GrammarReady(RequestId(request_id), PermissiveGrammar()))

    @contextmanager
    def _no_more_grammars(self) -> Iterator[None]:
        """Let no grammar become ready while a step is planned: nobody could tell whether it was seen."""
        waiting = [request.structured_output_request for request in self._without_grammar.values()]
        hidden = [structured._grammar for structured in waiting]
        for structured in waiting:
            structured._grammar = None
        try:
            yield
        finally:
            for structured, grammar in zip(waiting, hidden, strict=True):
                structured._grammar = grammar

    # Steps.

    def schedule(self, throttle_prefills: bool = False) -> VllmSchedulerOutput:
        """Let the real scheduler plan the next step."""
        self._watcher.before_call()
        self._look_for_grammars()
        with self._inside(), self._no_more_grammars():
            output = super().schedule(throttle_prefills)
        if self._watcher.is_watching:
            self._answers_due.append(output)
            self._note_start(output)
            self._watcher.take(Schedule(throttle_prefills, self._event_time), output)
        return output

    def _note_start(self, output: VllmSchedulerOutput) -> None:
        """Read the time off a request that was admitted, if one was."""
        started = [new.req_id for new in output.scheduled_new_reqs]
        started += output.scheduled_cached_reqs.resumed_req_ids
        if self.log_stats and started:
            self._note_time(self.requests[started[0]].events[-1].timestamp)

    def get_grammar_bitmask(self, scheduler_output: VllmSchedulerOutput) -> GrammarOutput | None:
        """Let the real scheduler say which rows need which mask."""
        self._watcher.before_call()
        rows = super().get_grammar_bitmask(scheduler_output)
        if self._watcher.is_watching and scheduler_output.has_structured_output_requests:
            step_id = step_id_of(self._answers_due, scheduler_output, self.current_step)
            self._watcher.take_rows(step_id, rows)
        return rows

    def update_from_output(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Let the real scheduler take in what the model runner returned."""
        self._watcher.before_call()
        self._look_for_grammars()
        if not self._watcher.is_watching:
            with self._inside():
                told: dict[int, EngineCoreOutputs] = super().update_from_output(
                    scheduler_output, model_runner_output
                )
            return told
        step_id = oldest_step_id(self._answers_due, scheduler_output, self.current_step)
        batch = self._answers_due[0].num_scheduled_tokens
        # Before the real one cuts the lists of tokens in place.
        result = to_step_result(step_id, batch, model_runner_output, self.requests)
        self._error_order = tuple(self.grammar_compile_error_reqs)
        with self._inside() as asked, self._published() as published:
            told = super().update_from_output(scheduler_output, model_runner_output)
        self._answers_due.popleft()
        if asked.rejected:
            self._watcher.take_rejections(asked.rejected)
        self._watcher.take(Update(result, self._event_time), told, tuple(published))
        return told

    @contextmanager
    def _published(self) -> Iterator[list[Any]]:
        """See which KV events are published."""
        publisher: Any = self.kv_event_publisher
        tap = PublisherTap(publisher)
        if self.enable_kv_cache_events:
            self.kv_event_publisher = tap
        try:
            yield tap.seen
        finally:
            self.kv_event_publisher = publisher

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Let the real scheduler keep drafts for the next step of each request."""
        self._watcher.before_call()
        self._look_for_grammars()
        # Before the real one cuts the lists in place.
        drafts = to_drafts(draft_token_ids, self.requests)
        with self._inside() as asked:
            super().update_draft_token_ids(draft_token_ids)
        if self._watcher.is_watching:
            self._watcher.take(UpdateDrafts(asked.cut(drafts)))

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: VllmSchedulerOutput
    ) -> None:
        """Let the real scheduler put drafts into a step in flight."""
        self._watcher.before_call()
        self._look_for_grammars()
        drafts = to_drafts(draft_token_ids, self.requests)
        with self._inside() as asked:
            super().update_draft_token_ids_in_output(draft_token_ids, scheduler_output)
        if self._watcher.is_watching:
            step_id = step_id_of(self._answers_due, scheduler_output, self.current_step)
            self._watcher.take(UpdateDraftsInFlight(step_id, asked.cut(drafts)), scheduler_output)

    # What comes from outside between the steps.

    def add_request(self, request: VllmRequest) -> None:
        """Let a new request in, or the next input of a session."""
        self._watcher.before_call()
        if not self._watcher.is_watching:
            with self._inside():
                super().add_request(request)
            return
        self._look_for_grammars()
        asked = self._watcher.read_request(request)
        is_new = request.request_id not in self.requests
        with self._inside():
            super().add_request(request)
        if asked.needs_grammar:
            self._with_grammar.add(request.request_id)
        if is_new and self.log_stats:
            self._note_time(request.events[-1].timestamp)
        if is_new and asked.needs_grammar:
            self._without_grammar[request.request_id] = request
        self._watcher.take(AddRequest(asked, self._event_time))

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: VllmRequestStatus
    ) -> list[VllmRequest]:
        """End requests."""
        if self._is_inside:
            return end_as_found(super().finish_requests, self._error_order, request_ids, finished_status)
        self._watcher.before_call()
        ended: list[VllmRequest] = super().finish_requests(request_ids, finished_status)
        if ended:
            ids = [RequestId(request.request_id) for request in ended]
            self._watcher.take(FinishRequests(ids, RequestStatus[finished_status.name]))
        return ended

    def set_pause_state(self, pause_state: VllmPauseState) -> None:
        """Pause, or go on."""
        self._watcher.before_call()
        super().set_pause_state(pause_state)
        self._watcher.take(SetPauseState(PauseState[pause_state.name]))

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks. Raises as the real scheduler does (deviation D-12)."""
        self._watcher.before_call()
        try:
            with self._inside():
                done: bool = super().reset_prefix_cache(reset_running_requests, reset_connector)
        except RuntimeError:
            self._watcher.take(ResetPrefixCache(reset_running_requests, self._event_time), False)
            raise
        self._watcher.take(ResetPrefixCache(reset_running_requests, self._event_time), done)
        return done

    def make_stats(self, *arguments: Any, **options: Any) -> Any:
        """Give the figures of now; the watcher is told if that is not part of an update."""
        stats = super().make_stats(*arguments, **options)
        if stats is not None and not self._is_inside:
            self._watcher.take_look_ups(stats)
        return stats

    def shutdown(self) -> None:
        """Finish the files, and let the real scheduler shut down."""
        self._watcher.close()
        super().shutdown()


def _choose(cls: type[WatchedScheduler], vllm_config: VllmConfig) -> type[WatchedScheduler]:
    """Choose the twin that the configuration asks for, if the class has any of its own."""
    is_async = bool(vllm_config.scheduler_config.async_scheduling)
    is_diffusion = bool(vllm_config.model_config.is_diffusion)
    kinds: tuple[type[WatchedScheduler], ...] = vars(cls).get("KINDS", ())
    for kind in kinds:
        made_for = issubclass(kind, AsyncScheduler), issubclass(kind, DiffusionScheduler)
        if made_for == (is_async, is_diffusion):
            return kind
    return cls
