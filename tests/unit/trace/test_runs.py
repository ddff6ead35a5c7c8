"""Lists of integers and their runs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.trace.runs import write_integers
from kvsched_fp.trace.values import INTEGERS

runs = st.tuples(st.integers(-50, 50), st.integers(1, 40)).map(lambda run: tuple(range(run[0], sum(run))))
integers = st.lists(runs | st.tuples(st.integers()), max_size=20).map(lambda parts: sum(parts, ()))


def plainest(values: tuple[int, ...]) -> list[Any]:
    """Find the runs one integer after another."""
    found: list[list[int]] = []
    for value in values:
        if found and found[-1][-1] + 1 == value:
            found[-1].append(value)
        else:
            found.append([value])
    written: list[Any] = []
    for run in found:
        written.extend([[run[0], len(run)]] if len(run) >= 3 else run)
    return written


@given(integers)
def test_any_integers_come_back(values: tuple[int, ...]) -> None:
    """Shortening loses nothing."""
    assert values == INTEGERS.decode(json.loads(write_integers(values)), "path")


@given(integers)
def test_shortening_is_maximal(values: tuple[int, ...]) -> None:
    """A run is written as long as it is, and never as single integers if it has three."""
    assert plainest(values) == json.loads(write_integers(values))


@pytest.mark.parametrize("num_integers", [255, 256, 257, 5000])
def test_long_lists(num_integers: int) -> None:
    """Lists that are remembered are written as others are, the second time too, and not mixed up."""
    first = tuple(number * number % 7 for number in range(num_integers))
    second = (*range(num_integers - 1), 0)

    for _ in range(2):
        assert plainest(first) == json.loads(write_integers(first))
        assert plainest(second) == json.loads(write_integers(second))


def test_no_white_space() -> None:
    """The text is the canonical one."""
    assert "[7,[100,3],[100,3],9]" == write_integers((7, 100, 101, 102, 100, 101, 102, 9))
    assert "[]" == write_integers(())
