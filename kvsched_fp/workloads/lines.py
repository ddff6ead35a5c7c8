"""Numbered lines of a text file that nobody has looked at before.

Rules
-----
A line is at most `max_bytes` long and UTF-8. Lines of white space alone are skipped, a byte order
mark at the start too. Only one line is held at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from kvsched_fp.errors import InputFileError, WorkloadError

MAX_LINE_BYTES = 2**20
"""The longest line of a workload, in bytes; enough for a prompt of 50 million tokens."""

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
    kind: type[InputFileError] = WorkloadError
    """Which error a wrong line is."""
    has_end: bool = True
    """Whether a line end stands behind it; not behind the last line of a file that was cut."""

    def error(self, field: str, value: object, allowed: str) -> InputFileError:
        """Make the error that names this line."""
        return self.kind(field, value, allowed, path=self.path, line=self.number)


def open_lines(path: Path, kind: type[InputFileError] = WorkloadError) -> BinaryIO:
    """Open `path` to be read by `read_lines`. Raises an error of `kind` if it cannot be."""
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(path, error, kind) from None


def read_lines(
    path: Path,
    stream: BinaryIO,
    kind: type[InputFileError] = WorkloadError,
    max_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Line]:
    """Go through the lines that are not blank. Raises an error of `kind` where one breaks a rule."""
    number = 0
    while raw := _read_line(path, stream, kind, max_bytes):
        number += 1
        if len(raw) > max_bytes:
            value, allowed = f"more than {max_bytes} bytes", f"at most {max_bytes} bytes"
            raise kind("line", value, allowed, path=path, line=number)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # the byte order mark
        text = _decode(path, number, raw, kind).strip()
        if text:
            yield Line(path, number, text, kind, raw.endswith(b"\n"))


def count_lines(path: Path) -> int | None:
    """Count the lines of a workload; None if `path` is not a regular file, which is read only once."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            count, last = 0, b"\n"
            while chunk := stream.read(_CHUNK_BYTES):
                count += chunk.count(b"\n")
                last = chunk[-1:]
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, WorkloadError) from None
    return count + (last != b"\n")


def _read_line(path: Path, stream: BinaryIO, kind: type[InputFileError], max_bytes: int) -> bytes:
    try:
        return stream.readline(max_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error, kind) from None


def _decode(path: Path, number: int, raw: bytes, kind: type[InputFileError]) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        value = raw[error.start : error.start + 8]
        allowed = f"UTF-8 text; byte {error.start + 1} of the line is not"
        raise kind("line", value, allowed, path=path, line=number) from None


def _unreadable(path: Path, error: Exception, kind: type[InputFileError]) -> InputFileError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return kind(kind.subject, reason, "a file that can be read", path=path)
