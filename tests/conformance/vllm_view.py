"""Everything that a real scheduler knows between two calls, in normal form.

Not compared, because it cannot decide anything without what it belongs to: the set of in-flight
prefills (reservations for asynchronous loads), fences and sequence numbers (deferred frees under a
connector). What belongs to drafts, encoders, streaming sessions and connectors is asserted to be
untouched.

Importing this module imports vLLM.
"""

from collections.abc import Iterable

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request, StreamingUpdate

from .plain import Plain, hexadecimal
from .vllm_emitted import (
    events_to_plain,
    kv_event_to_plain,
    prefill_stats_to_plain,
    prefix_cache_stats_to_plain,
    reason_of,
    spec_decode_metrics_to_plain,
)
from .vllm_outputs import assert_at_default

_SCHEDULER_UNTOUCHED: dict[str, object] = {
    "finished_recving_kv_req_ids": set(),
    "failed_recving_kv_req_ids": set(),
    "encoder_cache_mismatch_reqs": set(),
    "sched_step_seq": 0,
    "processed_step_seq": 0,
    "deferred_loads": {},
}
_REQUEST_UNTOUCHED: dict[str, object] = {
    "last_sched_seq": 0,
    "shared_prefix_boundary": 0,
    "replay_start": 0,
}


_STATUS_NAMES = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "WAITING_FOR_GRAMMAR",
    "WAITING_FOR_STREAMING_REQ": "WAITING_FOR_INPUT",
}
"""Statuses that have a shorter name here."""


def scheduler_to_plain(scheduler: Scheduler) -> Plain:
    """Give the normal form of the whole state, in-flight steps apart: the engine holds those."""
    assert_at_default(scheduler, _SCHEDULER_UNTOUCHED)
    assert not scheduler.deferred_frees
    return {
        # A dict there, in the order of arrival: the order in which an end of all ends them.
        "requests": [_request_to_plain(request) for request in scheduler.requests.values()],
        "running": _ids(scheduler.running),
        "waiting": _ids(scheduler.waiting),
        "kv_holding_waiting": _ids(scheduler.kv_holding_waiting),
        "deferred": sorted(_ids(scheduler.deferred_waiting)),  # a set there
        "kv": _kv_cache_to_plain(scheduler.kv_cache_manager),
        "num_waiting_for_input": scheduler.num_waiting_for_streaming_input,
        "grammar_errors": [
            [request_id, reason_of(error)]
            for request_id, error in scheduler.grammar_compile_error_reqs.items()
        ],
        "pause_state": scheduler.pause_state.name,
        "num_unfinished_requests": scheduler.get_num_unfinished_requests(),
        "current_step": scheduler.current_step,
        "num_executed_steps": scheduler.num_executed_steps,
        "last_prefill_step": scheduler.last_prefill_step,
        "prefill_capacity_bound": scheduler.prefill_capacity_bound,
        # Sets there; their order carries nothing.
        "finished_request_ids": sorted(scheduler.finished_req_ids),
        "finished_by_client": [
            [client, sorted(ids)] for client, ids in (scheduler.finished_req_ids_dict or {}).items()
        ],
        "preempted_request_ids": sorted(scheduler.reset_preempted_req_ids),
        "prev_step_request_ids": sorted(scheduler.prev_step_scheduled_req_ids),
    }


def _ids(requests: Iterable[Request]) -> list[str]:
    return [request.request_id for request in requests]


def _request_to_plain(request: Request) -> Plain:
    assert_at_default(request, _REQUEST_UNTOUCHED)
    return {
        "request_id": request.request_id,
        "status": _STATUS_NAMES.get(request.status.name, request.status.name),
        "num_computed_tokens": request.num_computed_tokens,
        "num_in_flight_tokens": request.num_in_flight_tokens,
        "is_prefill_chunk": request.is_prefill_chunk,
        "output_token_ids": list(request.output_token_ids),
        "block_hashes": hexadecimal(request.block_hashes),
        "num_preemptions": request.num_preemptions,
        "num_stale_output_tokens": request.num_stale_output_tokens,
        "drop_stale_output": request.drop_stale_output,
        "prefill_stats": prefill_stats_to_plain(request.prefill_stats),
        "num_output_placeholders": request.num_output_placeholders,
        "spec_token_ids": list(request.spec_token_ids),
        "next_decode_eligible_step": request.next_decode_eligible_step,
        "spec_decode_metrics": spec_decode_metrics_to_plain(request.spec_decode_metrics),
        "grammar": _grammar_to_plain(request),
        "chunks": [_chunk_to_plain(chunk) for chunk in request.streaming_queue or ()],
        "events": events_to_plain(request.events),
        "stop_reason": request.stop_reason,
        "prompt_token_ids": list(request.prompt_token_ids),
        "max_tokens": request.max_tokens,
        "arrival_time": request.arrival_time,
    }


def _grammar_to_plain(request: Request) -> Plain:
    """Give where the grammar stands, or why there is none, or None."""
    if request.structured_output_request is None:
        return None
    grammar = request.structured_output_request.grammar
    if isinstance(grammar, Exception):
        return str(grammar)
    return None if grammar is None else grammar.value.state


def _chunk_to_plain(chunk: StreamingUpdate | None) -> Plain:
    if chunk is None:
        return None
    return [list(chunk.prompt_token_ids), chunk.max_tokens, chunk.arrival_time]


def _kv_cache_to_plain(manager: KVCacheManager) -> Plain:
    # Without `log_stats` there is no record there; ours stays at zero.
    stats = manager.prefix_cache_stats or PrefixCacheStats()
    pool = manager.block_pool
    return {
        "tables": _tables_to_plain(manager),
        "ref_counts": [block.ref_cnt for block in pool.blocks],
        "keys": [None if block.block_hash is None else block.block_hash.hex() for block in pool.blocks],
        "free_blocks": _block_ids(pool.free_block_queue.get_all_free_blocks()),
        "num_free_blocks": pool.get_num_free_blocks(),
        "cached": _prefix_index_to_plain(pool),
        "pending_events": [kv_event_to_plain(event, published=False) for event in pool.kv_event_queue],
        "prefix_cache_stats": prefix_cache_stats_to_plain(stats),
    }


def _block_ids(blocks: Iterable[KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def _tables_to_plain(manager: KVCacheManager) -> Plain:
    """Per request that holds blocks, sorted by id; per group its blocks and how many are cached."""
    managers = manager.coordinator.single_type_managers
    request_ids = set()
    for group in managers:
        assert_at_default(group, {"new_block_ids": [], "_partial_hit_reqs": {}, "_pending_cow_copies": []})
        request_ids |= {request_id for request_id, blocks in group.req_to_blocks.items() if blocks}
        assert group.num_cached_block.keys() <= group.req_to_blocks.keys()
    return [
        [
            request_id,
            [
                {
                    "block_ids": _block_ids(group.req_to_blocks.get(request_id, ())),
                    # No entry there until a hit or a full block; that counts as none cached.
                    "num_cached_blocks": group.num_cached_block.get(request_id, 0),
                }
                for group in managers
            ],
        ]
        for request_id in sorted(request_ids)
    ]


def _prefix_index_to_plain(pool: BlockPool) -> Plain:
    """Per key, sorted, its blocks in the order in which they were cached."""
    assert not pool.cached_block_hashes_by_block  # blocks with several keys: partial hits only
    index = pool.cached_block_hash_to_block._cache
    # The keys are for look-up only, so their order is not part of the form. The order of duplicates is:
    # a look-up answers the first.
    return [
        [key.hex(), [found.block_id] if isinstance(found, KVCacheBlock) else list(found)]
        for key, found in sorted(index.items())
    ]
