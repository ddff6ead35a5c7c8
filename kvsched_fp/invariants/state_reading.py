"""What many predicates read of a state and of its pool."""

from typing import NamedTuple, TypeAlias

from kvsched_fp.ids import BlockKey, RequestId
from kvsched_fp.invariants.pool_reading import integers, objects
from kvsched_fp.invariants.shared import shared
from kvsched_fp.kvcache.pool import BlockPool
from kvsched_fp.progress import Progress
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState

Live: TypeAlias = tuple[RequestId, Request, Progress, int]
"""A live request: its id, itself, its progress, and how many tokens of it are known."""


class Places(NamedTuple):
    """The live requests, all of them and by where they stand."""

    live: list[Live]
    """All, in no order that means anything."""
    running: list[Live]
    """Those that run, in scheduling order."""
    waiting: list[Live]
    """Those that wait without blocks, in the order of their queue."""
    holding: list[Live]
    """Those that wait with blocks in hand, in the order of theirs."""


@shared
def places(state: SchedulerState) -> Places:
    """Look up all live requests. Raises `KeyError` where INV-QUEUE-03 or INV-QUEUE-04 is broken."""
    requests = state.requests
    live: list[Live] = []
    for request_id, progress in state.progress.items():
        request = requests[request_id]
        num_known = len(request.prompt_token_ids) + len(progress.output_token_ids)
        live.append((request_id, request, progress, num_known))
    found = {one[0]: one for one in live}
    return Places(
        live,
        [found[request_id] for request_id in state.running],
        [found[request_id] for request_id in state.waiting] if state.waiting else [],
        [found[request_id] for request_id in state.kv_holding_waiting] if state.kv_holding_waiting else [],
    )


class Unpacked(NamedTuple):
    """The columns of a pool as lists, and its free list."""

    ref_counts: list[int]
    """Per block, how many table entries hold it."""
    most_references: int
    """The largest of them."""
    keys: list[BlockKey | None]
    """Per block, its key in the prefix index."""
    next_free: list[int]
    """The forward links."""
    free: list[int]
    """The free blocks in order; at most all, and no further than the links make sense."""


@shared
def unpacked(pool: BlockPool) -> Unpacked:
    """Unpack a pool, and follow its forward links."""
    ref_counts, next_free = integers(pool.ref_counts), integers(pool.next_free)
    sentinel = len(next_free) - 1
    free: list[int] = []
    block_id = next_free[sentinel]
    while 0 <= block_id < sentinel and len(free) < sentinel:
        free.append(block_id)
        block_id = next_free[block_id]
    return Unpacked(ref_counts, max(ref_counts), objects(pool.keys), next_free, free)
