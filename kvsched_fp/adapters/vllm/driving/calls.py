"""What every driver of a vLLM scheduler does: hand it results and drafts, reset it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from kvsched_fp.adapters.vllm.ending import end_as_found
from kvsched_fp.ids import RequestId


def update_from_output(scheduler: Any, output: Any, returned: ModelRunnerOutput) -> dict[int, Any]:
    """Let a scheduler take in what the model runner returned; give what it tells each client."""
    with _ending_as_found(scheduler):
        told: dict[int, Any] = scheduler.update_from_output(output, returned)
    return told


@contextmanager
def _ending_as_found(scheduler: Any) -> Iterator[None]:
    """End requests that cannot have their grammar in the order in which a step came upon them."""
    found = list(getattr(scheduler, "grammar_compile_error_reqs", ()))
    if len(found) < 2:
        yield
        return
    end = scheduler.finish_requests
    scheduler.finish_requests = partial(end_as_found, end, found)
    try:
        yield
    finally:
        scheduler.finish_requests = end


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
