"""Writing a trace file, line by line.

Lines are written whole, so a run that ends early leaves a trace of what happened so far; one that is killed
loses what it did not `flush`, and may leave a line that is cut.
The bytes depend on the configuration and the events alone.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import TraceError
from kvsched_fp.events import Event
from kvsched_fp.machine import Outcome
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.codec import Told, what_was_told, write_record
from kvsched_fp.trace.header import encode_header


class TraceWriter:
    """A trace file that is being written. A `with` block closes it."""

    def __init__(self, path: Path, stream: BinaryIO, header: dict[str, Any]) -> None:
        self.path = path
        self._stream = stream
        self._write_line(json.dumps(header, separators=(",", ":"), allow_nan=False))

    def write(self, event: Event, after: SchedulerState, outcome: Outcome) -> None:
        """Append one event of this package's machine, with what `machine.step()` gave.

        Raises `TraceError` if the file takes no more.
        """
        self.write_told(event, what_was_told(event, after, outcome))

    def write_told(self, event: Event, told: Told) -> None:
        """Append one event of any scheduler, and what came of it. Raises `TraceError` as `write` does."""
        self._write_line(write_record(event, told))

    def _write_line(self, text: str) -> None:
        try:
            self._stream.write(f"{text}\n".encode("ascii"))
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def flush(self) -> None:
        """Write what is buffered. Raises `TraceError` if the file does not take it."""
        try:
            self._stream.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def close(self) -> None:
        """Write what is buffered, and end. Raises `TraceError` if the file does not take it."""
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


def open_trace(
    path: Path | str, config: SchedulerConfig, source_sha256: Mapping[str, str] | None = None
) -> TraceWriter:
    """Start a trace at `path`, over what was there.

    `source_sha256` are the hashes of the sources of the scheduler that is recorded, for the header; the
    pinned ones if not given. Raises `TraceError` if `path` cannot be written, and `InvalidConfig` for a
    configuration that has parts which a trace cannot name; nothing is overwritten then.
    """
    header = encode_header(config, source_sha256)
    path = Path(path)
    try:
        stream = path.open("wb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unwritable(path, error) from None
    return TraceWriter(path, stream, header)


def _unwritable(path: Path, error: Exception) -> TraceError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return TraceError("trace", reason, "a file that can be written", path=path)
