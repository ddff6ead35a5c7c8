"""`OracleScheduler`: vLLM's scheduler interface over the pure state machine.

Behind it is one `SchedulerState`, replaced on every call. What goes out is vLLM's own, and the `Request`
objects that came in show the same attributes as with the real scheduler.

    vllm serve MODEL --scheduler-cls kvsched_fp.adapters.vllm.OracleScheduler

It schedules asynchronously, with drafts, diffusion and so on as the configuration says: one class does for
what are four in vLLM. A call that fails leaves everything as it was.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import attrs
from vllm.config import VllmConfig
from vllm.distributed.kv_events import EventPublisherFactory
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState as VllmPauseState
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.stats import SchedulerStats as VllmSchedulerStats
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.request import StreamingUpdate

from kvsched_fp.adapters.vllm import mirror
from kvsched_fp.adapters.vllm.assignments import (
    CONFIG_FIELDS,
    STATE_FIELDS,
    assign_config,
    follow_scheduler_config,
    reassign_request,
)
from kvsched_fp.adapters.vllm.config import as_scheduled, to_scheduler_config
from kvsched_fp.adapters.vllm.feeding import (
    add_vllm_request,
    oldest_step_id,
    step_id_of,
    touched_by_step,
)
from kvsched_fp.adapters.vllm.grammars import BackendGrammar, refuse_reasoning, to_grammar
from kvsched_fp.adapters.vllm.held import hold, let_go
from kvsched_fp.adapters.vllm.kv_views import KVCacheManagerView
from kvsched_fp.adapters.vllm.outputs import to_kv_event_batch, to_scheduler_stats, to_vllm_output
from kvsched_fp.adapters.vllm.requests import to_drafts, to_request, to_sampling_params, to_step_result
from kvsched_fp.adapters.vllm.shown import Shown, refuse_assignment
from kvsched_fp.adapters.vllm.telling import Answer
from kvsched_fp.adapters.vllm.views import EmptyEncoderCache
from kvsched_fp.bitmask import grammar_rows
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.drafting import update_drafts, update_drafts_in_flight
from kvsched_fp.errors import InvalidConfig, InvalidEvent
from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.lifecycle import (
    fail_grammar,
    finish_requests,
    reset_prefix_cache,
    set_grammar,
    set_pause_state,
)
from kvsched_fp.outputs import PrefixCacheStats, SchedulerOutput, SchedulerStats
from kvsched_fp.request import RequestStatus
from kvsched_fp.schedule import schedule
from kvsched_fp.state import (
    SchedulerState,
    initial_state,
    num_unfinished_requests,
    num_waiting_requests,
)


class OracleScheduler(Shown):
    """The pure machine in the place of vLLM's scheduler."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,  # noqa: ARG002  the interface has it
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        config = self._read_config(
            vllm_config,
            kv_cache_config,
            block_size=block_size,
            hash_block_size=hash_block_size,
            include_finished_set=include_finished_set,
            log_stats=log_stats,
        )
        publisher = EventPublisherFactory.create(
            vllm_config.kv_events_config, vllm_config.parallel_config.data_parallel_index
        )
        self.__dict__.update(
            _state=initial_state(config),
            _requests={},
            _in_flight=deque[VllmSchedulerOutput](),
            _without_grammar=dict[str, None](),
            _max_num_running=config.max_num_seqs,
            vllm_config=vllm_config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=structured_output_manager,
            kv_event_publisher=publisher,
            encoder_cache_manager=EmptyEncoderCache(),
        )
        self.__dict__["kv_cache_manager"] = KVCacheManagerView(self, kv_cache_config)

    def _read_config(self, *arguments: Any, **named: Any) -> SchedulerConfig:
        return to_scheduler_config(*arguments, **named)

    # What may be assigned.

    def __setattr__(self, name: str, value: Any) -> None:
        state = self._state
        if name in CONFIG_FIELDS:
            self.__dict__["_state"] = attrs.evolve(state, config=assign_config(state.config, name, value))
        elif name in STATE_FIELDS:
            self.__dict__["_state"] = attrs.evolve(state, **{name: value})
        elif name == "max_num_running_reqs":
            if type(value) is not int or value < 1:
                raise InvalidConfig(name, value, "an integer >= 1")
            self.__dict__["_max_num_running"] = value
        else:
            refuse_assignment(name, value)
            self.__dict__[name] = value

    @property
    def max_num_running_reqs(self) -> int:
        """The rows of the model runner; `max_num_active_reqs` is what limits admission."""
        return self._max_num_running  # type: ignore[no-any-return]

    def reassign(self, request: VllmRequest, name: str, value: Any) -> None:
        """Let an assignment to a held request take effect, or refuse it."""
        self._replace(reassign_request(self._state, request, name, value))

    def _replace(self, state: SchedulerState) -> None:
        self.__dict__["_state"] = state

    # Steps.

    def schedule(self, throttle_prefills: bool = False) -> VllmSchedulerOutput:
        """Plan the next step."""
        timestamp = time.monotonic()
        self._take_grammars()
        before = self._state
        config = follow_scheduler_config(before.config, self.vllm_config.scheduler_config)
        if config is not before.config:
            before = attrs.evolve(before, config=config)
        after, output = schedule(before, throttle_prefills=throttle_prefills, time=timestamp)
        if len(after.running) > self.max_num_running_reqs:
            raise InvalidConfig(
                "max_num_running_reqs",
                self.max_num_running_reqs,
                f"at least the {len(after.running)} requests that max_num_active_reqs = "
                f"{self.max_num_active_reqs} lets run",
            )
        made = to_vllm_output(output, self._requests)
        self._replace(after)
        self._in_flight.append(made)
        self._show_step(before, output)
        return made

    def _show_step(self, before: SchedulerState, output: SchedulerOutput) -> None:
        """Show on the requests what the step did to them."""
        after = self._state
        for request_id in touched_by_step(before, after, output):
            was, now = before.progress[request_id], after.progress[request_id]
            if now is was:
                continue
            request = self._requests[request_id]
            mirror.write_progress(request, was, now)
            if now.block_hashes is not was.block_hashes:
                mirror.write_hashes(request, now)

    def _take_grammars(self) -> None:
        """Take over the grammars that have been compiled, and the errors of those that cannot be."""
        for request_id in tuple(self._without_grammar):
            request = self._requests[request_id]
            grammar = request.structured_output_request.grammar
            if grammar is None:
                continue
            if isinstance(grammar, Exception):
                self._replace(fail_grammar(self._state, RequestId(request_id), str(grammar)))
            else:
                made = to_grammar(request, self.structured_output_manager)
                self._replace(set_grammar(self._state, RequestId(request_id), made))
            del self._without_grammar[request_id]

    def get_grammar_bitmask(self, scheduler_output: VllmSchedulerOutput) -> GrammarOutput | None:
        """Give the masks for the rows of a step in flight that sample under a grammar."""
        if not scheduler_output.has_structured_output_requests:
            return None
        state = self._state
        step_id = step_id_of(self._in_flight, scheduler_output, state.current_step)
        rows = grammar_rows(state, _output_of(state, step_id))
        if rows is None:
            return None
        request_ids = list(rows.request_ids)
        for request_id in request_ids:
            grammar = state.progress[request_id].grammar
            if isinstance(grammar, BackendGrammar):
                grammar.settle()
        bitmask = self.structured_output_manager.grammar_bitmask(
            self._requests, request_ids, scheduler_output.scheduled_spec_decode_tokens
        )
        return GrammarOutput(request_ids, bitmask, list(rows.num_acceptable_drafts))

    def update_from_output(
        self, scheduler_output: VllmSchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Take in what the model runner returned for the oldest step in flight."""
        timestamp = time.monotonic()
        self._take_grammars()
        self._follow_sampling_params(scheduler_output.num_scheduled_tokens)
        before = self._state
        step_id = oldest_step_id(self._in_flight, scheduler_output, before.current_step)
        batch = before.in_flight[0].num_scheduled_tokens
        result = to_step_result(step_id, batch, model_runner_output, before.requests)
        answer = Answer(before, result, timestamp)
        self._replace(answer.after)
        self._in_flight.popleft()
        told = answer.tell(self._requests, model_runner_output)
        for request_id in answer.show(self._requests):
            self._let_go(request_id)
        if answer.after.emitted.kv_events:
            batch_of_events = to_kv_event_batch(answer.after.emitted.kv_events, self.kv_cache_config)
            self.kv_event_publisher.publish(batch_of_events)
        return told

    def _follow_sampling_params(self, request_ids: Iterable[str]) -> None:
        """Take over what was changed inside the sampling parameters of requests, which updates read."""
        for request_id in request_ids:
            request = self._requests.get(RequestId(request_id))
            asked = self._state.requests.get(RequestId(request_id))
            if request is None or asked is None or to_sampling_params(request) == asked.sampling_params:
                continue
            self._replace(
                reassign_request(self._state, request, "sampling_params", request.sampling_params)
            )

    def _let_go(self, request_id: str) -> VllmRequest:
        request = self._requests.pop(request_id)
        self._without_grammar.pop(request_id, None)
        let_go(request)
        return request

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Take in drafts for the next step of each request; those for requests that ended are dropped."""
        self._take_grammars()
        before = self._state
        drafts = to_drafts(draft_token_ids, before.requests)
        after = update_drafts(before, drafts)
        self._replace(after)
        for request_id in drafts:
            was, now = before.progress[request_id], after.progress[request_id]
            mirror.write_progress(self._requests[request_id], was, now)

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: VllmSchedulerOutput
    ) -> None:
        """Take in the drafts of a step in flight; those for requests that ended are dropped."""
        self._take_grammars()
        state = self._state
        step_id = step_id_of(self._in_flight, scheduler_output, state.current_step)
        after = update_drafts_in_flight(state, step_id, to_drafts(draft_token_ids, state.requests))
        self._replace(after)
        output = _output_of(after, step_id)
        for request_id, drafts in output.scheduled_spec_token_ids.items():
            scheduler_output.scheduled_spec_decode_tokens[request_id] = list(drafts)
        scheduler_output.num_invalid_spec_tokens = dict(output.num_invalid_spec_tokens or {})

    # What comes from outside between the steps.

    def add_request(self, request: VllmRequest) -> None:
        """Let a new request in, or the next input of a session."""
        before = self._state
        asked = to_request(request, before.config)
        refuse_reasoning(request, self.structured_output_manager)
        after = add_vllm_request(before, request, asked, time.monotonic())
        self._replace(after)
        if asked.request_id in before.requests:
            self._show_chunk(before, request)
            return
        self._requests[request.request_id] = request
        mirror.write_arrival(request, after.progress[asked.request_id])
        if asked.needs_grammar:
            self._without_grammar[request.request_id] = None
        hold(request, self)

    def _show_chunk(self, before: SchedulerState, request: VllmRequest) -> None:
        """Show on a session what its next input, or its end, did to it."""
        request_id, after = RequestId(request.request_id), self._state
        chunk = StreamingUpdate.from_request(request)
        if request_id not in after.requests:
            self._let_go(request_id).status = VllmRequestStatus.FINISHED_ABORTED
        elif after.requests[request_id] is before.requests[request_id]:
            self._requests[request_id].streaming_queue.append(chunk)
        else:
            session, block_size = self._requests[request_id], after.config.block_size
            mirror.write_progress(session, before.progress[request_id], after.progress[request_id])
            mirror.write_chunk(session, chunk, after.requests[request_id], block_size)

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: VllmRequestStatus
    ) -> list[VllmRequest]:
        """End requests; ids that are not live are ignored. Gives those that were ended."""
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        wanted = self._requests if request_ids is None else set(request_ids)
        ids = [RequestId(request_id) for request_id in wanted if request_id in self._requests]
        self._replace(finish_requests(self._state, ids, _to_final_status(finished_status)))
        ended = []
        for request_id in ids:
            request = self._let_go(request_id)
            request.status = finished_status
            ended.append(request)
        return ended

    def set_pause_state(self, pause_state: VllmPauseState) -> None:
        """Pause, or go on."""
        self._replace(set_pause_state(self._state, PauseState[pause_state.name]))

    @property
    def pause_state(self) -> VllmPauseState:
        """How much may be scheduled."""
        return VllmPauseState[self._state.pause_state.name]

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks; tell whether it was done."""
        timestamp = time.monotonic()
        before = self._state
        after, done = reset_prefix_cache(
            before, reset_running_requests=reset_running_requests, time=timestamp
        )
        self._replace(after)
        if reset_running_requests:
            for request_id in reversed(before.running):
                request = self._requests[request_id]
                mirror.write_progress(request, before.progress[request_id], after.progress[request_id])
        return done and (not reset_connector or self.reset_connector_cache())

    def reset_connector_cache(self) -> bool:
        """Forget what a connector caches: there is none, so that is done."""
        return True

    def reset_encoder_cache(self) -> None:
        """Forget encoder outputs: there are none."""

    # Questions.

    def has_request(self, request_id: str) -> bool:
        """Tell whether a request is live."""
        return request_id in self._requests

    def get_num_unfinished_requests(self) -> int:
        """Count the requests that may still be scheduled, as long as the pause lasts."""
        return num_unfinished_requests(self._state)

    def has_finished_requests(self) -> bool:
        """Tell whether the model runner is still to be told of requests that ended."""
        return bool(self._state.finished_request_ids)

    def get_request_counts(self) -> tuple[int, int]:
        """Count what runs and what waits."""
        return len(self._state.running), num_waiting_requests(self._state)

    def get_kv_cache_usage(self) -> float:
        """Give the share of the usable blocks that is not free."""
        return self._state.kv.pool.usage

    def make_stats(self, *_: Any, **__: Any) -> VllmSchedulerStats | None:
        """Give the figures of now, and begin to count look-ups anew."""
        state = self._state
        if not state.config.log_stats:
            return None
        num_deferred = len(state.deferred)
        stats = SchedulerStats(
            num_running_requests=len(state.running),
            num_waiting_requests=num_waiting_requests(state) - num_deferred,
            num_skipped_waiting_requests=num_deferred,
            kv_cache_usage=state.kv.pool.usage,
            prefix_cache_stats=state.kv.prefix_cache_stats,
        )
        kv = attrs.evolve(state.kv, prefix_cache_stats=PrefixCacheStats())
        self._replace(attrs.evolve(state, kv=kv))
        return to_scheduler_stats(stats)

    def shutdown(self) -> None:
        """Let the publisher of events go."""
        if self.kv_event_publisher:
            self.kv_event_publisher.shutdown()

    def get_kv_event_publisher_config(self) -> Any:
        """Give the configuration of the publisher of events."""
        return self.kv_event_publisher.get_publisher_config()


def _output_of(state: SchedulerState, step_id: StepId) -> SchedulerOutput:
    """Give a step that is in flight."""
    return next(output for output in state.in_flight if output.step_id == step_id)


def _to_final_status(status: VllmRequestStatus) -> RequestStatus:
    if not VllmRequestStatus.is_finished(status):
        raise InvalidEvent("finished_status", status, "a final status (FINISHED_...)")
    return RequestStatus[status.name]


class AsyncOracleScheduler(OracleScheduler):
    """The one that schedules asynchronously, whatever the configuration says; vLLM has such a class."""

    def _read_config(self, *arguments: Any, **named: Any) -> SchedulerConfig:
        return as_scheduled(super()._read_config(*arguments, **named), is_async=True)
