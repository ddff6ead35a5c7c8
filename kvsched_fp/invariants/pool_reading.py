"""The block pool as plain lists and tuples: a walk over all blocks reads a vector once, in C."""

from array import array
from collections.abc import Mapping
from itertools import chain
from typing import TypeVar

from kvsched_fp.ids import BlockId, BlockKey
from kvsched_fp.kvcache.chunked import IntVector, ObjectVector
from kvsched_fp.kvcache.kv_events import BlockRemoved, BlockStored
from kvsched_fp.kvcache.pool import as_tuple

T = TypeVar("T")


def integers(vector: IntVector) -> list[int]:
    """Unpack a vector of integers."""
    chunks = vector.chunks
    return array("i", chunks[0] if len(chunks) == 1 else b"".join(chunks)).tolist()


def objects(vector: ObjectVector[T]) -> list[T]:
    """Unpack a vector of anything."""
    chunks = vector.chunks
    return list(chunks[0] if len(chunks) == 1 else chain.from_iterable(chunks))


def blocks_under(
    cached: Mapping[BlockKey, BlockId | tuple[BlockId, ...]], key: BlockKey
) -> tuple[BlockId, ...]:
    """Give the blocks that stand under `key`; none if there is no such key."""
    blocks = cached.get(key)
    return () if blocks is None else as_tuple(blocks)


def named_keys(event: BlockStored | BlockRemoved) -> list[BlockKey]:
    """List the keys of the prefix index that an event names."""
    suffix = event.group_index.to_bytes(4, "big")
    return [BlockKey(block_hash + suffix) for block_hash in event.block_hashes]


def elements_from(vector: IntVector, start: int) -> tuple[int, ...]:
    """Give the elements of a table from `start` on."""
    return tuple(vector.between(start, len(vector)))
