"""Telling the formats apart, and opening a file."""

import os
import threading
from pathlib import Path

import pytest

from kvsched_fp.errors import MISSING
from kvsched_fp.workloads.formats import WorkloadFormat, open_workload
from tests.unit.workloads.helpers import (
    MAX_MODEL_LEN,
    mooncake_line,
    plain_line,
    read_all,
    refused_line,
    write_lines,
)
from tests.unit.workloads.test_plain import HEADER


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([mooncake_line()], WorkloadFormat.MOONCAKE),
        ([plain_line()], WorkloadFormat.JSONL),
        ([HEADER, "1,600,5"], WorkloadFormat.CSV),
        (["", mooncake_line()], WorkloadFormat.MOONCAKE),
    ],
)
def test_tells_the_format_from_the_first_line(
    tmp_path: Path, lines: list[str], expected: WorkloadFormat
) -> None:
    """The name of the file does not matter."""
    path = write_lines(tmp_path / "f.txt", *lines)
    with open_workload(path, None, max_model_len=MAX_MODEL_LEN) as workload:
        assert expected == workload.format
        assert 1 == len(list(workload))


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    """A forced format is what errors are about."""
    path = write_lines(tmp_path / "f", plain_line())

    with refused_line(1, "timestamp", "the fields timestamp", MISSING):
        read_all(path, WorkloadFormat.MOONCAKE)


def test_refuses_an_object_of_no_known_format(tmp_path: Path) -> None:
    """The error names the fields of both JSON formats."""
    path = write_lines(tmp_path / "f", {"time": 1, "tokens": 2})

    with refused_line(1, "format", "the fields of Mooncake (timestamp", "time, tokens"):
        read_all(path)


def test_refuses_a_first_line_that_is_cut_off(tmp_path: Path) -> None:
    """A truncated first line is not taken for another format."""
    path = write_lines(tmp_path / "f", '{"timestamp": 0, "input')

    with refused_line(1, "line", "one JSON object"):
        read_all(path)


@pytest.mark.parametrize("lines", [[], ["", " "], [HEADER]])
def test_refuses_a_file_without_a_request(tmp_path: Path, lines: list[str]) -> None:
    """An empty workload is a mistake."""
    path = write_lines(tmp_path / "f", *lines)

    with refused_line(None, "workload", "at least one request", "no request"):
        read_all(path)


def test_estimates_the_number_of_requests(tmp_path: Path) -> None:
    """The header of CSV is not one."""
    path = write_lines(tmp_path / "f", HEADER, "1,600,5", "2,600,5")
    with open_workload(path, None, max_model_len=MAX_MODEL_LEN) as workload:
        assert 2 == workload.estimate_num_requests()


def test_reads_from_a_pipe(tmp_path: Path) -> None:
    """What can be read only once is enough."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=write_lines, args=(path, plain_line(), plain_line()))
    writer.start()
    with open_workload(path, None, max_model_len=MAX_MODEL_LEN) as workload:
        num_requests = len(list(workload))

        assert workload.estimate_num_requests() is None
    writer.join()

    assert 2 == num_requests
