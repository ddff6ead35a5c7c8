"""The waiting order as a value: first come first served, or by priority.

Rules
-----
[M-QUE-01] FCFS: a request is added at the back; a preempted or skipped one goes back to the front, and
    requests that were skipped in one scan keep their order.
[M-QUE-02] Priority: the order is (priority, arrival time, request id), whatever the way in.
[M-QUE-03] Equal contents in equal order are equal values.

Upstream: `v1/core/sched/request_queue.py`. The reference keeps a binary heap; its layout is not
observable, its order is, so the value here is the sorted order.
"""

import bisect
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol, Self

import attrs

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.deque import Deque, make_deque
from kvsched_fp.ids import RequestId
from kvsched_fp.request import Request


class QueueEntry(NamedTuple):
    """A waiting request and what it is ordered by. Tuples compare in this order [M-QUE-02]."""

    priority: int
    arrival_time: float
    request_id: RequestId


_request_id: "attrgetter[RequestId]" = attrgetter("request_id")


def queue_entry(request: Request) -> QueueEntry:
    """Make the entry of `request`."""
    return QueueEntry(request.priority, request.arrival_time, request.request_id)


class WaitingQueue(Protocol):
    """What both orders have in common. Every change returns a new queue."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[RequestId]:
        """Go through the ids, first to be served first."""
        ...

    def peek(self) -> RequestId:
        """Give the first id; the queue must not be empty."""
        ...

    def pop(self) -> Self:
        """Take the first one out."""
        ...

    def add(self, entry: QueueEntry) -> Self:
        """Let a new request in."""
        ...

    def put_back(self, entries: Sequence[QueueEntry]) -> Self:
        """Let requests in that were ahead of the others; FCFS keeps their order, at the front."""
        ...

    def remove(self, request_ids: Collection[RequestId]) -> Self:
        """Take requests out, wherever they are; ids that are not in it are ignored."""
        ...


@attrs.frozen
class FCFSQueue:
    """First come, first served [M-QUE-01, M-QUE-03]."""

    entries: Deque[QueueEntry] = Deque()
    """Front to back."""

    def __len__(self) -> int:
        return self.entries.length

    def __iter__(self) -> Iterator[RequestId]:
        return map(_request_id, self.entries)

    def peek(self) -> RequestId:
        """Give the first id."""
        return self.entries.left.request_id

    def pop(self) -> "FCFSQueue":
        """Take the first one out."""
        return FCFSQueue(self.entries.popleft())

    def add(self, entry: QueueEntry) -> "FCFSQueue":
        """Append at the back."""
        return FCFSQueue(self.entries.append(entry))

    def put_back(self, entries: Sequence[QueueEntry]) -> "FCFSQueue":
        """Put `entries` at the front, in their order."""
        return FCFSQueue(self.entries.prepend(entries))

    def remove(self, request_ids: Collection[RequestId]) -> "FCFSQueue":
        """Take requests out. Cost: the length of the queue."""
        remaining = [entry for entry in self.entries if entry.request_id not in request_ids]
        return self if len(remaining) == len(self) else FCFSQueue(make_deque(remaining))


@attrs.frozen
class PriorityQueue:
    """By priority [M-QUE-02, M-QUE-03]. A change copies the tuple, which stays cheap to 10,000 entries."""

    entries: tuple[QueueEntry, ...] = ()
    """Sorted, first to be served first."""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[RequestId]:
        return map(_request_id, self.entries)

    def peek(self) -> RequestId:
        """Give the first id."""
        return self.entries[0].request_id

    def pop(self) -> "PriorityQueue":
        """Take the first one out."""
        return PriorityQueue(self.entries[1:])

    def add(self, entry: QueueEntry) -> "PriorityQueue":
        """Insert where the order says."""
        return self.put_back((entry,))

    def put_back(self, entries: Sequence[QueueEntry]) -> "PriorityQueue":
        """Insert where the order says."""
        merged = list(self.entries)
        for entry in entries:
            bisect.insort(merged, entry)
        return PriorityQueue(tuple(merged))

    def remove(self, request_ids: Collection[RequestId]) -> "PriorityQueue":
        """Take requests out. Cost: the length of the queue."""
        remaining = [entry for entry in self.entries if entry.request_id not in request_ids]
        return self if len(remaining) == len(self) else PriorityQueue(tuple(remaining))


def make_queue(policy: SchedulingPolicy) -> WaitingQueue:
    """Make an empty queue for `policy`."""
    return PriorityQueue() if policy is SchedulingPolicy.PRIORITY else FCFSQueue()
