"""Numbered lines of a file."""

import os
from pathlib import Path

import pytest

from kvsched_fp.workloads.lines import MAX_LINE_BYTES, count_lines, open_lines, read_lines
from tests.unit.workloads.helpers import refused_line, write_lines


def _read(path: Path) -> list[tuple[int, str]]:
    with open_lines(path) as stream:
        return [(line.number, line.text) for line in read_lines(path, stream)]


def test_numbers_lines_from_one_and_skips_blank_ones(tmp_path: Path) -> None:
    """Blank lines give nothing but count."""
    path = write_lines(tmp_path / "f", "a", "", "  ", "b")

    assert [(1, "a"), (4, "b")] == _read(path)


def test_strips_the_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    """Files from other systems read the same."""
    path = write_lines(tmp_path / "f", b"\xef\xbb\xbfa\r", b"b\r")

    assert [(1, "a"), (2, "b")] == _read(path)


def test_reads_a_last_line_without_an_end(tmp_path: Path) -> None:
    """The last line end may be missing."""
    path = tmp_path / "f"
    path.write_bytes(b"a\nb")

    assert [(1, "a"), (2, "b")] == _read(path)
    assert 2 == count_lines(path)


def test_refuses_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    """The error names the line and the byte."""
    path = write_lines(tmp_path / "f", "a", b"ab\xff\xfe")

    with refused_line(2, "line", "UTF-8 text; byte 3", b"\xff\xfe\n"):
        _read(path)


def test_refuses_a_line_that_is_too_long(tmp_path: Path) -> None:
    """A line is never read whole before its length is known."""
    path = write_lines(tmp_path / "f", "a", "x" * (MAX_LINE_BYTES + 1))

    with refused_line(2, "line", f"at most {MAX_LINE_BYTES} bytes"):
        _read(path)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    """The error names the path and the reason."""
    with refused_line(None, "workload", "can be read", "No such file or directory"):
        open_lines(tmp_path / "missing")


def test_refuses_a_directory(tmp_path: Path) -> None:
    """A directory is not a file."""
    with refused_line(None, "workload", "can be read", "Is a directory"):
        open_lines(tmp_path)


def test_refuses_a_name_that_no_file_can_have() -> None:
    """A NUL in the name is an error of the caller's, not a crash."""
    with refused_line(None, "workload", "can be read"):
        open_lines(Path("a\0b"))


def test_does_not_count_the_lines_of_a_pipe(tmp_path: Path) -> None:
    """What can be read only once is not read to be counted."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    assert count_lines(path) is None


def test_counting_says_that_a_file_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that vanished since it was opened is reported like one that was never there."""

    def fail(_path: Path, _mode: str) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    path = write_lines(tmp_path / "f", "a")
    monkeypatch.setattr(Path, "open", fail)

    with refused_line(None, "workload", "can be read", "No such file or directory"):
        count_lines(path)
