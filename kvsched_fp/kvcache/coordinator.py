"""The KV cache of all groups: one pool, one block table per request and group.

Rules
-----
[K-TAB-01] A request's table in a group lists its blocks in token order; block i holds the tokens
    from i * block_size on. Tables only grow, until all is given back at once.
[K-TAB-02] `num_cached_blocks` of a table is how many blocks at its front are in the prefix index on
    behalf of this request, hits included.
[K-HIT-01] A prefix hit begins with the first token, and goes on for as long as every group has the next
    full block cached.
[K-HIT-02] At least one known token is always computed anew, since its logits are needed: a hit covers
    at most `num_tokens - 1` tokens, rounded down to full blocks.
[K-HIT-03] With `drop_eagle_block`, a hit gives up its last block: the drafter needs what the model
    computed there. With several groups, the run that it is taken from may be longer by one block than
    [K-HIT-02] allows.
[K-CACHE-01] A block is entered into the prefix index when the step that fills it is scheduled.
[K-CACHE-03] What the drafter may compute again is not entered yet: the last
    `num_prefill_lookahead_tokens` - 1 tokens.
[K-CACHE-02] Each block that is entered or loses its key is reported, in the order in which it happens:
    in one allocation, the keys lost by taking blocks come before the blocks stored.

Upstream: `v1/core/kv_cache_coordinator.py`, `v1/core/single_type_kv_cache_manager.py`,
`v1/core/block_pool.py::cache_full_blocks`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import attrs
from immutables import Map

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.ids import BlockHash, BlockId, BlockKey, RequestId
from kvsched_fp.kvcache.chunked import IntVector
from kvsched_fp.kvcache.hashing import extra_keys_of_block, key_suffix, split_block_key
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from kvsched_fp.kvcache.pool import BlockPool, OpenPool, clear_prefix_index, make_pool
from kvsched_fp.outputs import BlockIds, PrefixCacheStats
from kvsched_fp.progress import Progress, known_tokens
from kvsched_fp.records import quick_constructor
from kvsched_fp.request import Request


@attrs.frozen(weakref_slot=False)
class GroupTable:
    """The blocks of one request in one group [K-TAB-01]."""

    block_ids: IntVector = IntVector()
    """In token order."""
    num_cached_blocks: int = 0
    """Blocks at the front that are in the prefix index [K-TAB-02]."""


_make_group_table = quick_constructor(GroupTable)

Grown: TypeAlias = tuple[IntVector, tuple[BlockId, ...]]
"""The blocks of a table, and those of them, at the end, that were taken just now."""


@attrs.frozen(weakref_slot=False)
class KVCache:
    """The KV cache memory as a value."""

    pool: BlockPool
    """The blocks, shared by all groups."""
    tables: Map[RequestId, tuple[GroupTable, ...]] = Map()
    """Per request that holds blocks, one table per group."""
    pending_events: tuple[KVCacheEvent, ...] = ()
    """Events since the last update."""
    prefix_cache_stats: PrefixCacheStats = PrefixCacheStats()
    """Look-ups since the last report."""

    def block_ids(self, request_id: RequestId) -> BlockIds | None:
        """Give the blocks of a request, per group; None if it holds none."""
        tables = self.tables.get(request_id)
        if tables is None:
            return None
        return tuple(as_block_ids(table.block_ids) for table in tables)


_make_kv_cache = quick_constructor(KVCache)


def as_block_ids(block_ids: Iterable[int]) -> tuple[BlockId, ...]:
    """Give unpacked integers their name back."""
    return tuple(block_ids)  # type: ignore[arg-type]  # a cast would cost a call, in every row


def make_kv_cache(config: SchedulerConfig) -> KVCache:
    """Make an empty cache."""
    return KVCache(pool=make_pool(config.num_blocks))


class OpenKVCache:
    """The transient of a `KVCache`, alive within one call."""

    __slots__ = (
        "config",
        "events",
        "new_block_ids",
        "no_block_ids",
        "num_reprefillable_tokens",
        "pool",
        "stats",
        "tables",
    )

    def __init__(self, kv: KVCache, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = OpenPool(kv.pool)
        self.tables = kv.tables.mutate()
        self.events: list[KVCacheEvent] = list(kv.pending_events)
        self.stats = kv.prefix_cache_stats
        # Per group, the blocks handed out in this call, if they are to be zeroed.
        groups = config.kv_cache_groups if config.needs_kv_cache_zeroing else ()
        self.new_block_ids: list[list[BlockId]] = [[] for _ in groups]
        self.num_reprefillable_tokens = config.num_reprefillable_tokens
        self.no_block_ids: BlockIds = ((),) * len(config.kv_cache_groups)

    def close(self) -> KVCache:
        """Freeze into a value. The transient must not be used afterwards."""
        return _make_kv_cache(self.pool.close(), self.tables.finish(), tuple(self.events), self.stats)


def find_longest_cache_hit(kv: OpenKVCache, block_hashes: Sequence[BlockHash], num_tokens: int) -> BlockIds:
    """Look a request of `num_tokens` known tokens up; per group the blocks hit [K-HIT-01, K-HIT-02].

    All groups are of one kind and block size here, so one joint scan finds the common prefix.
    """
    groups = kv.config.kv_cache_groups
    max_length = num_tokens - 1
    if kv.config.drop_eagle_block and len(groups) > 1:
        max_length += kv.config.block_size
    hits = groups[0].find_longest_cache_hit(kv.pool, block_hashes, max_length, range(len(groups)))
    if kv.config.drop_eagle_block:
        return tuple(hit[:-1] for hit in hits)  # [K-HIT-03]
    return hits


def take_blocks(kv: OpenKVCache, group_index: int, num_blocks: int) -> tuple[BlockId, ...]:
    """Take blocks for one group from the pool; keys that are lost by it become events [K-CACHE-02]."""
    taken, lost_keys = kv.pool.take(num_blocks)
    if kv.config.enable_kv_cache_events:
        kv.events.extend(map(_removed_event, lost_keys))
    if kv.config.needs_kv_cache_zeroing:
        kv.new_block_ids[group_index].extend(taken)
    return taken


def release_blocks(kv: OpenKVCache, request_id: RequestId) -> None:
    """Give back all blocks of a request, group by group, the tail first: it is evicted first."""
    for table in kv.tables.pop(request_id, ()):
        kv.pool.release(reversed(table.block_ids), enable_caching=kv.config.enable_prefix_caching)


def count_reclaimable(kv: OpenKVCache, request_ids: Iterable[RequestId]) -> int:
    """Count the blocks that become free if all of these requests give theirs back."""
    tables = [table for request_id in request_ids for table in kv.tables.get(request_id, ())]
    return kv.pool.count_held_only_by(Counter(chain.from_iterable(table.block_ids for table in tables)))


def cache_full_blocks(
    kv: OpenKVCache,
    request: Request,
    progress: Progress,
    tables: tuple[GroupTable, ...],
    num_tokens: int,
    grown: Sequence[Grown] | None = None,
) -> tuple[GroupTable, ...]:
    """Enter the blocks that the first `num_tokens` tokens fill into the prefix index [K-CACHE-01].

    `grown` has the blocks of all tables where any has grown. Gives the tables with those, and with their
    new `num_cached_blocks`.
    """
    num_full_blocks = 0
    if kv.config.enable_prefix_caching:
        num_settled = num_tokens - kv.num_reprefillable_tokens  # [K-CACHE-03]
        num_full_blocks = min(num_settled // kv.config.block_size, len(progress.block_hashes))
    if grown is None:
        for table in tables:
            if table.num_cached_blocks < num_full_blocks:
                break
        else:
            return tables
        grown = [(table.block_ids, ()) for table in tables]
    changed = []
    for group_index, blocks in enumerate(grown):
        num_cached_blocks = tables[group_index].num_cached_blocks
        if num_cached_blocks < num_full_blocks:
            _cache_blocks(kv, request, progress, group_index, blocks, num_cached_blocks, num_full_blocks)
            num_cached_blocks = num_full_blocks
        changed.append(_make_group_table(blocks[0], num_cached_blocks))
    return tuple(changed)


def _cache_blocks(
    kv: OpenKVCache,
    request: Request,
    progress: Progress,
    group_index: int,
    blocks: Grown,
    start: int,
    end: int,
) -> None:
    """Enter the blocks of one group from `start` to `end` (exclusive)."""
    block_ids, taken = blocks
    # A session may grow beyond `max_model_len`, for which there are no blocks (deviation D-11).
    end = min(end, block_ids.length)
    hashes = progress.block_hashes[start:end]
    if not hashes:
        return
    suffix = key_suffix(group_index)
    keys: list[BlockKey] = [block_hash + suffix for block_hash in hashes]  # type: ignore[misc]
    first_taken = block_ids.length - len(taken)
    if start >= first_taken:  # which spares unpacking them again
        full = taken[start - first_taken : end - first_taken]
    else:
        full = as_block_ids(block_ids.between(start, end))
    kv.pool.cache(full, keys)
    if kv.config.enable_kv_cache_events:  # [K-CACHE-02]
        kv.events.append(_stored_event(kv.config, request, progress, start, hashes, group_index))


def num_cached_tokens(kv: OpenKVCache, request_id: RequestId) -> int:
    """Count the tokens of a request that the prefix index holds in every group."""
    tables = kv.tables.get(request_id)
    if tables is None:
        return 0
    return min(_num_cached_tokens_in(kv, table.block_ids) for table in tables)


def _num_cached_tokens_in(kv: OpenKVCache, block_ids: IntVector) -> int:
    for index in range(len(block_ids) - 1, -1, -1):
        if kv.pool.key_of(block_ids[index]) is not None:
            return (index + 1) * kv.config.block_size
    return 0


def reset_prefix_cache(kv: KVCache, config: SchedulerConfig) -> tuple[KVCache, bool]:
    """Empty the prefix index, if no block is held; tell whether it was done [K-RESET-01]."""
    if kv.pool.num_free_blocks != kv.pool.num_blocks - 1:
        return kv, False
    events = kv.pending_events
    if config.enable_kv_cache_events:
        events = (*events, AllBlocksCleared())
    stats = kv.prefix_cache_stats
    if config.log_stats:
        stats = attrs.evolve(stats, reset=True)
    return KVCache(clear_prefix_index(kv.pool), kv.tables, events, stats), True


def _removed_event(key: BlockKey) -> BlockRemoved:
    block_hash, group_index = split_block_key(key)
    return BlockRemoved((block_hash,), group_index)


def _stored_event(
    config: SchedulerConfig,
    request: Request,
    progress: Progress,
    first_block: int,
    block_hashes: tuple[BlockHash, ...],
    group_index: int,
) -> BlockStored:
    end_block = first_block + len(block_hashes)
    block_size = config.block_size
    return BlockStored(
        block_hashes=block_hashes,
        parent_block_hash=progress.block_hashes[first_block - 1] if first_block else None,
        token_ids=known_tokens(request, progress, first_block * block_size, end_block * block_size),
        block_size=block_size,
        extra_keys=tuple(_event_keys(range(first_block, end_block), request)),
        group_index=group_index,
        lora_id=None if request.lora is None else request.lora.lora_id,
        lora_name=None if request.lora is None else request.lora.name,
        lookahead_token_ids=_lookahead_token_ids(config, request, progress, range(first_block, end_block)),
    )


def _event_keys(block_indices: Iterable[int], request: Request) -> Iterable[tuple[str, ...] | None]:
    for block_index in block_indices:
        keys = extra_keys_of_block(block_index, request.cache_salt, request.lora)
        yield None if keys is None else tuple(key[1] for key in keys)


def _lookahead_token_ids(
    config: SchedulerConfig, request: Request, progress: Progress, block_indices: Iterable[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Give the tokens behind each block that its hash covers [K-HASH-04]."""
    num_tokens = config.num_hash_lookahead_tokens
    if not num_tokens:
        return None
    ends = [(block_index + 1) * config.block_size for block_index in block_indices]
    return tuple(known_tokens(request, progress, end, end + num_tokens) for end in ends)
