"""Errors say whose fault it was, and keep their parts apart."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    InvalidConfig,
    InvalidEvent,
    InvariantViolation,
    KvschedError,
    OracleBug,
    WorkloadError,
)
from kvsched_fp.errors import MISSING, UnsupportedFeature, shorten


@pytest.mark.parametrize("kind", [InvalidConfig, InvalidEvent])
def test_input_error_keeps_its_parts(kind: type[InvalidEvent]) -> None:
    """Field, value and what is allowed can be read by a program, and are all in the text."""
    error = kind("max_tokens", 0, ">= 1")

    assert ("max_tokens", 0, ">= 1") == (error.field, error.value, error.allowed)
    assert "max_tokens: got 0; allowed: >= 1" == str(error)


def test_a_missing_field_is_called_missing() -> None:
    """A field that is not there has no value that could be shown."""
    assert "hash_ids: missing; allowed: a list" == str(InvalidEvent("hash_ids", MISSING, "a list"))


def test_workload_error_says_where() -> None:
    """An error in a file begins with the file, and the line if there is one."""
    parts = ("input_length", -1, ">= 1")
    path = Path("trace.jsonl")

    assert "trace.jsonl:7: input_length: got -1; allowed: >= 1" == str(
        WorkloadError(*parts, path=path, line=7)
    )
    assert "trace.jsonl: input_length: got -1; allowed: >= 1" == str(WorkloadError(*parts, path=path))


def test_violation_names_the_invariant() -> None:
    """A violation begins with the id of the invariant."""
    error = InvariantViolation("I-REF", "block 3 is free and held")

    assert "I-REF: block 3 is free and held" == str(error)
    assert ("I-REF", "block 3 is free and held") == (error.invariant_id, error.evidence)


def test_unsupported_feature_is_named_with_who_asked() -> None:
    """Both parts can be read by a program, and are in the text."""
    error = UnsupportedFeature("sliding windows", "group 2")

    assert "not supported: sliding windows (asked for by group 2)" == str(error)
    assert ("sliding windows", "group 2") == (error.feature, error.asked_by)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (InvalidEvent, ("max_tokens", 0, ">= 1")),
        (UnsupportedFeature, ("sliding windows", "group 2")),
        (InvariantViolation, ("I-REF", "block 3 is free and held")),
        (OracleBug, ("nothing is free",)),
    ],
)
def test_error_can_be_sent_to_another_process(kind: type[KvschedError], parts: tuple[Any, ...]) -> None:
    """It arrives with its class, its text and its parts, in order."""
    error = kind(*parts)
    arrived = pickle.loads(pickle.dumps(error))

    assert (kind, parts, str(error)) == (type(arrived), arrived.args, str(arrived))


@pytest.mark.parametrize(
    "kind", [InvalidConfig, InvalidEvent, WorkloadError, InvariantViolation, OracleBug]
)
def test_every_error_can_be_caught_as_one(kind: type[Exception]) -> None:
    """All errors raised on purpose share one base."""
    assert issubclass(kind, KvschedError)


def test_long_value_is_cut_in_the_middle() -> None:
    """An error about a prompt of thousands of tokens stays readable; both ends are kept."""
    text = str(InvalidEvent("prompt_token_ids", list(range(9000)), "fewer"))

    assert len(text) < 110
    assert text.startswith("prompt_token_ids: got [0, 1, 2,")
    assert text.endswith("8999]; allowed: fewer")


@given(st.text(), st.integers(5, 80))
def test_shortened_text_keeps_to_its_limit(value: str, limit: int) -> None:
    """`shorten` gives `repr(value)` if that is short enough, else at most `limit` characters."""
    text = repr(value)
    short = shorten(value, limit)

    assert (text == short) if len(text) <= limit else (len(short) <= limit)


def test_text_of_just_the_limit_is_not_cut() -> None:
    """`shorten` cuts from the first character that is too many."""
    assert repr("x" * 8) == shorten("x" * 8, 10)
    assert "'xx...xx'" == shorten("x" * 9, 10)
