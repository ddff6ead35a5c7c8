"""Mooncake's trace format."""

from pathlib import Path
from typing import Any

import pytest

from kvsched_fp.errors import MISSING
from kvsched_fp.workloads.formats import open_workload
from kvsched_fp.workloads.mooncake import MAX_HASH_ID
from kvsched_fp.workloads.request import MAX_ARRIVAL_SECONDS, OUTPUT_TOKEN_BASE
from tests.unit.workloads.helpers import MAX_MODEL_LEN, mooncake_line, read_all, refused_line, write_lines


def test_reads_a_request(tmp_path: Path) -> None:
    """Milliseconds become seconds, and the id names the line."""
    path = write_lines(tmp_path / "f", mooncake_line(), mooncake_line(timestamp=2500, output_length=7))
    first, second = read_all(path)

    assert ("r1", 1, 1.0, 600, 5) == (
        first.request_id,
        first.line,
        first.arrival_time,
        first.num_prompt_tokens,
        first.num_output_tokens,
    )
    assert ("r2", 2.5, 7) == (second.request_id, second.arrival_time, second.num_output_tokens)


def test_equal_hash_ids_give_equal_tokens(tmp_path: Path) -> None:
    """A block with id h holds the tokens from h * 512 on, cut where the prompt ends."""
    path = write_lines(
        tmp_path / "f",
        mooncake_line(input_length=1100, hash_ids=[0, 7, 8]),
        mooncake_line(input_length=1024, hash_ids=[0, 7]),
    )
    first, second = (request.prompt_token_ids() for request in read_all(path))

    assert first[:1024] == second
    assert (*range(512), *range(7 * 512, 8 * 512 + 76)) == first


def test_the_largest_hash_id_stays_below_the_outputs(tmp_path: Path) -> None:
    """No prompt token is ever an output token."""
    path = write_lines(tmp_path / "f", mooncake_line(input_length=512, hash_ids=[MAX_HASH_ID]))
    (request,) = read_all(path)

    assert OUTPUT_TOKEN_BASE - 1 == request.prompt_token_ids()[-1]


def test_ignores_fields_that_later_traces_add(tmp_path: Path) -> None:
    """Other fields are allowed in this format."""
    path = write_lines(tmp_path / "f", mooncake_line(type="text", turn=3))

    assert 1 == len(read_all(path))


def test_takes_an_output_beyond_the_model_length(tmp_path: Path) -> None:
    """An output that does not fit is cut by the scheduler, not refused."""
    path = write_lines(tmp_path / "f", mooncake_line(output_length=10 * MAX_MODEL_LEN))

    assert 10 * MAX_MODEL_LEN == read_all(path)[0].num_output_tokens


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("timestamp", -1, "a number from 0 to 1e+12 (milliseconds)"),
        ("timestamp", "1000", "a number from 0"),
        ("timestamp", True, "a number from 0"),
        ("timestamp", MAX_ARRIVAL_SECONDS * 1001, "a number from 0"),
        ("timestamp", 10**400, "a number from 0"),
        ("timestamp", 999, "at least 1000.0, the one before"),
        ("input_length", 0, "an integer from 1"),
        ("input_length", -5, "an integer from 1"),
        ("input_length", 600.0, "an integer from 1"),
        ("input_length", False, "an integer from 1"),
        ("input_length", None, "an integer from 1"),
        ("input_length", 2**26, "an integer from 1 to 67108863"),
        ("input_length", MAX_MODEL_LEN, f"less than max_model_len = {MAX_MODEL_LEN}"),
        ("output_length", 0, "an integer from 1"),
        ("output_length", "5", "an integer from 1"),
        ("hash_ids", 3, "a list of integers"),
        ("hash_ids", "01", "a list of integers"),
    ],
)
def test_refuses_a_wrong_value(tmp_path: Path, field: str, value: Any, allowed: str) -> None:
    """The error names the line, the field, the value and what is allowed."""
    path = write_lines(tmp_path / "f", mooncake_line(), mooncake_line(**{field: value}))

    with refused_line(2, field, allowed, value):
        read_all(path)


@pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_refuses_a_missing_field(tmp_path: Path, field: str) -> None:
    """All four fields are needed on every line."""
    path = write_lines(tmp_path / "f", mooncake_line(), mooncake_line(**{field: ...}))

    with refused_line(2, field, "the fields timestamp, input_length, output_length, hash_ids", MISSING):
        read_all(path)


@pytest.mark.parametrize("hash_ids", [[], [0], [0, 1, 2]])
def test_refuses_a_wrong_number_of_hash_ids(tmp_path: Path, hash_ids: list[int]) -> None:
    """There is one hash id per 512 tokens, the last block possibly partial."""
    path = write_lines(tmp_path / "f", mooncake_line(hash_ids=hash_ids))

    with refused_line(1, "hash_ids", "2 ids: one per 512 tokens", f"{len(hash_ids)} ids"):
        read_all(path)


@pytest.mark.parametrize("value", [-1, MAX_HASH_ID + 1, 1.0, "1", None, True, [1]])
def test_refuses_a_wrong_hash_id(tmp_path: Path, value: Any) -> None:
    """The error names the place in the list."""
    path = write_lines(tmp_path / "f", mooncake_line(hash_ids=[0, value]))

    with refused_line(1, "hash_ids[1]", f"an integer from 0 to {MAX_HASH_ID}", value):
        read_all(path)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"timestamp": 0, "input_len', "one JSON object (Unterminated string"),
        ('{"timestamp": 0,}', "one JSON object ("),
        ('{"timestamp": NaN}', "NaN is not a JSON number"),
        ('{"timestamp": -Infinity}', "-Infinity is not a JSON number"),
        ('{"timestamp": 0, "timestamp": 1}', "the key 'timestamp' stands twice"),
        ("[1, 2]", "one JSON object"),
        ("7", "one JSON object"),
        ('{"timestamp": ' + "9" * 5000 + "}", "one JSON object ("),
        ('{"timestamp": ' + "[" * 200_000, "one JSON object ("),
        ("timestamp,input_length", "one JSON object ("),
    ],
)
def test_refuses_a_line_that_is_not_one_object(tmp_path: Path, text: str, allowed: str) -> None:
    """Cut off, malformed and hostile lines give one error with the line."""
    path = write_lines(tmp_path / "f", mooncake_line(), text)

    with refused_line(2, "line", allowed, text):
        read_all(path)


def test_reads_no_further_than_asked(tmp_path: Path) -> None:
    """A bad line is found when it is its turn."""
    path = write_lines(tmp_path / "f", mooncake_line(), "{")

    with open_workload(path, None, max_model_len=MAX_MODEL_LEN) as workload:
        assert "r1" == next(iter(workload)).request_id
