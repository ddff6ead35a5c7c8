"""What a real `update_from_output` tells the world, in normal form.

Not compared: `EngineCoreOutputs.timestamp`, a reading of the clock. The times in `EngineCoreOutput.events`
are compared: the reference's clock is set to the time of each event (`reference.py`).

Importing this module imports vLLM.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
from vllm.v1.engine import EngineCoreEvent, EngineCoreOutput, EngineCoreOutputs, RequestError
from vllm.v1.metrics.stats import (
    PrefillStats,
    PrefixCacheStats,
    RequestSpecDecodeMetrics,
    SchedulerStats,
)
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from .plain import Plain
from .vllm_outputs import assert_at_default

_OUTPUT_AT_DEFAULT: dict[str, object] = {
    "new_logprobs": None,
    "new_prompt_logprobs_tensors": None,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "trace_headers": None,
    "routed_experts": None,
    "num_nans_in_logits": 0,
    "mm_cache_miss_hashes": None,
    "new_sampling_mask": None,
    "prompt_token_id_logprobs": None,
}
_OUTPUTS_AT_DEFAULT: dict[str, object] = {
    "engine_index": 0,
    "utility_output": None,
    "wave_complete": None,
    "start_wave": None,
    "weight_version": None,
}
_STATS_AT_DEFAULT: dict[str, object] = {
    "step_counter": 0,
    "current_wave": 0,
    "iteration_details": None,
    "connector_prefix_cache_stats": None,
    "kv_cache_eviction_events": [],
    "kv_connector_stats": None,
    "ec_connector_stats": None,
    "waiting_lora_adapters": {},
    "running_lora_adapters": {},
    "cudagraph_stats": None,
    "perf_stats": None,
}
_STORED_AT_DEFAULT: dict[str, object] = {
    "medium": "GPU",
    "kv_cache_spec_kind": "full_attention",
    "kv_cache_spec_sliding_window": None,
    "locality": None,
    "ownership": None,
    "session_id": None,
}
_REMOVED_AT_DEFAULT: dict[str, object] = {"medium": "GPU", "locality": None, "ownership": None}

assert set(EngineCoreOutput.__struct_fields__) == {
    *("request_id", "new_token_ids", "finish_reason", "stop_reason", "prefill_stats", "events"),
    *("pooling_output", "spec_decode_metrics", "error"),
    *_OUTPUT_AT_DEFAULT,
}
assert set(EngineCoreOutputs.__struct_fields__) == {
    *("outputs", "scheduler_stats", "finished_requests", "timestamp"),
    *_OUTPUTS_AT_DEFAULT,
}
assert {field.name for field in dataclasses.fields(SchedulerStats)} == {
    *("num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs", "kv_cache_usage"),
    *("prefix_cache_stats", "num_kv_fetch_reqs_by_stage", "spec_decoding_stats"),
    *_STATS_AT_DEFAULT,
}


def emitted_to_plain(clients: Mapping[int, EngineCoreOutputs], batches: Iterable[KVEventBatch]) -> Plain:
    """Give the normal form of the outputs per client, and of the event batches published meanwhile."""
    events = [event for batch in batches for event in batch.events]
    return {
        "clients": [[index, _client_to_plain(outputs)] for index, outputs in clients.items()],
        "kv_events": [kv_event_to_plain(event, published=True) for event in events],
    }


def kv_event_to_plain(event: BlockStored | BlockRemoved | AllBlocksCleared, *, published: bool) -> Plain:
    """Give the normal form of an event; the kind of the group is filled in when it is published."""
    if isinstance(event, AllBlocksCleared):
        return {"kind": "AllBlocksCleared"}
    if isinstance(event, BlockRemoved):
        assert_at_default(event, _REMOVED_AT_DEFAULT)
        return {
            "block_hashes": [item.hex() for item in event.block_hashes],
            "group_index": event.group_idx,
            "kind": "BlockRemoved",
        }
    kind = _STORED_AT_DEFAULT["kv_cache_spec_kind"] if published else None
    assert_at_default(event, {**_STORED_AT_DEFAULT, "kv_cache_spec_kind": kind})
    parent = event.parent_block_hash
    return {
        "block_hashes": [item.hex() for item in event.block_hashes],
        "parent_block_hash": None if parent is None else parent.hex(),
        "token_ids": list(event.token_ids),
        "block_size": event.block_size,
        "extra_keys": [None if keys is None else list(keys) for keys in event.extra_keys],
        "group_index": event.group_idx,
        "lora_id": event.lora_id,
        "lora_name": event.lora_name,
        "lookahead_token_ids": (
            None if event.lookahead_token_ids is None else [list(ids) for ids in event.lookahead_token_ids]
        ),
        "kind": "BlockStored",
    }


def prefill_stats_to_plain(stats: PrefillStats | None) -> Plain:
    """Give the normal form; without a connector nothing is cached externally."""
    if stats is None:
        return None
    assert stats.num_external_cached_tokens == 0
    assert stats.num_cached_tokens == stats.num_local_cached_tokens
    return {
        "num_prompt_tokens": stats.num_prompt_tokens,
        "num_computed_tokens": stats.num_computed_tokens,
        "num_local_cached_tokens": stats.num_local_cached_tokens,
        "num_cache_creation_tokens": stats.num_cache_creation_tokens,
    }


def prefix_cache_stats_to_plain(stats: PrefixCacheStats) -> Plain:
    """Give the normal form."""
    assert stats.hits_by_source == {}  # connectors only
    return {
        "reset": stats.reset,
        "requests": stats.requests,
        "queries": stats.queries,
        "hits": stats.hits,
        "preempted_requests": stats.preempted_requests,
        "preempted_queries": stats.preempted_queries,
        "preempted_hits": stats.preempted_hits,
    }


def _client_to_plain(outputs: EngineCoreOutputs) -> Plain:
    assert_at_default(outputs, _OUTPUTS_AT_DEFAULT)
    finished = outputs.finished_requests
    stats = outputs.scheduler_stats
    return {
        "outputs": [_output_to_plain(output) for output in outputs.outputs],
        "finished_request_ids": None if finished is None else sorted(finished),  # a set there
        "scheduler_stats": None if stats is None else _stats_to_plain(stats),
    }


def _output_to_plain(output: EngineCoreOutput) -> Plain:
    assert_at_default(output, _OUTPUT_AT_DEFAULT)
    return {
        "request_id": output.request_id,
        "new_token_ids": list(output.new_token_ids),
        "finish_reason": None if output.finish_reason is None else output.finish_reason.name,
        "stop_reason": output.stop_reason,
        "prefill_stats": prefill_stats_to_plain(output.prefill_stats),
        "spec_decode_metrics": spec_decode_metrics_to_plain(output.spec_decode_metrics),
        "events": events_to_plain(output.events or ()),
        "error": None if output.error is None else reason_of(output.error),
        "pooled": output.pooling_output is not None,
    }


def reason_of(error: RequestError) -> str:
    """Give what was wrong, without what the reference says to every client in front of it."""
    return str(error.message).partition(": ")[2]


def events_to_plain(events: Iterable[EngineCoreEvent]) -> Plain:
    """Give the normal form of what happened to a request."""
    return [{"type": event.type.name, "time": event.timestamp} for event in events]


def spec_decode_metrics_to_plain(metrics: RequestSpecDecodeMetrics | None) -> Plain:
    """Give the normal form of what became of a request's drafts."""
    if metrics is None:
        return None
    return {
        "num_spec_tokens": metrics.num_spec_tokens,
        "histogram": list(metrics.histogram),
        "num_draft_tokens": metrics.num_draft_tokens,
        "per_step_accepted": list(metrics.per_step_accepted),
        "per_step_drafted": list(metrics.per_step_drafted),
    }


def _spec_decoding_stats_to_plain(stats: SpecDecodingStats | None) -> Plain:
    if stats is None:
        return None
    return {
        "num_spec_tokens": stats.num_spec_tokens,
        "num_drafts": stats.num_drafts,
        "num_draft_tokens": stats.num_draft_tokens,
        "num_accepted_tokens": stats.num_accepted_tokens,
        "num_accepted_tokens_per_pos": list(stats.num_accepted_tokens_per_pos),
        "num_draft_tokens_per_pos": list(stats.num_draft_tokens_per_pos),
    }


def _stats_to_plain(stats: SchedulerStats) -> Plain:
    assert_at_default(stats, _STATS_AT_DEFAULT)
    assert not any(stats.num_kv_fetch_reqs_by_stage.values())  # connectors only
    return {
        "num_running_requests": stats.num_running_reqs,
        "num_waiting_requests": stats.num_waiting_reqs,
        "num_skipped_waiting_requests": stats.num_skipped_waiting_reqs,
        "kv_cache_usage": stats.kv_cache_usage,
        "prefix_cache_stats": prefix_cache_stats_to_plain(stats.prefix_cache_stats),
        "spec_decoding_stats": _spec_decoding_stats_to_plain(stats.spec_decoding_stats),
    }
