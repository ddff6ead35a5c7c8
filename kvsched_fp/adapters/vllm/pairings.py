"""Which field of vLLM's records is which of ours: said once, and read in both directions.

`outputs.py` goes from ours to vLLM's, `recorded.py` the other way. What a client is told about one request
is spelled out there: most of it vLLM hands through, and there is one for every row of every step.
"""

import dataclasses
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import attrs
from vllm.distributed.kv_events import BlockRemoved as VllmBlockRemoved
from vllm.distributed.kv_events import BlockStored as VllmBlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.core.sched.output import CachedRequestData as VllmCachedRequestData
from vllm.v1.core.sched.output import NewRequestData as VllmNewRequestData
from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, RequestError
from vllm.v1.metrics.stats import PrefixCacheStats as VllmPrefixCacheStats
from vllm.v1.metrics.stats import RequestSpecDecodeMetrics as VllmRequestSpecDecodeMetrics
from vllm.v1.metrics.stats import SchedulerStats as VllmSchedulerStats
from vllm.v1.request import RequestStatus as VllmRequestStatus
from vllm.v1.spec_decode.metrics import SpecDecodingStats as VllmSpecDecodingStats

from kvsched_fp.adapters.vllm.pairing import Convert, Pair, Pairing
from kvsched_fp.adapters.vllm.requests import to_lora
from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.kv_events import BlockRemoved, BlockStored
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.outputs import (
    CachedRequestData,
    NewRequestData,
    PrefixCacheStats,
    SchedulerOutput,
    SchedulerStats,
    SpecDecodingStats,
)
from kvsched_fp.progress import RequestEvent, RequestEventType, RequestSpecDecodeMetrics
from kvsched_fp.request import RequestStatus

_LONGER_NAMES = {
    "WAITING_FOR_GRAMMAR": "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
    "WAITING_FOR_INPUT": "WAITING_FOR_STREAMING_REQ",
}

STATUSES: dict[RequestStatus, VllmRequestStatus] = {
    status: VllmRequestStatus[_LONGER_NAMES.get(status.name, status.name)] for status in RequestStatus
}
"""Each of our statuses in vLLM's words."""


_GRAMMAR_ERROR = "Invalid structured outputs: "


def to_request_error(message: str | None) -> RequestError:
    """Say that a request has no grammar, in vLLM's words."""
    return RequestError(code="validation_error", message=f"{_GRAMMAR_ERROR}{message}")


def read_request_error(error: RequestError | None) -> str | None:
    """Read why a request has no grammar."""
    return None if error is None else str(error.message).removeprefix(_GRAMMAR_ERROR)


def _if_any(convert: Convert) -> Convert:
    """Convert a value that may be None."""
    return lambda value: None if value is None else convert(value)


def _each(make: Convert, convert: Convert) -> Convert:
    """Convert each of several values, into a collection that `make` makes."""
    return lambda values: make(map(convert, values))


def _sorted(ids: Iterable[str] | None) -> tuple[str, ...]:
    # A set there, or None for an empty one.
    return tuple(sorted(ids or ()))


def to_block_ids(block_ids: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """Read block ids, per group."""
    return tuple(map(tuple, block_ids))


_to_lists = _each(tuple, list)


def _to_token_map(rows: Any) -> OrderedMap[str, tuple[int, ...]]:
    return OrderedMap.adopt({name: tuple(token_ids) for name, token_ids in rows.items()})


def _to_list_map(rows: Any) -> dict[str, list[int]]:
    return {name: list(token_ids) for name, token_ids in rows.items()}


NEW_REQUEST = Pairing(
    NewRequestData,
    VllmNewRequestData,
    Pair("request_id", "req_id"),
    Pair("prompt_token_ids", "prompt_token_ids", tuple, list),
    Pair("block_ids", "block_ids", to_block_ids, _to_lists),
    Pair("num_computed_tokens", "num_computed_tokens"),
    Pair("prefill_token_ids", "prefill_token_ids", _if_any(tuple), _if_any(list)),
    Pair("lora", "lora_request", to_lora),
    Pair("pooling", "pooling_params", lambda params: params is not None),
)
"""A request that is sent whole. Its adapter and its pooling parameters are handed through."""

CACHED_REQUESTS = Pairing(
    CachedRequestData,
    VllmCachedRequestData,
    Pair("request_ids", "req_ids", tuple, list),
    Pair("resumed_request_ids", "resumed_req_ids", _sorted, set),
    Pair("all_token_ids", "all_token_ids", _to_token_map, _to_list_map),
    Pair(
        "new_block_ids",
        "new_block_ids",
        _each(tuple, _if_any(to_block_ids)),
        _each(list, _if_any(_to_lists)),
    ),
    Pair("num_computed_tokens", "num_computed_tokens", tuple, list),
    Pair("num_output_tokens", "num_output_tokens", tuple, list),
    Pair("new_token_ids", "new_token_ids", to_block_ids, _each(list, list)),
)
"""The requests that are sent as a difference."""

STEP = Pairing(
    SchedulerOutput,
    VllmSchedulerOutput,
    Pair("scheduled_new_requests", "scheduled_new_reqs", _each(tuple, NEW_REQUEST.to_ours)),
    Pair(
        "scheduled_cached_requests",
        "scheduled_cached_reqs",
        CACHED_REQUESTS.to_ours,
        CACHED_REQUESTS.to_theirs,
    ),
    Pair("num_scheduled_tokens", "num_scheduled_tokens", OrderedMap, dict),
    Pair("total_num_scheduled_tokens", "total_num_scheduled_tokens"),
    Pair("preempted_request_ids", "preempted_req_ids", _sorted, set),
    Pair("finished_request_ids", "finished_req_ids", _sorted, set),
    Pair("new_block_ids_to_zero", "new_block_ids_to_zero", _if_any(tuple), _if_any(list)),
    Pair("scheduled_spec_token_ids", "scheduled_spec_decode_tokens", _to_token_map, _to_list_map),
    Pair("num_spec_tokens_to_schedule", "num_spec_tokens_to_schedule"),
    Pair("skip_drafts", "skip_drafts"),
    Pair("has_structured_output_requests", "has_structured_output_requests"),
    Pair("pending_structured_output_tokens", "pending_structured_output_tokens"),
    Pair("num_invalid_spec_tokens", "num_invalid_spec_tokens", _if_any(OrderedMap), _if_any(dict)),
    besides=["step_id"],
)
"""One step. The requests that are sent whole need more than ours says, see `outputs.py`."""

WITHOUT: dict[str, Any] = {
    "scheduled_encoder_inputs": {},
    "free_encoder_mm_hashes": [],
}
"""Fields of vLLM's step that have no default and say nothing about what is modelled."""


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.name in WITHOUT:
        return WITHOUT[field.name]
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


_UNMODELLED: dict[str, Any] = {
    field.name: _default(field)
    for field in dataclasses.fields(VllmSchedulerOutput)
    if field.name not in {pair.theirs for pair in STEP.pairs}
}
_read_unmodelled = attrgetter(*_UNMODELLED)
_NOTHING = tuple(_UNMODELLED.values())


def first_unmodelled(output: VllmSchedulerOutput) -> tuple[str, object] | None:
    """Name a field of a real step that says something which is not modelled, with its value."""
    values = _read_unmodelled(output)
    if values == _NOTHING:
        return None
    fields = zip(_UNMODELLED, values, _NOTHING, strict=True)
    return next((name, value) for name, value, nothing in fields if value != nothing)


_FIGURES = [field.name for field in attrs.fields(PrefixCacheStats)]

PREFIX_CACHE_STATS = Pairing(
    PrefixCacheStats, VllmPrefixCacheStats, *(Pair(name, name) for name in _FIGURES)
)
"""Look-ups since the last report: the same names on both sides."""

SPEC_DECODING_STATS = Pairing(
    SpecDecodingStats,
    VllmSpecDecodingStats,
    Pair("num_spec_tokens", "num_spec_tokens"),
    Pair("num_drafts", "num_drafts"),
    Pair("num_draft_tokens", "num_draft_tokens"),
    Pair("num_accepted_tokens", "num_accepted_tokens"),
    Pair("num_accepted_tokens_per_pos", "num_accepted_tokens_per_pos", tuple, list),
    Pair("num_draft_tokens_per_pos", "num_draft_tokens_per_pos", tuple, list),
)
"""What one update learnt about drafts."""

SPEC_DECODE_METRICS = Pairing(
    RequestSpecDecodeMetrics,
    VllmRequestSpecDecodeMetrics,
    Pair("num_spec_tokens", "num_spec_tokens"),
    Pair("histogram", "histogram", tuple, list),
    Pair("num_draft_tokens", "num_draft_tokens"),
    Pair("per_step_accepted", "per_step_accepted", tuple, list),
    Pair("per_step_drafted", "per_step_drafted", tuple, list),
)
"""What became of the drafts of one request."""

REQUEST_EVENT = Pairing(
    RequestEvent,
    EngineCoreEvent,
    Pair(
        "type",
        "type",
        lambda kind: RequestEventType[kind.name],
        lambda kind: EngineCoreEventType[kind.name],
    ),
    Pair("time", "timestamp"),
)
"""Something that happened to a request."""

SCHEDULER_STATS = Pairing(
    SchedulerStats,
    VllmSchedulerStats,
    Pair("num_running_requests", "num_running_reqs"),
    Pair("num_waiting_requests", "num_waiting_reqs"),
    Pair("num_skipped_waiting_requests", "num_skipped_waiting_reqs"),
    Pair("kv_cache_usage", "kv_cache_usage"),
    Pair(
        "prefix_cache_stats",
        "prefix_cache_stats",
        PREFIX_CACHE_STATS.to_ours,
        PREFIX_CACHE_STATS.to_theirs,
        PREFIX_CACHE_STATS.agree,
    ),
    Pair(
        "spec_decoding_stats",
        "spec_decoding_stats",
        _if_any(SPEC_DECODING_STATS.to_ours),
        _if_any(SPEC_DECODING_STATS.to_theirs),
    ),
)
"""The scheduler's own figures."""


def _read_hash(name: bytes | int) -> BlockHash:
    # By default vLLM publishes the last 8 bytes of the hash, as a number.
    return BlockHash(name if isinstance(name, bytes) else name.to_bytes(8, "big"))


_HASHES = Pair(
    "block_hashes",
    "block_hashes",
    _each(tuple, _read_hash),
    _each(list, maybe_convert_block_hash),
)
_GROUP = Pair("group_index", "group_idx")

BLOCK_STORED = Pairing(
    BlockStored,
    VllmBlockStored,
    _HASHES,
    Pair(
        "parent_block_hash",
        "parent_block_hash",
        _if_any(_read_hash),
        _if_any(maybe_convert_block_hash),
    ),
    Pair("token_ids", "token_ids", tuple, list),
    Pair("block_size", "block_size"),
    Pair("extra_keys", "extra_keys", lambda keys: tuple(keys or ()), lambda keys: list(keys) or None),
    _GROUP,
    Pair("lora_id", "lora_id"),
    Pair("lora_name", "lora_name"),
    Pair("lookahead_token_ids", "lookahead_token_ids", _if_any(to_block_ids), _if_any(_each(list, list))),
)
"""Blocks that entered the prefix index."""

BLOCK_REMOVED = Pairing(BlockRemoved, VllmBlockRemoved, _HASHES, _GROUP)
"""Blocks that left it."""
