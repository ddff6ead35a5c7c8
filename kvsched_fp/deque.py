"""A persistent sequence that changes at both ends: a tuple of chunks.

Why not pyrsistent's deque: it is two lists of linked cells in pure Python. A change costs half of that here
while the queue is short and about the same at 10,000 entries, and going through it an eighth
(`tests/bench/persistent.py`); the invariants go through the queues at every event. A change copies one
chunk and the tuple of the chunks.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

import attrs

CHUNK_SIZE = 128

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

    # Tuples are joined by `+`: unpacking them into a new one copies all of it twice more.

    def popleft(self) -> "Deque[T]":
        """Leave the first element out; raises `IndexError` if there is none."""
        chunks = self._chunks
        first, others, length = chunks[0], chunks[1:], self.length - 1
        if len(first) == 1:
            return Deque(others, length)
        if others and len(first) + len(others[0]) == CHUNK_SIZE + 1:
            return Deque((first[1:] + others[0],) + others[1:], length)  # noqa: RUF005
        return Deque((first[1:],) + others, length)  # noqa: RUF005

    def append(self, element: T) -> "Deque[T]":
        """Put one element at the back."""
        chunks, new, length = self._chunks, (element,), self.length + 1
        if chunks and len(chunks[-1]) < CHUNK_SIZE:
            return Deque(chunks[:-1] + (chunks[-1] + new,), length)  # noqa: RUF005
        return Deque(chunks + (new,), length)  # noqa: RUF005

    def prepend(self, elements: Sequence[T]) -> "Deque[T]":
        """Put elements at the front, in their order."""
        front, chunks = tuple(elements), self._chunks
        if not front:
            return self
        length = self.length + len(front)
        if chunks and len(front) + len(chunks[0]) <= CHUNK_SIZE:
            return Deque((front + chunks[0],) + chunks[1:], length)  # noqa: RUF005
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
