"""The workload formats by name, and telling which one a file has.

| name       | looks like                                                   | file          |
|------------|--------------------------------------------------------------|---------------|
| `mooncake` | JSON objects with `timestamp`, `input_length`, `hash_ids`    | `mooncake.py` |
| `jsonl`    | JSON objects with `arrival`, `prompt_tokens`                 | `plain.py`    |
| `csv`      | a header line that is not a JSON object                      | `plain.py`    |
"""

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

from kvsched_fp.errors import WorkloadError
from kvsched_fp.workloads import mooncake, plain
from kvsched_fp.workloads.fields import parse_object
from kvsched_fp.workloads.lines import Line, count_lines, open_lines, read_lines
from kvsched_fp.workloads.request import WorkloadRequest


class WorkloadFormat(enum.Enum):
    """How a workload file is written."""

    MOONCAKE = "mooncake"
    """Mooncake's JSON Lines with hash ids."""
    JSONL = "jsonl"
    """Arrivals and lengths as JSON Lines."""
    CSV = "csv"
    """Arrivals and lengths as CSV with a header."""


Reader: TypeAlias = Callable[[Iterable[Line], int], Iterator[WorkloadRequest]]
"""From lines and `max_model_len` to requests, lazily."""

READERS: dict[WorkloadFormat, Reader] = {
    WorkloadFormat.MOONCAKE: mooncake.read_mooncake,
    WorkloadFormat.JSONL: plain.read_plain_jsonl,
    WorkloadFormat.CSV: plain.read_plain_csv,
}
"""The reader of each format."""


class OpenWorkload:
    """A workload file, open for one pass. Iterating gives its requests; a `with` block closes it."""

    def __init__(
        self, path: Path, stream: BinaryIO, workload_format: WorkloadFormat | None, max_model_len: int
    ) -> None:
        self.path = path
        self._stream = stream
        lines = read_lines(path, stream)
        first = next(lines, None)
        if first is None:
            raise _empty(path)
        self.format = detect_format(first) if workload_format is None else workload_format
        self._requests = READERS[self.format](itertools.chain([first], lines), max_model_len)

    def __iter__(self) -> Iterator[WorkloadRequest]:
        """Go through the requests that are left, in the order of the file."""
        first = next(self._requests, None)
        if first is None:
            raise _empty(self.path)
        yield first
        yield from self._requests

    def estimate_num_requests(self) -> int | None:
        """Count the lines that can hold a request; None if the file can be read only once."""
        num_lines = count_lines(self.path)
        if num_lines is None:
            return None
        return num_lines - (self.format is WorkloadFormat.CSV)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.close()


def open_workload(
    path: Path, workload_format: WorkloadFormat | None, *, max_model_len: int
) -> OpenWorkload:
    """Open a workload file; None for the format tells it from the first line.

    Raises `WorkloadError` if the file cannot be read, is empty, or has none of the formats. Lines are
    read and checked while they are iterated over: prompts must be shorter than `max_model_len` tokens.
    """
    stream = open_lines(path)
    try:
        return OpenWorkload(path, stream, workload_format, max_model_len)
    except BaseException:
        stream.close()
        raise


def detect_format(first: Line) -> WorkloadFormat:
    """Tell the format from the first line. Raises `WorkloadError` if it has the fields of none."""
    if not first.text.startswith("{"):
        return WorkloadFormat.CSV
    keys = parse_object(first).keys()
    for workload_format, fields in (
        (WorkloadFormat.MOONCAKE, mooncake.FIELDS),
        (WorkloadFormat.JSONL, plain.FIELDS),
    ):
        if any(field in keys for field in fields):
            return workload_format
    raise first.error(
        "format",
        ", ".join(keys),
        f"the fields of Mooncake ({', '.join(mooncake.FIELDS)}) or plain ({', '.join(plain.FIELDS)}) lines",
    )


def _empty(path: Path) -> WorkloadError:
    return WorkloadError("workload", "no request", "at least one request", path=path)
