"""The block pool as plain lists and tuples: a walk over all blocks reads a vector once, in C."""

from array import array
from collections.abc import Mapping
from itertools import chain
from typing import TypeVar

from kvsched_fp.ids import BlockId, BlockKey
from kvsched_fp.kvcache.chunked import IntVector, ObjectVector
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


def elements_from(vector: IntVector, start: int) -> tuple[int, ...]:
    """Give the elements of a table from `start` on."""
    return tuple(vector.between(start, len(vector)))
