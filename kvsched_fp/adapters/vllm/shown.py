"""What an `OracleScheduler` shows to code that looks inside, under the names of the real scheduler."""

import copy
from collections import deque
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.request_queue import SchedulingPolicy as VllmSchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.pairings import to_request_error
from kvsched_fp.adapters.vllm.views import RequestList
from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ids import RequestId
from kvsched_fp.state import SchedulerState

WITHOUT: dict[str, Any] = {
    "aux_output_connector": None,
    "connector": None,
    "connector_prefix_cache_stats": None,
    "defer_async_loads": False,
    "defer_block_free": False,
    "deferred_frees": deque[Any](),
    "deferred_loads": {},
    "ec_connector": None,
    "encoder_cache_mismatch_reqs": set[str](),
    "failed_recving_kv_req_ids": set[str](),
    "finished_recving_kv_req_ids": set[str](),
    "has_mamba_layers": False,
    "is_encoder_decoder": False,
    "kv_metrics_collector": None,
    "mamba_has_prefill_checkpoint_blocks": False,
    "mamba_partial_cache_hit": False,
    "mamba_prefill_checkpoint_alignment": None,
    "mamba_shared_prefix_checkpoint": False,
    "max_num_encoder_input_tokens": 0,
    "need_mamba_block_aligned_split": False,
    "perf_metrics": None,
    "prefix_replay_group_ids": (),
    "prefix_replay_tokens": 0,
    "processed_step_seq": 0,
    "recompute_kv_load_failures": True,
    "return_sampling_mask": False,
    "sched_step_seq": 0,
}
"""What the real scheduler shows where a feature is off that is not modelled here."""


class Shown(SchedulerInterface):  # type: ignore[misc]  # untyped where vLLM is missing
    """The part of an `OracleScheduler` that only looks; `_state` and `_requests` are the other part's."""

    _state: SchedulerState
    _requests: dict[str, VllmRequest]

    def __getattr__(self, name: str) -> Any:
        if name in FROM_STATE:
            return FROM_STATE[name](self)
        if name in WITHOUT:
            return copy.copy(WITHOUT[name])
        raise AttributeError(
            f"{type(self).__name__} has no {name}: it shows what the real scheduler holds, "
            "but not how it works"
        )

    @property
    def state(self) -> SchedulerState:
        """The state of now; keep it, compare it, branch from it."""
        return self._state

    def list_requests(self, request_ids: Iterable[RequestId]) -> RequestList:
        """Give vLLM's objects for ids of live requests."""
        return RequestList([self._requests[request_id] for request_id in request_ids])


FROM_STATE: dict[str, Callable[[Shown], Any]] = {
    "requests": lambda shown: MappingProxyType(shown._requests),
    "running": lambda shown: shown.list_requests(shown.state.running),
    "waiting": lambda shown: shown.list_requests(shown.state.waiting),
    "kv_holding_waiting": lambda shown: shown.list_requests(shown.state.kv_holding_waiting),
    "deferred_waiting": lambda shown: frozenset(shown.list_requests(shown.state.deferred)),
    "finished_req_ids": lambda shown: frozenset(shown.state.finished_request_ids),
    "finished_req_ids_dict": lambda shown: _finished_by_client(shown.state),
    "reset_preempted_req_ids": lambda shown: frozenset(shown.state.preempted_request_ids),
    "prev_step_scheduled_req_ids": lambda shown: shown.state.prev_step_request_ids,
    "current_step": lambda shown: shown.state.current_step,
    "num_executed_steps": lambda shown: shown.state.num_executed_steps,
    "last_prefill_step": lambda shown: shown.state.last_prefill_step,
    "prefill_capacity_bound": lambda shown: shown.state.prefill_capacity_bound,
    "policy": lambda shown: VllmSchedulingPolicy(shown.state.config.policy.value),
    "log_stats": lambda shown: shown.state.config.log_stats,
    "max_model_len": lambda shown: shown.state.config.max_model_len,
    "max_num_active_reqs": lambda shown: shown.state.config.max_num_active,
    "max_num_scheduled_tokens": lambda shown: shown.state.config.token_budget,
    "use_v2_model_runner": lambda shown: shown.state.config.use_v2_model_runner,
    "num_lookahead_tokens": lambda shown: shown.state.config.num_lookahead_tokens,
    "scheduler_reserve_full_isl": lambda shown: shown.state.config.scheduler_reserve_full_isl,
    "needs_kv_cache_zeroing": lambda shown: shown.state.config.needs_kv_cache_zeroing,
    "adaptive_long_prefill_threshold": (
        lambda shown: shown.state.config.long_prefill_token_threshold_adaptive
    ),
    "local_prefill_interval": lambda shown: shown.state.config.local_prefill_interval,
    "requires_kv_delivery": lambda shown: shown.state.config.requires_kv_delivery,
    "enable_kv_cache_events": lambda shown: shown.state.config.enable_kv_cache_events,
    "block_size": lambda shown: shown.state.config.block_size,
    "hash_block_size": lambda shown: shown.state.config.block_size,
    "scheduler_config": lambda shown: shown.vllm_config.scheduler_config,
    "cache_config": lambda shown: shown.vllm_config.cache_config,
    "kv_events_config": lambda shown: shown.vllm_config.kv_events_config,
    "lora_config": lambda shown: shown.vllm_config.lora_config,
    "parallel_config": lambda shown: shown.vllm_config.parallel_config,
    "observability_config": lambda shown: shown.vllm_config.observability_config,
    "spec_decode_metrics_level": lambda shown: shown.state.config.spec_decode_metrics.value,
    "num_spec_tokens": lambda shown: shown.state.config.num_spec_tokens,
    "dynamic_sd_lookup": lambda shown: _drafts_by_batch_size(shown.state.config),
    "num_prefill_lookahead": lambda shown: shown.state.config.num_prefill_lookahead_tokens,
    "num_hash_lookahead_tokens": lambda shown: shown.state.config.num_hash_lookahead_tokens,
    "use_eagle": lambda shown: _uses_eagle(shown.vllm_config),
    "use_eagle_block_drop": lambda shown: shown.state.config.drop_eagle_block,
    "can_skip_drafts": lambda shown: shown.state.config.can_skip_drafts,
    "num_sampled_tokens_per_step": lambda shown: shown.state.config.num_sampled_tokens_per_step,
    "is_mm_encoder_only": lambda shown: shown.state.config.runner_type is RunnerType.ENCODER_ONLY,
    "use_pp": lambda shown: shown.state.config.pipeline_parallel_size > 1,
    "pp_size": lambda shown: shown.state.config.pipeline_parallel_size,
    "decode_stagger": lambda shown: shown.state.config.pipeline_parallel_size,
    "num_waiting_for_streaming_input": lambda shown: shown.state.num_waiting_for_input,
    "grammar_compile_error_reqs": lambda shown: {
        request_id: to_request_error(message) for request_id, message in shown.state.grammar_errors.items()
    },
    "model_uses_mrope": lambda shown: shown.vllm_config.model_config.uses_mrope,
    "dcp_world_size": lambda shown: shown.parallel_config.decode_context_parallel_size,
    "pcp_world_size": lambda shown: shown.parallel_config.prefill_context_parallel_size,
}
"""What is derived from the state and from the configuration, by name."""


def _finished_by_client(state: SchedulerState) -> dict[int, set[str]] | None:
    if not state.config.include_finished_set:
        return None
    return {client: set(request_ids) for client, request_ids in state.finished_by_client.items()}


def _drafts_by_batch_size(config: SchedulerConfig) -> list[int] | None:
    """Give the drafts per request by the size of the batch, from 1 on, as the reference looks it up."""
    if config.num_spec_tokens_per_batch_size is None:
        return None
    return [0, *(config.num_drafts_for(size) for size in range(1, config.max_num_seqs + 1))]


def _uses_eagle(vllm_config: Any) -> bool:
    drafter = vllm_config.speculative_config
    return drafter is not None and bool(drafter.use_eagle())


def refuse_assignment(name: str, value: object) -> None:
    """Raise `InvalidEvent` if `name` is an attribute of the real scheduler that cannot be assigned here."""
    if name in FROM_STATE or name in WITHOUT or name in _FIXED or hasattr(Scheduler, name):
        raise InvalidEvent(f"OracleScheduler.{name}", value, "no assignment: it would not take effect")


_FIXED = frozenset(
    {
        "vllm_config",
        "kv_cache_config",
        "kv_cache_manager",
        "encoder_cache_manager",
        "structured_output_manager",
        "_pause_state",
        "_spec_token_placeholders",
        "_inflight_prefills",
        "_kv_fetch_counts",
        "_kv_fetch_stages",
        "_pending_encoder_input_ids",
        "_spec_decode_step_blocks",
    }
)
"""Further attributes of the real scheduler."""
