"""The waiting queues against plain lists."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.queues import FCFSQueue, PriorityQueue, QueueEntry, WaitingQueue, make_queue, queue_entry
from tests.unit.worlds import make_request

ENTRIES = st.builds(
    QueueEntry,
    st.integers(0, 2),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.sampled_from("abcdefgh").map(RequestId),
)
COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(ENTRIES, min_size=1, max_size=1)),
        st.tuples(st.just("put_back"), st.lists(ENTRIES, max_size=3, unique_by=lambda entry: entry[2])),
        st.tuples(st.just("remove"), st.lists(ENTRIES, max_size=3)),
        st.tuples(st.just("pop"), st.just([])),
    ),
    max_size=25,
)
Commands = list[tuple[str, list[QueueEntry]]]


def run_queue(queue: WaitingQueue, commands: Commands) -> WaitingQueue:
    """Apply the commands that make sense: no id twice, no pop of an empty queue."""
    for name, entries in commands:
        present = set(queue)
        new = [entry for entry in entries if entry.request_id not in present]
        if name == "add" and new:
            queue = queue.add(new[0])
        elif name == "put_back":
            queue = queue.put_back(new)
        elif name == "remove":
            queue = queue.remove([entry.request_id for entry in entries])
        elif name == "pop" and len(queue):
            queue = queue.pop()
    return queue


def run_list(
    commands: Commands,
    add: Callable[[list[QueueEntry], QueueEntry], list[QueueEntry]],
    put_back: Callable[[list[QueueEntry], list[QueueEntry]], list[QueueEntry]],
) -> list[QueueEntry]:
    """Apply the same commands to a list; only the two ways in depend on the policy."""
    model: list[QueueEntry] = []
    for name, entries in commands:
        present = {entry.request_id for entry in model}
        new = [entry for entry in entries if entry.request_id not in present]
        if name == "add" and new:
            model = add(model, new[0])
        elif name == "put_back":
            model = put_back(model, new)
        elif name == "remove":
            gone = {entry.request_id for entry in entries}
            model = [entry for entry in model if entry.request_id not in gone]
        elif name == "pop":
            model = model[1:]
    return model


@given(COMMANDS)
def test_first_come_queue_is_a_list(commands: Commands) -> None:
    """[M-QUE-01] New ones go to the back, the ones that are put back to the front, in their order."""
    queue = run_queue(FCFSQueue(), commands)
    model = run_list(
        commands,
        add=lambda entries, entry: [*entries, entry],
        put_back=lambda entries, ahead: [*ahead, *entries],
    )

    assert [entry.request_id for entry in model] == list(queue)
    assert len(model) == len(queue)


@given(COMMANDS)
def test_priority_queue_is_a_sorted_list(commands: Commands) -> None:
    """[M-QUE-02] The order is (priority, arrival time, request id), whatever the way in."""
    queue = run_queue(PriorityQueue(), commands)
    model = run_list(
        commands,
        add=lambda entries, entry: sorted([*entries, entry]),
        put_back=lambda entries, ahead: sorted([*entries, *ahead]),
    )

    assert [entry.request_id for entry in model] == list(queue)
    assert len(model) == len(queue)


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
@given(commands=COMMANDS)
def test_equal_orders_are_equal_values(policy: SchedulingPolicy, commands: Commands) -> None:
    """[M-QUE-03] A queue equals, hash included, one that was filled in its final order."""
    queue = run_queue(make_queue(policy), commands)
    entries = list(queue.entries)
    filled = make_queue(policy)
    for entry in entries:
        filled = filled.add(entry)

    assert filled == queue
    assert hash(filled) == hash(queue)
    assert filled == make_queue(policy).put_back(entries)


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
@given(commands=COMMANDS, more=COMMANDS)
def test_change_leaves_the_old_queue_alone(
    policy: SchedulingPolicy, commands: Commands, more: Commands
) -> None:
    """Every change returns a new queue."""
    queue = run_queue(make_queue(policy), commands)
    before = list(queue)
    run_queue(queue, more)

    assert before == list(queue)


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
@given(commands=COMMANDS)
def test_peek_gives_what_pop_takes(policy: SchedulingPolicy, commands: Commands) -> None:
    """The first id is peeked at, and popped."""
    queue = run_queue(make_queue(policy), commands)
    order = list(queue)
    if order:
        assert order[0] == queue.peek()
        assert order[1:] == list(queue.pop())


def test_removing_a_stranger_changes_nothing() -> None:
    """Ids that are not in the queue are ignored."""
    queue = FCFSQueue().add(queue_entry(make_request("a")))

    assert queue == queue.remove({RequestId("z")})


def test_entry_is_ordered_by_priority_then_arrival_then_id() -> None:
    """[M-QUE-02] The three parts count in that order."""
    in_order = [
        queue_entry(make_request("d", priority=0, arrival_time=9.0)),
        queue_entry(make_request("b", priority=1, arrival_time=1.0)),
        queue_entry(make_request("c", priority=1, arrival_time=1.0)),
        queue_entry(make_request("a", priority=1, arrival_time=2.0)),
    ]

    shuffled = [in_order[index] for index in (2, 0, 3, 1)]

    assert in_order == sorted(shuffled)


def test_policy_decides_the_kind() -> None:
    """`make_queue` gives the queue of the policy."""
    assert FCFSQueue() == make_queue(SchedulingPolicy.FCFS)
    assert PriorityQueue() == make_queue(SchedulingPolicy.PRIORITY)


def test_entry_of_a_request() -> None:
    """[M-QUE-02] The entry of a request has what it is ordered by, and its id."""
    request = make_request("a", priority=3, arrival_time=1.5)

    assert QueueEntry(3, 1.5, RequestId("a")) == queue_entry(request)
