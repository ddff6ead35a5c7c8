"""The block pool: reference counts, the free list and the prefix index.

Rules
-----
[K-POOL-01] Block 0 is the null block. It is never free, never counted and never cached.
[K-POOL-02] A block is in the free list exactly when its reference count is zero. A free block may
    still be cached; it loses its key when it is taken.
[K-POOL-03] The free list is in eviction order: blocks are taken from the front. A released block
    goes to the front when it has no key or caching is off, in the order of the release; else to
    the back.
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

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs
from immutables import Map
from pyrsistent import PVector, pvector

from kvsched_fp.errors import OracleBug
from kvsched_fp.ids import BlockId, BlockKey

NULL_BLOCK = BlockId(0)
NOT_FREE = -1


class BlockLookup(Protocol):
    """What a prefix look-up needs of a pool."""

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None."""
        ...


@attrs.frozen
class BlockPool:
    """All blocks of one KV cache memory. Vectors are indexed by block id."""

    next_free: PVector[int]
    """The free list, forwards; `NOT_FREE` where the block is not in it. Last entry: the front."""
    prev_free: PVector[int]
    """The free list, backwards. Last entry: the back."""
    num_free_blocks: int
    """The length of the free list."""
    ref_counts: PVector[int]
    """How many block tables hold the block."""
    keys: PVector[BlockKey | None]
    """The key that the block is cached under, or None."""
    cached: Map[BlockKey, tuple[BlockId, ...]]
    """The prefix index: key -> the blocks cached under it, the first cached first."""

    @property
    def num_blocks(self) -> int:
        """The size of the pool, null block included."""
        return len(self.ref_counts)

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is not free, from 0.0 to 1.0."""
        return _usage(self.num_blocks, self.num_free_blocks)

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None [K-POOL-04]."""
        blocks = self.cached.get(key)
        return None if blocks is None else blocks[0]

    def free_blocks(self) -> list[BlockId]:
        """List the free blocks in eviction order."""
        sentinel = self.num_blocks
        order = []
        block_id = self.next_free[sentinel]
        while block_id != sentinel:
            order.append(BlockId(block_id))
            block_id = self.next_free[block_id]
        return order


def make_pool(num_blocks: int) -> BlockPool:
    """Make a pool of `num_blocks` blocks in id order, the null block taken out [K-POOL-01]."""
    next_free = [NOT_FREE, *range(2, num_blocks + 1), 1]
    prev_free = [NOT_FREE, num_blocks, *range(1, num_blocks)]
    if num_blocks == 1:
        next_free, prev_free = [NOT_FREE, 1], [NOT_FREE, 1]
    return BlockPool(
        next_free=pvector(next_free),
        prev_free=pvector(prev_free),
        num_free_blocks=num_blocks - 1,
        ref_counts=pvector([0] * num_blocks),
        keys=pvector([None] * num_blocks),
        cached=Map(),
    )


def clear_prefix_index(pool: BlockPool) -> BlockPool:
    """Forget every key; counts and free order stay. Cost: the size of the pool."""
    return attrs.evolve(pool, keys=pvector([None] * pool.num_blocks), cached=Map())


def _usage(num_blocks: int, num_free_blocks: int) -> float:
    num_usable_blocks = num_blocks - 1
    return 1.0 - num_free_blocks / num_usable_blocks if num_usable_blocks else 0.0


class OpenPool:
    """The transient of a `BlockPool`, alive within one call."""

    __slots__ = (
        "_cached",
        "_keys",
        "_next",
        "_prev",
        "_ref_counts",
        "_sentinel",
        "num_free_blocks",
    )

    def __init__(self, pool: BlockPool) -> None:
        self._next = pool.next_free.evolver()
        self._prev = pool.prev_free.evolver()
        self._ref_counts = pool.ref_counts.evolver()
        self._keys = pool.keys.evolver()
        self._cached = pool.cached.mutate()
        self._sentinel = pool.num_blocks
        self.num_free_blocks = pool.num_free_blocks

    def close(self) -> BlockPool:
        """Freeze into a value. The transient must not be used afterwards."""
        return BlockPool(
            self._next.persistent(),
            self._prev.persistent(),
            self.num_free_blocks,
            self._ref_counts.persistent(),
            self._keys.persistent(),
            self._cached.finish(),
        )

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is not free, from 0.0 to 1.0."""
        return _usage(self._sentinel, self.num_free_blocks)

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Give the block that was cached first under `key`, or None [K-POOL-04]."""
        blocks = self._cached.get(key)
        return None if blocks is None else blocks[0]

    def key_of(self, block_id: BlockId) -> BlockKey | None:
        """Give the key that the block is cached under, or None."""
        return self._keys[block_id]

    def count_evictable(self, block_ids: Iterable[BlockId]) -> int:
        """Count the blocks that nobody holds: taking them over shortens the free list."""
        ref_counts = self._ref_counts
        return sum(ref_counts[block_id] == 0 for block_id in block_ids)

    def take(self, num_blocks: int) -> tuple[list[BlockId], list[BlockKey]]:
        """Take blocks from the front of the free list, each with one reference.

        Gives the blocks, and the keys that they lost by it, in that order [K-POOL-02].
        """
        if num_blocks > self.num_free_blocks:
            raise OracleBug(f"{num_blocks} blocks wanted, {self.num_free_blocks} free")
        taken: list[BlockId] = []
        lost: list[BlockKey] = []
        block_id = self._next[self._sentinel]
        for _ in range(num_blocks):
            following = self._next[block_id]
            self._next[block_id] = self._prev[block_id] = NOT_FREE
            self._ref_counts[block_id] = 1
            key = self._keys[block_id]
            if key is not None:
                self._uncache(BlockId(block_id), key)
                lost.append(key)
            taken.append(BlockId(block_id))
            block_id = following
        self._link(self._sentinel, block_id)
        self.num_free_blocks -= num_blocks
        return taken, lost

    def touch(self, block_ids: Iterable[BlockId]) -> None:
        """Add a reference to each block; one that was free leaves the free list."""
        for block_id in block_ids:
            count = self._ref_counts[block_id]
            if count == 0:
                self._link(self._prev[block_id], self._next[block_id])
                self._next[block_id] = self._prev[block_id] = NOT_FREE
                self.num_free_blocks -= 1
            self._ref_counts[block_id] = count + 1

    def release(self, block_ids: Iterable[BlockId], *, enable_caching: bool) -> None:
        """Drop a reference to each block; the ones that nobody holds become free [K-POOL-03]."""
        evict_first: list[BlockId] = []
        evict_last: list[BlockId] = []
        for block_id in block_ids:
            count = self._ref_counts[block_id] - 1
            if count < 0:
                raise OracleBug(f"block {block_id} was released more often than taken")
            self._ref_counts[block_id] = count
            if count == 0:
                cached = enable_caching and self._keys[block_id] is not None
                (evict_last if cached else evict_first).append(block_id)
        self._splice(self._sentinel, evict_first, self._next[self._sentinel])
        self._splice(self._prev[self._sentinel], evict_last, self._sentinel)
        self.num_free_blocks += len(evict_first) + len(evict_last)

    def cache(self, block_id: BlockId, key: BlockKey) -> None:
        """Enter a full block into the prefix index."""
        if self._keys[block_id] is not None:
            raise OracleBug(f"block {block_id} is cached already")
        self._keys[block_id] = key
        self._cached[key] = (*self._cached.get(key, ()), block_id)

    def _uncache(self, block_id: BlockId, key: BlockKey) -> None:
        self._keys[block_id] = None
        blocks = self._cached[key]
        if len(blocks) == 1:
            del self._cached[key]
        else:
            self._cached[key] = tuple(other for other in blocks if other != block_id)

    def _link(self, before: int, after: int) -> None:
        self._next[before] = after
        self._prev[after] = before

    def _splice(self, before: int, block_ids: Sequence[BlockId], after: int) -> None:
        if not block_ids:
            return
        for block_id in block_ids:
            self._link(before, block_id)
            before = block_id
        self._link(before, after)
