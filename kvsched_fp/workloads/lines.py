"""Numbered lines of a text file that nobody has looked at before.

Rules
-----
A line is at most `MAX_LINE_BYTES` long and UTF-8. Lines of white space alone are skipped, a byte order
mark at the start too. Only one line is held at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from kvsched_fp.errors import WorkloadError

MAX_LINE_BYTES = 2**20
"""The longest line that is read, in bytes; enough for a prompt of 50 million tokens."""

_CHUNK_BYTES = 2**20


@attrs.frozen
class Line:
    """One line, and where it stands."""

    path: Path
    """The file."""
    number: int
    """From 1."""
    text: str
    """Without the line end."""

    def error(self, field: str, value: object, allowed: str) -> WorkloadError:
        """Make the error that names this line."""
        return WorkloadError(field, value, allowed, path=self.path, line=self.number)


def open_lines(path: Path) -> BinaryIO:
    """Open `path` to be read by `read_lines`. Raises `WorkloadError` if it cannot be."""
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(path, error) from None


def read_lines(path: Path, stream: BinaryIO) -> Iterator[Line]:
    """Go through the lines that are not blank. Raises `WorkloadError` at the first that breaks a rule."""
    number = 0
    while raw := _read_line(path, stream):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise WorkloadError(
                "line",
                f"more than {MAX_LINE_BYTES} bytes",
                f"at most {MAX_LINE_BYTES} bytes",
                path=path,
                line=number,
            )
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # the byte order mark
        text = _decode(path, number, raw).strip()
        if text:
            yield Line(path, number, text)


def count_lines(path: Path) -> int | None:
    """Count the lines of a file; None if `path` is not a regular file, which is read only once."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            count, last = 0, b"\n"
            while chunk := stream.read(_CHUNK_BYTES):
                count += chunk.count(b"\n")
                last = chunk[-1:]
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return count + (last != b"\n")


def _read_line(path: Path, stream: BinaryIO) -> bytes:
    try:
        return stream.readline(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None


def _decode(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(
            "line",
            raw[error.start : error.start + 8],
            f"UTF-8 text; byte {error.start + 1} of the line is not",
            path=path,
            line=number,
        ) from None


def _unreadable(path: Path, error: Exception) -> WorkloadError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return WorkloadError("workload", reason, "a file that can be read", path=path)
