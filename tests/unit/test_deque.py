"""The deque equals a list, whatever its chunks are."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.deque import CHUNK_SIZE, Deque, make_deque

COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 2 * CHUNK_SIZE)),
        st.tuples(st.just("prepend"), st.integers(0, 3 * CHUNK_SIZE)),
        st.tuples(st.just("popleft"), st.integers(1, 2 * CHUNK_SIZE)),
    ),
    max_size=12,
)
Commands = list[tuple[str, int]]


def run(commands: Commands) -> tuple[Deque[int], list[int]]:
    """Do with a deque and with a list what `commands` say; each element is another number."""
    deque, model = Deque[int](), list[int]()
    number = 0
    for command, count in commands:
        new = list(range(number, number + count))
        number += count
        if command == "prepend":
            deque, model = deque.prepend(new), new + model
            continue
        for element in new:
            if command == "append":
                deque, model = deque.append(element), [*model, element]
            elif model:
                deque, model = deque.popleft(), model[1:]
    return deque, model


@given(commands=COMMANDS)
def test_deque_is_a_list(commands: Commands) -> None:
    """Length, elements and both ends are those of a list that the same was done with."""
    deque, model = run(commands)

    assert (len(model), model) == (len(deque), list(deque))
    if model:
        assert (model[0], model[-1]) == (deque.left, deque.right)


@given(commands=COMMANDS)
def test_equal_elements_are_equal_values(commands: Commands) -> None:
    """A deque equals, hash included, one that is cut into other chunks, and none with other elements."""
    deque, model = run(commands)
    made = make_deque(model)

    assert made == deque
    assert hash(made) == hash(deque)
    assert made.append(-1) != deque


def test_other_elements_in_equal_chunks_are_another_value() -> None:
    """Neither the length nor the way in which the elements are cut makes two deques equal."""
    assert make_deque([1, 2]) != make_deque([1, 3])


def require_few_chunks(deque: Deque[int]) -> None:
    """Fail if a chunk is empty or too large, or two neighbours fit into one."""
    sizes = [len(chunk) for chunk in deque._chunks]

    assert all(0 < size <= CHUNK_SIZE for size in sizes)
    assert all(first + second > CHUNK_SIZE for first, second in pairwise(sizes))


@given(commands=COMMANDS)
def test_chunks_are_few(commands: Commands) -> None:
    """No chunk is empty or too large, and two neighbours have more elements than fit into one."""
    deque, _ = run(commands)

    require_few_chunks(deque)


def test_first_chunk_is_joined_with_the_next_as_soon_as_both_fit_into_one() -> None:
    """Two chunks that are not full are emptied from the left, one element at a time."""
    size = CHUNK_SIZE - 10
    deque = make_deque(range(size)).prepend(range(-size, 0))
    for first in range(-size, size):
        require_few_chunks(deque)

        assert first == deque.left
        deque = deque.popleft()

    assert 0 == len(deque)


@pytest.mark.parametrize("count", [CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1])
def test_front_is_joined_with_the_first_chunk_if_both_fit_into_one(count: int) -> None:
    """To the last element."""
    deque = make_deque([0]).prepend(range(count - 1))

    require_few_chunks(deque)


def test_change_leaves_the_old_deque_alone() -> None:
    """Every change gives another deque."""
    deque = make_deque(range(3))
    deque.append(3)
    deque.prepend([4])
    deque.popleft()

    assert [0, 1, 2] == list(deque)


@pytest.mark.parametrize("ask", [lambda d: d.left, lambda d: d.right, lambda d: d.popleft()])
@pytest.mark.parametrize("make", [Deque, lambda: make_deque(())])
def test_empty_deque_has_no_ends(ask: object, make: Callable[[], Deque[int]]) -> None:
    """What is not there cannot be asked for, however the deque was made."""
    with pytest.raises(IndexError):
        ask(make())  # type: ignore[operator]


def test_deque_is_no_tuple() -> None:
    """A deque does not equal a tuple of the same elements."""
    assert make_deque([1]) != (1,)
