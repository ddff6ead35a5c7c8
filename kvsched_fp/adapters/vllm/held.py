"""Guarding vLLM's `Request` objects while a scheduler of ours holds them.

The state behind the scheduler knows nothing of what somebody writes into such an object. So a held
request has a class of its own, derived from the one that it came with: an assignment that the scheduler
would have to see goes to the holder, which lets it take effect or refuses it. When the request has ended,
it gets its class back.
"""

from typing import Any, Protocol

from vllm.v1.request import Request as VllmRequest

from kvsched_fp.errors import InvalidEvent

_HOLDER = "_kvsched_fp_holder"

TAKES_EFFECT = frozenset({"priority", "arrival_time", "client_index", "max_tokens", "sampling_params"})
"""Attributes that the holder is told of when they are assigned."""

READ_ONLY = frozenset(
    {
        "request_id",
        "status",
        "stop_reason",
        "prompt_token_ids",
        "num_prompt_tokens",
        "prompt_embeds",
        "prompt_is_token_ids",
        "pooling_params",
        "lora_request",
        "structured_output_request",
        "mm_features",
        "cache_salt",
        "resumable",
        "streaming_queue",
        "block_hashes",
        "output_token_ids",
        "all_token_ids",
        "spec_token_ids",
        "is_prefill_chunk",
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_output_placeholders",
        "num_preemptions",
        "num_stale_output_tokens",
        "drop_stale_output",
        "next_decode_eligible_step",
        "last_sched_seq",
        "prefill_stats",
        "replay_start",
        "shared_prefix_boundary",
        "skip_reading_prefix_cache",
        "_output_token_ids",
        "_all_token_ids",
        "_block_hasher",
    }
)
"""Attributes that a scheduler reads or writes, and that only a scheduler may write."""


class Holder(Protocol):
    """Whoever holds requests."""

    def reassign(self, request: VllmRequest, name: str, value: Any) -> None:
        """Let an assignment of one of `TAKES_EFFECT` take effect, or refuse it by an error."""
        ...


class _Guard:
    """What a held request does differently."""

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = vars(self)
        if name in READ_ONLY:
            raise InvalidEvent(
                f"request {attributes['request_id']!r}.{name}",
                value,
                "no assignment while a scheduler of kvsched_fp holds the request",
            )
        if name in TAKES_EFFECT:
            attributes[_HOLDER].reassign(self, name, value)
        attributes[name] = value

    def append_output_token_ids(self, token_ids: Any) -> None:
        """Refuse: tokens come with the result of a step."""
        raise InvalidEvent(
            f"request {vars(self)['request_id']!r}.append_output_token_ids",
            token_ids,
            "tokens that come with update_from_output()",
        )


_guarded_kinds: dict[type, type] = {}


def _guarded(kind: type) -> type:
    """Derive the class of held requests from `kind`, once."""
    if kind not in _guarded_kinds:
        _guarded_kinds[kind] = _derive(kind)
    return _guarded_kinds[kind]


def _derive(kind: type) -> type:
    return type(kind.__name__, (_Guard, kind), {"__module__": kind.__module__})


def hold(request: VllmRequest, holder: Holder) -> None:
    """Guard `request` for `holder`."""
    vars(request)[_HOLDER] = holder
    object.__setattr__(request, "__class__", _guarded(type(request)))


def let_go(request: VllmRequest) -> None:
    """Give `request` back as it came."""
    object.__setattr__(request, "__class__", type(request).__mro__[2])
    del vars(request)[_HOLDER]
