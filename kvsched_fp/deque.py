"""A persistent sequence that changes at both ends: a tuple of chunks.

Why not pyrsistent's deque: it is two lists of linked cells in pure Python. A change of it costs some
microseconds, going through it one per element, and the back is turned round whenever the front is used
up. Here a change copies one chunk and the tuple of the chunks, at the speed of C; a queue of 10,000 has
some 160 of them (`tests/bench/persistent.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

import attrs

CHUNK_SIZE = 64

T = TypeVar("T")


@attrs.frozen(eq=False)
class Deque(Generic[T]):
    """An immutable sequence; equal elements in equal order are equal values."""

    _chunks: tuple[tuple[T, ...], ...] = ()
    """The elements, at most `CHUNK_SIZE` to a chunk; no chunk is empty, and any two neighbours have more
    elements than fit into one."""
    length: int = 0
    """How many elements; follows from the chunks, and is asked for in every step."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        chunks = self._chunks
        return iter(chunks[0]) if len(chunks) == 1 else chain.from_iterable(chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deque):
            return NotImplemented
        if self.length != other.length:
            return False
        return self._chunks == other._chunks or tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))  # equal sequences may be cut into different chunks

    @property
    def left(self) -> T:
        """The first element; raises `IndexError` if there is none."""
        return self._chunks[0][0]

    @property
    def right(self) -> T:
        """The last element; raises `IndexError` if there is none."""
        return self._chunks[-1][-1]

    def popleft(self) -> "Deque[T]":
        """Leave the first element out; raises `IndexError` if there is none."""
        chunks = self._chunks
        first, length = chunks[0], self.length - 1
        if len(first) == 1:
            return Deque(chunks[1:], length)
        if len(chunks) > 1 and len(first) + len(chunks[1]) == CHUNK_SIZE + 1:
            return Deque((first[1:] + chunks[1], *chunks[2:]), length)
        return Deque((first[1:], *chunks[1:]), length)

    def append(self, element: T) -> "Deque[T]":
        """Put one element at the back."""
        chunks, length = self._chunks, self.length + 1
        if chunks and len(chunks[-1]) < CHUNK_SIZE:
            return Deque((*chunks[:-1], (*chunks[-1], element)), length)
        return Deque((*chunks, (element,)), length)

    def prepend(self, elements: Sequence[T]) -> "Deque[T]":
        """Put elements at the front, in their order."""
        front, chunks = tuple(elements), self._chunks
        if not front:
            return self
        length = self.length + len(front)
        if chunks and (len(front) + len(chunks[0])) <= CHUNK_SIZE:
            return Deque((front + chunks[0], *chunks[1:]), length)
        return Deque(_cut(front) + chunks, length)


def make_deque(elements: Iterable[T]) -> Deque[T]:
    """Make a deque of `elements`."""
    whole = tuple(elements)
    return Deque(_cut(whole), len(whole))


def _cut(whole: tuple[T, ...]) -> tuple[tuple[T, ...], ...]:
    """Cut from the back, so that the short chunk is the first."""
    if len(whole) <= CHUNK_SIZE:
        return (whole,) if whole else ()
    ends = range(len(whole) % CHUNK_SIZE or CHUNK_SIZE, len(whole) + 1, CHUNK_SIZE)
    return tuple(whole[max(end - CHUNK_SIZE, 0) : end] for end in ends)
