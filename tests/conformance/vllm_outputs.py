"""A real `SchedulerOutput` in normal form.

Every field is either carried over or asserted to be at its default, so that nothing that the
reference says goes unnoticed.

Importing this module imports vLLM.
"""

import dataclasses

from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from .plain import Plain

_AT_DEFAULT: dict[str, object] = {
    "scheduled_encoder_inputs": {},
    "free_encoder_mm_hashes": [],
    "encoder_input_updates": {},
    "scheduled_encoder_input_stats": None,
    "kv_connector_metadata": None,
    "has_sync_kv_loads": False,
    "aux_output_connector_metadata": None,
    "ec_connector_metadata": None,
    "ec_manager_metadata": None,
    "kv_cache_block_copies": None,
    "kv_connector_block_state": None,
    "num_common_prefix_blocks": [],
}
"""What a scheduler without drafts, encoder inputs, grammars and connectors says."""

_CARRIED_OVER = {
    "scheduled_new_reqs",
    "scheduled_cached_reqs",
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "finished_req_ids",
    "preempted_req_ids",
    "new_block_ids_to_zero",
    "scheduled_spec_decode_tokens",
    "has_structured_output_requests",
    "pending_structured_output_tokens",
    "num_invalid_spec_tokens",
    "num_spec_tokens_to_schedule",
    "skip_drafts",
}

_NEW_REQUEST_AT_DEFAULT: dict[str, object] = {
    "mm_features": [],
    "prompt_embeds": None,
    "prompt_is_token_ids": None,
    "replay_start": 0,
}

assert {field.name for field in dataclasses.fields(SchedulerOutput)} == _CARRIED_OVER | set(_AT_DEFAULT)
assert {field.name for field in dataclasses.fields(NewRequestData)} == {
    "req_id",
    "prompt_token_ids",
    "sampling_params",  # the object that came in with the request, handed through
    "block_ids",
    "num_computed_tokens",
    "prefill_token_ids",
    "pooling_params",
    "lora_request",
    *_NEW_REQUEST_AT_DEFAULT,
}


def scheduler_output_to_plain(output: SchedulerOutput, step_id: int) -> Plain:
    """Give the normal form. Copies at once: the output shares token lists with the live requests."""
    assert_at_default(output, _AT_DEFAULT)
    return {
        "step_id": step_id,
        "scheduled_new_requests": [_new_request_to_plain(new) for new in output.scheduled_new_reqs],
        "scheduled_cached_requests": _cached_requests_to_plain(output.scheduled_cached_reqs),
        "num_scheduled_tokens": [list(item) for item in output.num_scheduled_tokens.items()],
        "total_num_scheduled_tokens": output.total_num_scheduled_tokens,
        # Sets there; their order carries nothing.
        "preempted_request_ids": sorted(output.preempted_req_ids or ()),
        "finished_request_ids": sorted(output.finished_req_ids),
        "new_block_ids_to_zero": _copy(output.new_block_ids_to_zero),
        "scheduled_spec_token_ids": [
            [request_id, list(ids)] for request_id, ids in output.scheduled_spec_decode_tokens.items()
        ],
        "num_spec_tokens_to_schedule": output.num_spec_tokens_to_schedule,
        "skip_drafts": output.skip_drafts,
        "has_structured_output_requests": output.has_structured_output_requests,
        "pending_structured_output_tokens": output.pending_structured_output_tokens,
        "num_invalid_spec_tokens": _pairs(output.num_invalid_spec_tokens),
    }


def assert_at_default(record: object, defaults: dict[str, object]) -> None:
    """Raise `AssertionError` unless the fields of `record` have these values."""
    for field, default in defaults.items():
        value = getattr(record, field)
        assert value == default, f"{type(record).__name__}.{field} is {value!r}, which is not modelled"


def _new_request_to_plain(new: NewRequestData) -> Plain:
    assert_at_default(new, _NEW_REQUEST_AT_DEFAULT)
    return {
        "request_id": new.req_id,
        "prompt_token_ids": list(new.prompt_token_ids),
        "block_ids": [list(ids) for ids in new.block_ids],
        "num_computed_tokens": new.num_computed_tokens,
        "prefill_token_ids": _copy(new.prefill_token_ids),
        "lora": lora_to_plain(new.lora_request),
        "pooling": new.pooling_params is not None,
    }


def lora_to_plain(lora: LoRARequest | None) -> Plain:
    """Give the normal form of an adapter."""
    if lora is None:
        return None
    return {"name": lora.lora_name, "lora_id": lora.lora_int_id, "path": lora.lora_path}


def _pairs(counts: dict[str, int] | None) -> Plain:
    return None if counts is None else [list(item) for item in counts.items()]


def _cached_requests_to_plain(cached: CachedRequestData) -> Plain:
    return {
        "request_ids": list(cached.req_ids),
        "resumed_request_ids": sorted(cached.resumed_req_ids),  # a set there
        "all_token_ids": [[request_id, list(ids)] for request_id, ids in cached.all_token_ids.items()],
        "new_block_ids": [
            None if groups is None else [list(ids) for ids in groups] for groups in cached.new_block_ids
        ],
        "num_computed_tokens": list(cached.num_computed_tokens),
        "num_output_tokens": list(cached.num_output_tokens),
        "new_token_ids": [list(ids) for ids in cached.new_token_ids],
    }


def _copy(ids: list[int] | None) -> list[int] | None:
    return None if ids is None else list(ids)
