"""Faults planted into the reference: each must be found, or the suite proves little.

    python -m tests.conformance.planted

prints after how many histories each one was found. They are slips that somebody could make while
re-implementing the scheduler; that they sit in the reference and not in ours makes no difference to
the comparison, and leaves our code alone.

Importing this module imports vLLM.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import attrs
from vllm.v1.core.block_pool import BlockHashToBlockMap, BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

from .duel import Divergence, Tally, play_history
from .mutate import (
    Change,
    is_assignment_to,
    is_augmented,
    is_call_of,
    is_call_on,
    is_choice_of,
    is_if_about,
    is_slice_of,
    mutate,
    remove,
)

MAX_HISTORIES = 1000
"""Every fault must be found within so many."""


@attrs.frozen
class Fault:
    """One slip: what stands in for what."""

    name: str
    owner: object
    attribute: str
    replacement: object

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the fault in the reference for a while."""
        with mock.patch.object(self.owner, self.attribute, self.replacement):
            yield


def find_fault(fault: Fault, max_histories: int = MAX_HISTORIES) -> tuple[int, Divergence] | None:
    """Play histories until one shows the fault; give how many it took, and the divergence."""
    with fault.planted():
        for seed in range(max_histories):
            divergence = play_history(seed, Tally())
            if divergence is not None:
                return seed + 1, divergence
    return None


def _in_schedule(name: str, matches: Callable[[ast.AST], bool], change: Change) -> Fault:
    return Fault(name, Scheduler, "schedule", mutate(Scheduler.schedule, matches, change))


def _after_init(name: str, owner: type, change: Callable[..., None]) -> Fault:
    """Make a fault that changes an object right after its construction."""
    original = getattr(owner, "__init__")  # noqa: B009  mypy distrusts it otherwise

    def construct(self: object, *arguments: object, **keywords: object) -> None:
        original(self, *arguments, **keywords)
        change(self)

    return Fault(name, owner, "__init__", construct)


def _raise_watermark(manager: KVCacheManager) -> None:
    manager.watermark_blocks += manager.watermark_blocks > 0


def _shorten_interval(scheduler: Scheduler) -> None:
    scheduler.local_prefill_interval = max(1, scheduler.local_prefill_interval - 1)


def _forget_sampled_token(scheduler: Scheduler) -> None:
    scheduler.num_sampled_tokens_per_step = 0


def _victim_is_most_important(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    node.func = ast.Name("min", ast.Load())
    return node


def _from_the_start(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Subscript)
    return node.value


def _first_choice(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.IfExp)
    return node.body


def _wrapped(owner: type, attribute: str, name: str, wrap: Callable[..., Callable[..., object]]) -> Fault:
    return Fault(name, owner, attribute, wrap(getattr(owner, attribute)))


FAULTS = (
    _after_init("the watermark is one block too high", KVCacheManager, _raise_watermark),
    _in_schedule("a victim's tokens are not given back", is_augmented(ast.Add, "token_budget"), remove),
    _in_schedule(
        "a victim's input positions are not given back", is_augmented(ast.Add, "input_budget"), remove
    ),
    _in_schedule(
        "a victim ahead of the cursor does not move it", is_augmented(ast.Sub, "req_index"), remove
    ),
    _in_schedule("the victim is the most important one", is_call_of("max"), _victim_is_most_important),
    _in_schedule(
        "a lone request is cut by the threshold",
        is_choice_of("long_prefill_token_threshold"),
        _first_choice,
    ),
    _in_schedule("stale output is not waited for", is_if_about("num_stale_output_tokens"), remove),
    _in_schedule("lack of capacity is not noted", is_assignment_to("prefill_capacity_bound"), remove),
    Fault(
        "stale output that was to be dropped is delivered",
        Scheduler,
        "update_from_output",
        mutate(Scheduler.update_from_output, is_if_about("drop_stale_output"), remove),
    ),
    Fault(
        "a reset leaves the last batch known",
        Scheduler,
        "reset_prefix_cache",
        mutate(Scheduler.reset_prefix_cache, is_call_on("prev_step_scheduled_req_ids", "clear"), remove),
    ),
    _wrapped(
        KVCacheManager,
        "allocate_slots",
        "the watermark is kept while nothing runs",
        lambda original: (
            lambda *args, **options: original(*args, **{**options, "has_scheduled_reqs": True})
        ),
    ),
    _wrapped(
        KVCacheManager,
        "allocate_slots",
        "the full length is not asked for",
        lambda original: (
            lambda *args, **options: original(*args, **{**options, "full_sequence_must_fit": False})
        ),
    ),
    _after_init("the prefill interval is one step short", Scheduler, _shorten_interval),
    _after_init("no room is kept for the sampled token", Scheduler, _forget_sampled_token),
    _wrapped(
        BlockPool,
        "free_blocks",
        "blocks are freed head first",
        lambda original: lambda self, blocks: original(self, list(blocks)[::-1]),
    ),
    Fault(
        "a block gets the hash of an earlier one",
        BlockPool,
        "cache_full_blocks",
        mutate(
            BlockPool.cache_full_blocks, is_slice_of("block_hashes", "num_cached_blocks"), _from_the_start
        ),
    ),
    Fault(
        "a hit takes the block cached last",
        BlockHashToBlockMap,
        "get_one_block",
        lambda self, key: (
            list(found.values())[-1] if isinstance(found := self._cache.get(key), dict) else found
        ),
    ),
    _wrapped(
        KVCacheManager,
        "get_computed_blocks",
        "the last token is not computed anew",
        lambda original: lambda self, request, _=None: original(self, request, request.num_tokens),
    ),
    Fault(
        "a preempted request goes to the back",
        FCFSRequestQueue,
        "prepend_request",
        FCFSRequestQueue.add_request,
    ),
    Fault(
        "an output may be one token longer than the model",
        scheduler_module,
        "check_stop",
        lambda request, max_model_len, check=scheduler_module.check_stop: check(request, max_model_len + 1),
    ),
    _wrapped(
        SingleTypeKVCacheManager,
        "get_num_blocks_to_allocate",
        "a hit on a free block is not counted as needed",
        lambda original: (
            lambda self, request_id, num_tokens, hit, *rest, **options: (
                original(self, request_id, num_tokens, hit, *rest, **options)
                - self._get_num_evictable_blocks(hit)
            )
        ),
    ),
)
"""All faults."""


def main() -> int:
    """Run the command; give the number of faults that were not found."""
    num_missed = 0
    for fault in FAULTS:
        found = find_fault(fault)
        if found is None:
            num_missed += 1
            print(f"NOT FOUND in {MAX_HISTORIES} histories: {fault.name}")
        else:
            num_histories, divergence = found
            print(f"{num_histories:4} histories: {fault.name}  ({divergence.difference.path})")
    return num_missed


if __name__ == "__main__":
    sys.exit(main())
