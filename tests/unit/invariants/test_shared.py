"""Reading once what several predicates ask for."""

import gc
import weakref
from collections.abc import Callable
from threading import Thread

import attrs
import pytest

from kvsched_fp.invariants.shared import shared


@attrs.frozen
class Value:
    """A value that can be watched; equal to any with the same number."""

    number: int


@attrs.frozen(eq=False)
class Reading:
    """What was read, which can be watched as well."""

    number: int


def _counting() -> tuple[Callable[[Value], Reading], list[int]]:
    """Make a shared function, and the list of the numbers that it has read."""
    numbers: list[int] = []

    @shared
    def read(value: Value) -> Reading:
        """Read a number."""
        numbers.append(value.number)
        return Reading(value.number)

    return read, numbers


def test_value_is_read_once() -> None:
    """Who asks again about the same value gets the very same reading."""
    read, numbers = _counting()
    value = Value(1)
    first = read(value)

    assert first is read(value)
    assert [1] == numbers


def test_equal_value_is_read_again() -> None:
    """Values are told apart by identity: an equal one is another."""
    read, numbers = _counting()
    one, other = Value(1), Value(1)

    assert read(one) is not read(other)
    assert [1, 1] == numbers


def test_only_the_last_value_is_remembered() -> None:
    """Every value gets its own reading, whatever was asked before; one that comes back is read again."""
    read, numbers = _counting()
    one, two = Value(1), Value(2)

    assert [1, 2, 1, 1, 2] == [read(value).number for value in (one, two, one, one, two)]
    assert [1, 2, 1, 2] == numbers


def test_reading_of_none_is_a_reading() -> None:
    """What was read may be None or nothing at all, and is not read again for it."""
    numbers: list[int] = []
    read = shared(lambda value: numbers.append(value.number))
    value = Value(1)

    assert [None, None] == [read(value), read(value)]  # type: ignore[func-returns-value]
    assert [1] == numbers


def test_value_in_the_place_of_another_is_not_taken_for_it() -> None:
    """A value that was let go of is kept while it is remembered, so that no other gets its identity."""
    read, _ = _counting()

    assert list(range(200)) == [read(Value(number)).number for number in range(200)]


def test_failed_reading_is_not_remembered() -> None:
    """A reading that raises leaves what was remembered, and the next who asks gets the error as well."""
    read_all: list[object] = []

    @shared
    def read(value: Value) -> float:
        read_all.append(value)
        return 1 / value.number

    half, bad = Value(2), Value(0)
    assert 0.5 == read(half)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            read(bad)

    assert 0.5 == read(half)
    assert [half, bad, bad] == read_all


def test_two_functions_share_nothing() -> None:
    """Each function remembers for itself."""
    (read, numbers), (other, other_numbers) = _counting(), _counting()
    value = Value(1)

    assert read(value) is not other(value)
    assert ([1], [1]) == (numbers, other_numbers)


def test_what_is_remembered_lives_until_the_next_value() -> None:
    """One value and its reading are kept alive, no more: the next takes their place."""
    read, _ = _counting()
    value = Value(1)
    watched = [weakref.ref(value), weakref.ref(read(value))]
    del value
    gc.collect()

    assert all(reference() is not None for reference in watched)

    read(Value(2))
    gc.collect()

    assert [None, None] == [reference() for reference in watched]


def test_name_and_docstring_are_those_of_the_function() -> None:
    """What is told about a predicate's reading names the function that was written."""
    read, _ = _counting()

    assert ("read", "Read a number.") == (read.__name__, read.__doc__)


def test_threads_get_their_own_answers() -> None:
    """Two threads that ask about different values at once never get each other's reading."""
    read, _ = _counting()
    wrong: list[tuple[int, int]] = []

    def ask(value: Value) -> None:
        for _ in range(2000):
            found = read(value).number
            if found != value.number:
                wrong.append((value.number, found))

    threads = [Thread(target=ask, args=(Value(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
