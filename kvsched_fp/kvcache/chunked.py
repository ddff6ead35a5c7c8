"""Persistent vectors for the KV cache: a tuple of frozen chunks, copied chunk by chunk when changed.

Why not pyrsistent's vector or a flat tuple: the garbage collector visits every element of every young
one, so one young column of 32,000 blocks costs a third of a millisecond (tuple) to a millisecond
(vector) per collection of the youngest generation (`tests/bench/persistent.py`). Here it visits the
chunks that changed. Chunks of packed integers are bytes, which it does not visit at all, compare with
one `memcmp`, and take 4 bytes per element.

A vector whose elements change is opened for one call. `opened[i >> SHIFT][i & MASK]` reads or writes
element i; the chunk is thawed on the first touch, in `__missing__`, so that every later access stays in C.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

import attrs

from kvsched_fp.records import quick_constructor

SHIFT = 8
CHUNK_SIZE = 1 << SHIFT
MASK = CHUNK_SIZE - 1
_ITEM_BYTES = array("i").itemsize
_CHUNK_BYTES = CHUNK_SIZE * _ITEM_BYTES

T = TypeVar("T")


@attrs.frozen(weakref_slot=False)
class IntVector:
    """A persistent vector of 32-bit integers; it can grow at the end."""

    chunks: tuple[bytes, ...] = ()
    """The elements, packed in native byte order, `CHUNK_SIZE` to a chunk; no chunk is empty."""
    length: int = 0
    """How many elements; follows from the chunks, and is asked for in every step."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        for chunk in self.chunks:
            yield from array("i", chunk)

    def __reversed__(self) -> Iterator[int]:
        for chunk in reversed(self.chunks):
            yield from reversed(array("i", chunk))

    def __getitem__(self, index: int) -> int:
        return array("i", self.chunks[index >> SHIFT])[index & MASK]

    def between(self, start: int, end: int) -> "array[int]":
        """Give the elements from `start` to `end` (exclusive)."""
        first = start >> SHIFT
        offset = first << SHIFT
        packed = self.chunks[first : (end + MASK) >> SHIFT]
        joined = packed[0] if len(packed) == 1 else b"".join(packed)
        return array("i", joined[(start - offset) * _ITEM_BYTES : (end - offset) * _ITEM_BYTES])

    def extend(self, elements: Iterable[int]) -> "IntVector":
        """Append `elements`. Cost: the last chunk and the new ones."""
        new = array("i", elements)
        length = self.length + len(new)
        packed = new.tobytes()
        chunks = self.chunks
        if chunks and len(chunks[-1]) < _CHUNK_BYTES:
            packed = chunks[-1] + packed
            chunks = chunks[:-1]
        if len(packed) <= _CHUNK_BYTES:
            return _make_int_vector((*chunks, packed), length) if packed else self
        return _make_int_vector(chunks + _split_bytes(packed), length)


_make_int_vector = quick_constructor(IntVector)


class OpenIntVector(dict[int, "array[int]"]):
    """The transient of an `IntVector`: chunk number -> thawed chunk."""

    __slots__ = ("_frozen",)

    def __init__(self, vector: IntVector) -> None:
        self._frozen = vector

    def __missing__(self, chunk_number: int) -> "array[int]":
        thawed = self[chunk_number] = array("i", self._frozen.chunks[chunk_number])
        return thawed

    def close(self) -> IntVector:
        """Freeze; a chunk that was not touched is shared."""
        if not self:
            return self._frozen
        chunks = list(self._frozen.chunks)
        for chunk_number, thawed in self.items():
            chunks[chunk_number] = thawed.tobytes()
        return _make_int_vector(tuple(chunks), self._frozen.length)


@attrs.frozen
class ObjectVector(Generic[T]):
    """A persistent vector of anything."""

    chunks: tuple[tuple[T, ...], ...] = ()
    """The elements, `CHUNK_SIZE` to a chunk."""

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.chunks)

    def __getitem__(self, index: int) -> T:
        return self.chunks[index >> SHIFT][index & MASK]


class OpenObjectVector(dict[int, list[T]]):
    """The transient of an `ObjectVector`: chunk number -> thawed chunk."""

    __slots__ = ("_frozen",)

    def __init__(self, vector: ObjectVector[T]) -> None:
        self._frozen = vector

    def __missing__(self, chunk_number: int) -> list[T]:
        thawed = self[chunk_number] = list(self._frozen.chunks[chunk_number])
        return thawed

    def close(self) -> ObjectVector[T]:
        """Freeze; a chunk that was not touched is shared."""
        if not self:
            return self._frozen
        chunks = list(self._frozen.chunks)
        for chunk_number, thawed in self.items():
            chunks[chunk_number] = tuple(thawed)
        return ObjectVector(tuple(chunks))


def make_int_vector(elements: Iterable[int]) -> IntVector:
    """Pack `elements`."""
    packed = array("i", elements)
    return IntVector(_split_bytes(packed.tobytes()), len(packed))


def make_object_vector(elements: Iterable[T]) -> ObjectVector[T]:
    """Freeze `elements`."""
    frozen = tuple(elements)
    return ObjectVector(
        tuple(frozen[start : start + CHUNK_SIZE] for start in range(0, len(frozen), CHUNK_SIZE))
    )


def _split_bytes(packed: bytes) -> tuple[bytes, ...]:
    return tuple(packed[start : start + _CHUNK_BYTES] for start in range(0, len(packed), _CHUNK_BYTES))
