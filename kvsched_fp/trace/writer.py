"""Writing a trace file, line by line.

A record is one write of a whole line, so a run that ends early leaves a trace of what happened so far.
The bytes depend on the configuration and the events alone.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import WorkloadError
from kvsched_fp.events import Event
from kvsched_fp.machine import Outcome
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.codec import encode_header, encode_record


class TraceWriter:
    """A trace file that is being written. A `with` block closes it."""

    def __init__(self, path: Path, stream: BinaryIO, config: SchedulerConfig) -> None:
        self.path = path
        self._stream = stream
        self._write_line(encode_header(config))

    def write(self, event: Event, after: SchedulerState, outcome: Outcome) -> None:
        """Append one event and what came of it. Raises `WorkloadError` if the file takes no more."""
        self._write_line(encode_record(event, after, outcome))

    def _write_line(self, record: dict[str, Any]) -> None:
        try:
            self._stream.write(format_line(record))
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def close(self) -> None:
        """Write what is buffered. Raises `WorkloadError` if the file does not take it."""
        try:
            self._stream.close()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_trace(path: Path, config: SchedulerConfig) -> TraceWriter:
    """Start a trace at `path`, over what was there.

    Raises `WorkloadError` if `path` cannot be written, and `InvalidConfig` for a configuration that has
    parts which a trace cannot name; nothing is overwritten then.
    """
    encode_header(config)
    try:
        stream = path.open("wb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unwritable(path, error) from None
    return TraceWriter(path, stream, config)


def format_line(record: dict[str, Any]) -> bytes:
    """Write a record as one line of ASCII, its line end included."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False, check_circular=False)
    return text.encode("ascii") + b"\n"


def _unwritable(path: Path, error: Exception) -> WorkloadError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return WorkloadError("trace", reason, "a file that can be written", path=path)
