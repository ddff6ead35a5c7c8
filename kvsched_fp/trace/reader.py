"""Reading a trace file that nobody has looked at before.

Rules
-----
Nothing of a file is believed. Lines are UTF-8 and at most `MAX_LINE_BYTES` long; a value is nested at most
`MAX_DEPTH` deep; the runs of one record stand for at most `values.MAX_RUN_TOTAL` integers; no key stands
twice; there is no NaN. What breaks a rule raises `TraceError` with file, line and field, and nothing behind
it is read. One line is held at a time.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import attrs

from kvsched_fp.errors import MISSING, InvalidInputError, TraceError
from kvsched_fp.events import Event
from kvsched_fp.trace.codec import Told, decode_event, decode_told
from kvsched_fp.trace.header import Header, decode_header
from kvsched_fp.trace.values import CodecError, one_record
from kvsched_fp.workloads.fields import DECODER, parse_object
from kvsched_fp.workloads.lines import Line, open_lines, read_lines

MAX_LINE_BYTES = 2**26
"""The longest line, in bytes; enough for millions of token ids that form no runs."""
MAX_DEPTH = 16
"""The deepest nesting; the format needs 8."""

_BESIDES_BRACKETS = bytes(code for code in range(256) if chr(code) not in "[]{}")
# A string that does not end goes on to the end of the line, so that a hostile one is looked at once.
_STRINGS = re.compile(r'"(?>[^"\\]+|\\.)*+"?')


@attrs.frozen
class TraceRecord:
    """One event of a trace, and what came of it as the file has it."""

    line: Line
    """Where it stands."""
    event: Event
    """What happened."""
    rest: str
    """What stands behind the event, as text; the outcome is read only where it must be."""

    def ends_with(self, written: str) -> bool:
        """Tell whether the outcome stands in the file exactly as `codec.write_told` gave it."""
        return self.rest == f"{written}}}"

    def told(self) -> Told:
        """Read what came of the event. Raises `TraceError`."""
        try:
            with one_record():
                return decode_told(parse_line(self.line), self.event)
        except CodecError as error:
            raise self.error(error) from None

    def error(self, cause: InvalidInputError, prefix: str = "") -> TraceError:
        """Make the error that says what is wrong with this record."""
        return _located(self.line, cause, prefix)


class TraceReader:
    """A trace that is being read. A `with` block closes it."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.stream = stream
        self._lines = read_lines(path, stream, TraceError, MAX_LINE_BYTES)
        self.header = self._read_header()

    def records(self) -> Iterator[TraceRecord]:
        """Go through the records. Raises `TraceError` at the first that breaks a rule."""
        for line in self._lines:
            event, rest = _read_event(line)
            try:
                with one_record():
                    decoded = decode_event(event)
            except CodecError as error:
                raise _located(line, error) from None
            yield TraceRecord(line, decoded, rest)

    def tell(self) -> int:
        """Give the bytes read so far; 0 where a file does not tell."""
        return self.stream.tell() if self.stream.seekable() else 0

    def _read_header(self) -> Header:
        line = next(self._lines, None)
        if line is None:
            raise TraceError("trace", "no line", "a header line", path=self.path)
        try:
            with one_record():
                return decode_header(parse_line(line))
        except InvalidInputError as error:
            if isinstance(error, TraceError):
                raise
            raise _located(line, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stream.close()


def open_trace_reader(path: Path | str) -> TraceReader:
    """Open a trace and read its header. Raises `TraceError`."""
    path = Path(path)
    stream = open_lines(path, TraceError)
    try:
        return TraceReader(path, stream)
    except BaseException:
        stream.close()
        raise


def _read_event(line: Line) -> tuple[Any, str]:
    """Read the event of a record, and give what stands behind it if it comes first, else nothing."""
    if line.text.startswith(_EVENT_FIRST) and not _depth_exceeds(line.text, MAX_DEPTH):
        try:
            event, end = DECODER.raw_decode(line.text, len(_EVENT_FIRST))
        except (ValueError, RecursionError):
            pass  # reading the whole line will say what is wrong
        else:
            return event, line.text[end:]
    values = parse_line(line)
    if "event" not in values:
        raise _located(line, CodecError("record.event", MISSING, "an object with the key event"))
    return values["event"], ""


_EVENT_FIRST = '{"event":'


def parse_line(line: Line) -> dict[str, Any]:
    """Read one line of somebody else's as a JSON object. Raises an error of the line's kind."""
    if _depth_exceeds(line.text, MAX_DEPTH):
        raise line.error("line", line.text, f"nested at most {MAX_DEPTH} deep")
    try:
        values = parse_object(line)
    except InvalidInputError:
        if line.has_end:
            raise
        raise line.error("line", line.text, "a whole line; the file ends in the middle of it") from None
    return values


def _depth_exceeds(text: str, limit: int) -> bool:
    """Tell whether brackets are nested deeper than `limit`; those in strings do not count."""
    return _is_deep(text, limit) and _is_deep(_STRINGS.sub("", text), limit)


def _is_deep(text: str, limit: int) -> bool:
    brackets = text.encode().translate(None, _BESIDES_BRACKETS)
    for _ in range(limit):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return False
    # Else nothing closes what is left: a line that ends early, or no JSON, which the parser will say.
    return b"[]" in brackets or b"{}" in brackets or len(brackets) - len(brackets.lstrip(b"[{")) > limit


def _located(line: Line, cause: InvalidInputError, prefix: str = "") -> TraceError:
    field = f"{prefix}{cause.field}"
    return TraceError(field, cause.value, cause.allowed, path=line.path, line=line.number)
