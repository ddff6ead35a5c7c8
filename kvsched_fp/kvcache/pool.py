"""The block pool: reference counts, the free list and the prefix index.

Rules
-----
[K-POOL-01] Block 0 is the null block. No request holds it, and it is never free and never cached; of
    the sizes, only `num_blocks` includes it.
[K-POOL-02] Any other block is in the free list exactly when its reference count is zero. A free block may
    still be cached; it loses its key when it is taken.
[K-POOL-03] The free list is in eviction order: blocks are taken from the front. A block whose last
    reference is released goes to the front when it has no key or caching is off, in the order of the
    release; else to the back.
[K-POOL-04] Several blocks may be cached under one key (nobody looks for duplicates before a block
    fills). A look-up answers the one cached first.
[K-POOL-05] Equal free orders are equal values: a block that is not free links to `NOT_FREE`.

The free list is the reference's doubly linked list, held in two vectors indexed by block id, with one
sentinel behind the last id that is both the front's predecessor and the back's successor. So a block
in the middle leaves in constant time.

`BlockPool` is the value. `OpenPool` is the transient of one call: it is opened from a pool, changed,
and closed into a new pool; it never escapes the public function that opened it.

Upstream: `v1/core/block_pool.py::BlockPool`, `v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from kvsched_fp.errors import OracleBug
from kvsched_fp.ids import BlockId, BlockKey
from kvsched_fp.kvcache.chunked import (
    MASK,
    SHIFT,
    IntVector,
    ObjectVector,
    OpenIntVector,
    OpenObjectVector,
    make_int_vector,
    make_object_vector,
)
from kvsched_fp.kvcache.layered import LayeredMap, OpenLayeredMap
from kvsched_fp.records import quick_constructor

NULL_BLOCK = BlockId(0)
NOT_FREE = -1


class BlockLookup(Protocol):
    """What a prefix look-up needs of a pool."""

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None."""
        ...


@attrs.frozen(weakref_slot=False)
class BlockPool:
    """All blocks of one KV cache memory."""

    num_blocks: int
    """The size of the pool, null block included; also the id of the sentinel."""
    num_free_blocks: int
    """The length of the free list."""
    next_free: IntVector
    """The free list [K-POOL-05], forwards; the sentinel's successor is the front."""
    prev_free: IntVector
    """The free list, backwards; the sentinel's predecessor is the back."""
    ref_counts: IntVector
    """How many block tables hold each block."""
    keys: ObjectVector[BlockKey | None]
    """The key that each block is cached under, or None."""
    cached: LayeredMap[BlockKey, BlockId | tuple[BlockId, ...]]
    """The prefix index: key -> the block cached under it; of several, a tuple, the first cached first."""

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is not free, from 0.0 to 1.0."""
        return _usage(self.num_blocks, self.num_free_blocks)

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None [K-POOL-04]."""
        blocks = self.cached.get(key)
        return None if blocks is None else as_tuple(blocks)[0]

    def free_blocks(self) -> list[BlockId]:
        """List the free blocks in eviction order."""
        following = list(self.next_free)
        order = []
        block_id = following[self.num_blocks]
        while block_id != self.num_blocks:
            order.append(BlockId(block_id))
            block_id = following[block_id]
        return order


_make_block_pool = quick_constructor(BlockPool)


def make_pool(num_blocks: int) -> BlockPool:
    """Make a pool of `num_blocks` blocks in id order, the null block taken out [K-POOL-01]."""
    last = num_blocks - 1
    return BlockPool(
        num_blocks=num_blocks,
        num_free_blocks=last,
        next_free=make_int_vector([NOT_FREE, *range(2, num_blocks + 1), 1]),
        prev_free=make_int_vector([NOT_FREE, num_blocks, *range(1, last), last]),
        ref_counts=make_int_vector([0] * num_blocks),
        keys=make_object_vector([None] * num_blocks),
        cached=LayeredMap(),
    )


def clear_prefix_index(pool: BlockPool) -> BlockPool:
    """Forget every key; counts and free order stay. Cost: the size of the pool."""
    return attrs.evolve(pool, keys=make_object_vector([None] * pool.num_blocks), cached=LayeredMap())


def as_tuple(blocks: BlockId | tuple[BlockId, ...]) -> tuple[BlockId, ...]:
    """Give the blocks of one entry of the prefix index, the first cached first.

    Nearly every key has one block; without a tuple around it, the garbage collector has less to visit.
    """
    return blocks if isinstance(blocks, tuple) else (blocks,)


def _usage(num_blocks: int, num_free_blocks: int) -> float:
    return 1.0 - num_free_blocks / (num_blocks - 1)


class OpenPool:
    """The transient of a `BlockPool`, alive within one call."""

    __slots__ = (
        "_before",
        "_cached",
        "_keys",
        "_next",
        "_num_blocks",
        "_prev",
        "_ref_counts",
        "num_free_blocks",
    )

    def __init__(self, pool: BlockPool) -> None:
        self._before = pool
        self._num_blocks = pool.num_blocks
        self.num_free_blocks = pool.num_free_blocks
        self._next = OpenIntVector(pool.next_free)
        self._prev = OpenIntVector(pool.prev_free)
        self._ref_counts = OpenIntVector(pool.ref_counts)
        self._keys = OpenObjectVector(pool.keys)
        self._cached = OpenLayeredMap(pool.cached)

    def close(self) -> BlockPool:
        """Freeze into a value. The transient must not be used afterwards."""
        cached = self._cached.close()
        opened = (self._next, self._prev, self._ref_counts, self._keys)
        if cached is self._before.cached and not any(opened):
            return self._before
        return _make_block_pool(
            self._num_blocks,
            self.num_free_blocks,
            self._next.close(),
            self._prev.close(),
            self._ref_counts.close(),
            self._keys.close(),
            cached,
        )

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is not free, from 0.0 to 1.0."""
        return _usage(self._num_blocks, self.num_free_blocks)

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None [K-POOL-04]."""
        blocks = self._cached.get(key)
        return None if blocks is None else as_tuple(blocks)[0]

    def key_of(self, block_id: int) -> BlockKey | None:
        """Give the key that the block is cached under, or None."""
        return self._keys[block_id >> SHIFT][block_id & MASK]

    def count_evictable(self, block_ids: Iterable[BlockId]) -> int:
        """Count the blocks that nobody holds: taking them over shortens the free list."""
        ref_counts = self._ref_counts
        return sum(ref_counts[block_id >> SHIFT][block_id & MASK] == 0 for block_id in block_ids)

    def count_held_only_by(self, num_entries: Mapping[int, int]) -> int:
        """Count the blocks that nobody holds but these table entries: so many would become free."""
        ref_counts = self._ref_counts
        return sum(
            ref_counts[block_id >> SHIFT][block_id & MASK] == num for block_id, num in num_entries.items()
        )

    def take(self, num_blocks: int) -> tuple[tuple[BlockId, ...], list[BlockKey]]:
        """Take blocks from the front of the free list, each with one reference.

        Gives the blocks, and the keys that they lost by it, in that order [K-POOL-02].
        """
        if num_blocks > self.num_free_blocks:
            raise OracleBug(f"{num_blocks} blocks wanted, {self.num_free_blocks} free")
        next_free, prev_free, ref_counts, keys = self._next, self._prev, self._ref_counts, self._keys
        taken: list[int] = []
        lost: list[BlockKey] = []
        sentinel = self._num_blocks
        following = next_free[sentinel >> SHIFT][sentinel & MASK]
        chunk = -1
        for _ in range(num_blocks):
            block_id, index = following, following & MASK
            if block_id >> SHIFT != chunk:  # neighbours in the list are mostly neighbours in memory
                chunk = block_id >> SHIFT
                next_chunk, prev_chunk = next_free[chunk], prev_free[chunk]
                count_chunk, key_chunk = ref_counts[chunk], keys[chunk]
            following = next_chunk[index]
            next_chunk[index] = prev_chunk[index] = NOT_FREE
            count_chunk[index] = 1
            key = key_chunk[index]
            if key is not None:
                self._uncache(BlockId(block_id), key)
                lost.append(key)
            taken.append(block_id)
        self._link(sentinel, following)
        self.num_free_blocks -= num_blocks
        return tuple(taken), lost  # type: ignore[arg-type]  # a cast would cost a call

    def touch(self, block_ids: Iterable[BlockId]) -> None:
        """Add a reference to each block; one that was free leaves the free list."""
        for block_id in block_ids:
            chunk, index = block_id >> SHIFT, block_id & MASK
            count = self._ref_counts[chunk][index]
            if count == 0:
                self._link(self._prev[chunk][index], self._next[chunk][index])
                self._next[chunk][index] = self._prev[chunk][index] = NOT_FREE
                self.num_free_blocks -= 1
            self._ref_counts[chunk][index] = count + 1

    def release(self, block_ids: Iterable[int], *, enable_caching: bool) -> None:
        """Drop a reference to each block; the ones that nobody holds become free [K-POOL-03]."""
        evict_first: list[int] = []
        evict_last: list[int] = []
        for block_id in block_ids:
            chunk, index = block_id >> SHIFT, block_id & MASK
            count = self._ref_counts[chunk][index] - 1
            if count < 0:
                raise OracleBug(f"block {block_id} was released more often than taken")
            self._ref_counts[chunk][index] = count
            if count == 0:
                cached = enable_caching and self._keys[chunk][index] is not None
                (evict_last if cached else evict_first).append(block_id)
        sentinel = self._num_blocks
        chunk, index = sentinel >> SHIFT, sentinel & MASK
        self._splice(sentinel, evict_first, self._next[chunk][index])
        self._splice(self._prev[chunk][index], evict_last, sentinel)
        self.num_free_blocks += len(evict_first) + len(evict_last)

    def cache(self, block_ids: Sequence[BlockId], new_keys: Sequence[BlockKey]) -> None:
        """Enter full blocks into the prefix index, each under its key."""
        keys = self._keys
        entries: dict[BlockKey, BlockId | tuple[BlockId, ...]] = {}
        for number, block_id in enumerate(block_ids):
            key = new_keys[number]
            chunk, index = keys[block_id >> SHIFT], block_id & MASK
            if chunk[index] is not None:
                raise OracleBug(f"block {block_id} is cached already")
            chunk[index] = key
            entries[key] = block_id
        if len(entries) < len(new_keys) or not self._cached.add_if_all_new(entries):
            self._cache_beside(block_ids, new_keys)

    def _cache_beside(self, block_ids: Sequence[BlockId], new_keys: Sequence[BlockKey]) -> None:
        """Enter blocks into the index behind those that are cached under their key [K-POOL-04]."""
        cached = self._cached
        for block_id, key in zip(block_ids, new_keys, strict=True):
            earlier = cached.get(key)
            cached[key] = block_id if earlier is None else (*as_tuple(earlier), block_id)

    def _uncache(self, block_id: BlockId, key: BlockKey) -> None:
        self._keys[block_id >> SHIFT][block_id & MASK] = None
        blocks = self._cached.get(key)
        if isinstance(blocks, tuple):
            remaining = tuple(other for other in blocks if other != block_id)
            self._cached[key] = remaining[0] if len(remaining) == 1 else remaining
        else:
            self._cached.remove(key)

    def _link(self, before: int, after: int) -> None:
        self._next[before >> SHIFT][before & MASK] = after
        self._prev[after >> SHIFT][after & MASK] = before

    def _splice(self, before: int, block_ids: Sequence[int], after: int) -> None:
        if not block_ids:
            return
        for block_id in block_ids:
            self._link(before, block_id)
            before = block_id
        self._link(before, after)
