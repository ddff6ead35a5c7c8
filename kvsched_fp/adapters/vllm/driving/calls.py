"""What every driver of a vLLM scheduler does: hand it drafts, reset it."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.outputs import DraftTokenIds

from kvsched_fp.ids import RequestId


def to_vllm_drafts(drafts: Mapping[RequestId, tuple[int, ...]]) -> DraftTokenIds:
    """Make what a drafter hands over."""
    return DraftTokenIds(list(drafts), [list(token_ids) for token_ids in drafts.values()])


def reset_prefix_cache(scheduler: Any, *, reset_running_requests: bool) -> bool:
    """Reset the prefix cache of a scheduler; tell whether it was done."""
    try:
        done: bool = scheduler.reset_prefix_cache(reset_running_requests=reset_running_requests)
    except RuntimeError:
        if not getattr(scheduler, "kv_holding_waiting", ()):
            raise
        # Sessions that wait for input hold blocks. What ran was preempted by then (deviation D-12).
        return False
    return done
