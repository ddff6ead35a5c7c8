"""The plain formats: JSON Lines and CSV."""

from pathlib import Path
from typing import Any

import pytest

from kvsched_fp.errors import MISSING
from tests.unit.workloads.helpers import MAX_MODEL_LEN, plain_line, read_all, refused_line, write_lines

HEADER = "arrival,prompt_tokens,output_tokens"


def _read_csv_line(tmp_path: Path, text: str, header: str = HEADER) -> None:
    read_all(write_lines(tmp_path / "f", header, text))


def test_csv_and_jsonl_read_the_same_but_for_the_line(tmp_path: Path) -> None:
    """One workload in both formats gives equal requests; the header of CSV is line 1."""
    jsonl = read_all(write_lines(tmp_path / "a", plain_line(), plain_line(arrival=2, priority=-3)))
    csv = read_all(write_lines(tmp_path / "b", f"{HEADER},priority", "1.5,600,5,0", " 2 , 600,5,-3"))

    assert [("r1", 1), ("r2", 2)] == [(request.request_id, request.line) for request in jsonl]
    assert [("r2", 2), ("r3", 3)] == [(request.request_id, request.line) for request in csv]
    assert [
        (request.arrival_time, request.prompt_runs, request.num_output_tokens, request.priority)
        for request in jsonl
    ] == [
        (request.arrival_time, request.prompt_runs, request.num_output_tokens, request.priority)
        for request in csv
    ]


def test_no_two_prompts_share_a_token(tmp_path: Path) -> None:
    """Nothing is known about the content, so nothing is equal."""
    first, second = read_all(write_lines(tmp_path / "f", plain_line(), plain_line()))

    assert set() == set(first.prompt_token_ids()) & set(second.prompt_token_ids())


def test_csv_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    """The header says which column is which."""
    (request,) = read_all(
        write_lines(tmp_path / "f", '"output_tokens", arrival,prompt_tokens', "5,1e-1,600")
    )

    assert (0.1, 600, 5) == (request.arrival_time, request.num_prompt_tokens, request.num_output_tokens)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("arrival", -0.5, "a number from 0 to 1e+09 (seconds)"),
        ("arrival", "1", "a number from 0"),
        ("arrival", 2e9, "a number from 0"),
        ("arrival", 1.25, "at least 1.5, the one before"),
        ("prompt_tokens", 0, "an integer from 1"),
        ("prompt_tokens", 1.5, "an integer from 1"),
        ("prompt_tokens", MAX_MODEL_LEN, f"less than max_model_len = {MAX_MODEL_LEN}"),
        ("output_tokens", 0, "an integer from 1"),
        ("output_tokens", None, "an integer from 1"),
        ("priority", 0.5, "an integer from -2147483647 to 2147483647"),
        ("priority", 2**31, "an integer from -2147483647"),
    ],
)
def test_jsonl_refuses_a_wrong_value(tmp_path: Path, field: str, value: Any, allowed: str) -> None:
    """The error names the line, the field, the value and what is allowed."""
    path = write_lines(tmp_path / "f", plain_line(), plain_line(**{field: value}))

    with refused_line(2, field, allowed, value):
        read_all(path)


@pytest.mark.parametrize(
    ("text", "field", "value", "allowed"),
    [
        ("x,600,5", "arrival", "x", "a number from 0"),
        ("nan,600,5", "arrival", "nan", "a number from 0"),
        ("inf,600,5", "arrival", "inf", "a number from 0"),
        ("1e999,600,5", "arrival", float("inf"), "a number from 0"),
        ("-1,600,5", "arrival", -1.0, "a number from 0"),
        ("1_0,600,5", "arrival", "1_0", "a number from 0"),
        ("1,6_00,5", "prompt_tokens", "6_00", "an integer from 1"),
        ("1,600.0,5", "prompt_tokens", "600.0", "an integer from 1"),
        ("1,٣,5", "prompt_tokens", "٣", "an integer from 1"),
        ("1,,5", "prompt_tokens", "", "an integer from 1"),
        (f"1,{'9' * 30},5", "prompt_tokens", "9" * 30, "an integer from 1"),
        ("1,600,-5", "output_tokens", -5, "an integer from 1"),
        ("1,600", "line", "1,600", "3 columns, as in the header; got 2"),
        ("1,600,5,6", "line", "1,600,5,6", "3 columns, as in the header; got 4"),
        ('1,600,"5', "line", '1,600,"5', "comma-separated values ("),
    ],
)
def test_csv_refuses_a_wrong_line(
    tmp_path: Path, text: str, field: str, value: object, allowed: str
) -> None:
    """The error names the line, the field, the value and what is allowed."""
    with refused_line(2, field, allowed, value):
        _read_csv_line(tmp_path, text)


@pytest.mark.parametrize(
    "header",
    [
        "0.5,600,5",
        "arrival,prompt_tokens",
        "arrival,prompt_tokens,output_tokens,model",
        "arrival,prompt_tokens,output_tokens,arrival",
        "Arrival,prompt_tokens,output_tokens",
    ],
)
def test_csv_refuses_a_wrong_header(tmp_path: Path, header: str) -> None:
    """The first line names the columns, each once."""
    allowed = "a first line that names the fields arrival, prompt_tokens, output_tokens"
    with refused_line(1, "header", allowed, header):
        _read_csv_line(tmp_path, "1,600,5", header)


def test_jsonl_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    """A misspelt field is noticed."""
    path = write_lines(tmp_path / "f", plain_line(), plain_line(priorty=1))

    with refused_line(2, "field", "and, if wanted, priority", "priorty"):
        read_all(path)


def test_jsonl_refuses_a_missing_field(tmp_path: Path) -> None:
    """Three fields are needed on every line."""
    path = write_lines(tmp_path / "f", plain_line(), plain_line(output_tokens=...))

    with refused_line(2, "output_tokens", "the fields arrival, prompt_tokens, output_tokens", MISSING):
        read_all(path)
