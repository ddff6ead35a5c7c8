"""What every driver of a vLLM scheduler does: hand it results and drafts, reset it."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from kvsched_fp.ids import RequestId


def update_from_output(scheduler: Any, output: Any, returned: ModelRunnerOutput) -> dict[int, Any]:
    """Let a scheduler take in what the model runner returned; give what it tells each client.

    Requests that cannot have their grammar go through a set, whose order changes with the hash seed of the
    process (deviation D-01). They are put in the order in which they were found.
    """
    found = list(getattr(scheduler, "grammar_compile_error_reqs", ()))
    clients: dict[int, Any] = scheduler.update_from_output(output, returned)
    for told in clients.values() if len(found) > 1 else ():
        errors = [each for each in told.outputs if each.request_id in found]
        if errors and told.outputs[-len(errors) :] == errors:
            told.outputs[-len(errors) :] = sorted(errors, key=lambda each: found.index(each.request_id))
    return clients


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
