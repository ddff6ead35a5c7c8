"""Slots for tokens: does it fit, and which blocks does it get.

Rules
-----
[K-FIT-01] A request needs slots for its computed tokens, the new ones and the lookahead, at most
    `max_model_len`; what its table lacks is taken from the pool.
[K-FIT-02] A hit on a block that nobody holds takes that block out of the free list, so it counts as
    needed like a new one.
[K-FIT-03] At admission, the watermark is kept free on top of the need, while anything runs.
[K-FIT-04] With `scheduler_reserve_full_isl`, a request is admitted only if all its known tokens fit
    now (lookahead not counted), though only the first chunk is taken.
[K-FIT-05] What does not fit changes nothing.
[K-FIT-06] Hits are pinned in every group before the first new block is taken in any, so that no new
    block can be another group's hit.

Upstream: `v1/core/kv_cache_manager.py::allocate_slots`,
`v1/core/single_type_kv_cache_manager.py::get_num_blocks_to_allocate`,
`v1/core/kv_cache_coordinator.py::allocate_new_computed_blocks`.
"""

from kvsched_fp.kvcache.chunked import make_int_vector
from kvsched_fp.kvcache.coordinator import (
    GroupTable,
    Grown,
    OpenKVCache,
    as_block_ids,
    cache_full_blocks,
    take_blocks,
)
from kvsched_fp.outputs import BlockIds
from kvsched_fp.progress import Progress, num_known_tokens
from kvsched_fp.request import Request


def append_slots(
    kv: OpenKVCache, request: Request, progress: Progress, num_new_tokens: int
) -> BlockIds | None:
    """Give a running request slots for `num_new_tokens` more tokens.

    Gives the new blocks per group (often none), or None if they do not fit; then nothing changed.
    """
    config = kv.config
    tables = kv.tables[request.request_id]
    num_tokens = progress.num_computed_tokens + num_new_tokens
    num_missing = count_missing_blocks(kv, tables, num_tokens + config.num_lookahead_tokens)
    new_block_ids, grown = kv.no_block_ids, None
    if num_missing is not None:
        if sum(num_missing) > kv.pool.num_free_blocks:
            return None
        grown = _extend_tables(kv, tables, num_missing)
        new_block_ids = tuple([taken for _, taken in grown])
    num_tokens_to_cache = num_tokens
    if kv.num_reprefillable_tokens:  # else it makes no difference: what is not known has no hashes
        num_tokens_to_cache = min(num_tokens, num_known_tokens(request, progress))
    cached = cache_full_blocks(kv, request, progress, tables, num_tokens_to_cache, grown)
    if cached is not tables:
        kv.tables[request.request_id] = cached
    return new_block_ids


def admit_slots(
    kv: OpenKVCache,
    request: Request,
    progress: Progress,
    hit: BlockIds,
    num_computed_tokens: int,
    num_new_tokens: int,
    *,
    others_run: bool,
) -> BlockIds | None:
    """Give a waiting request its hit blocks and slots for its first `num_new_tokens` tokens.

    `num_computed_tokens` are covered by `hit`. Gives all its blocks per group, or None if they do
    not fit; then nothing changed [K-FIT-05].
    """
    config = kv.config
    headroom = config.watermark_blocks if others_run else 0  # [K-FIT-03]
    # A request that waits with blocks in hand has no hit, and one with a hit has no blocks.
    tables = kv.tables.get(request.request_id) or tuple(
        GroupTable(make_int_vector(block_ids), len(block_ids)) for block_ids in hit
    )
    num_evictable = sum(map(kv.pool.count_evictable, hit))  # [K-FIT-02]
    room = kv.pool.num_free_blocks - headroom - num_evictable
    num_known = num_known_tokens(request, progress)
    if config.scheduler_reserve_full_isl:
        num_sequence = min(num_known, config.max_model_len)
        if sum(count_missing_blocks(kv, tables, num_sequence) or ()) > room:
            return None  # [K-FIT-04]
    num_tokens = min(num_computed_tokens, config.max_model_len) + num_new_tokens
    num_missing = count_missing_blocks(kv, tables, num_tokens + config.num_lookahead_tokens)
    if sum(num_missing or ()) > room:
        return None
    for block_ids in hit:
        kv.pool.touch(block_ids)  # [K-FIT-06]
    grown = None
    if num_missing is not None:
        grown = _extend_tables(kv, tables, num_missing)
    num_tokens_to_cache = min(num_tokens, num_known)
    cached = cache_full_blocks(kv, request, progress, tables, num_tokens_to_cache, grown)
    kv.tables[request.request_id] = cached
    return tuple(as_block_ids(table.block_ids) for table in cached)


def count_missing_blocks(
    kv: OpenKVCache, tables: tuple[GroupTable, ...], num_tokens: int
) -> list[int] | None:
    """Count per group the blocks that a request lacks for `num_tokens` slots; None for none [K-FIT-01]."""
    groups, num_slots = kv.config.kv_cache_groups, min(num_tokens, kv.config.max_model_len)
    num_missing = None
    for group_index, table in enumerate(tables):
        num_more = groups[group_index].num_blocks_for(num_slots) - table.block_ids.length
        if num_more > 0:
            num_missing = num_missing or [0] * len(tables)
            num_missing[group_index] = num_more
    return num_missing


def _extend_tables(kv: OpenKVCache, tables: tuple[GroupTable, ...], num_missing: list[int]) -> list[Grown]:
    """Take the missing blocks, group by group; give the blocks of the tables with them."""
    grown = []
    for group_index, table in enumerate(tables):
        taken = take_blocks(kv, group_index, num_missing[group_index])
        grown.append((table.block_ids.extend(taken), taken))
    return grown
