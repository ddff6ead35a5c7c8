"""Writing a trace file."""

import json
from pathlib import Path

import attrs
import pytest

from kvsched_fp import DEFAULT, InvalidConfig, PauseState, SetPauseState, initial_state
from kvsched_fp.errors import TraceError
from kvsched_fp.trace.codec import encode_record
from kvsched_fp.trace.header import encode_header
from kvsched_fp.trace.reader import open_trace_reader
from kvsched_fp.trace.writer import TraceWriter, open_trace

EVENT = SetPauseState(PauseState.UNPAUSED)


def test_writes_a_header_and_a_line_per_event(tmp_path: Path) -> None:
    """Every line is one JSON object without spaces."""
    path = tmp_path / "trace"
    state = initial_state(DEFAULT)
    with open_trace(path, DEFAULT) as trace:
        trace.write(EVENT, state, None)
        trace.write(EVENT, state, None)
    lines = path.read_bytes().splitlines(keepends=True)

    assert [encode_header(DEFAULT), *[encode_record(EVENT, None)] * 2] == [
        json.loads(line) for line in lines
    ]
    assert b'{"event":{"kind":"set_pause_state","pause_state":"unpaused"}}\n' == lines[1]


def test_a_path_may_be_text(tmp_path: Path) -> None:
    """Text is a path, for the writer and for the reader."""
    path = str(tmp_path / "trace")
    with open_trace(path, DEFAULT) as trace:
        trace.write(EVENT, initial_state(DEFAULT), None)
    with open_trace_reader(path) as reader:
        events = [record.event for record in reader.records()]

    assert [EVENT] == events
    with pytest.raises(TraceError, match="a file that can be read"):
        open_trace_reader(str(tmp_path / "nothing"))


def test_writes_over_what_was_there(tmp_path: Path) -> None:
    """A trace is that of one run."""
    path = tmp_path / "trace"
    path.write_bytes(b"x" * 10_000)
    open_trace(path, DEFAULT).close()

    assert 1 == len(path.read_bytes().splitlines())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/trace", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_refuses_a_path_that_cannot_be_written(tmp_path: Path, name: str, reason: str) -> None:
    """The error names the path and the reason."""
    with pytest.raises(TraceError) as caught:
        open_trace(tmp_path / name, DEFAULT)

    assert ("trace", reason, "a file that can be written") == (
        caught.value.field,
        caught.value.value,
        caught.value.allowed,
    )
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported() -> None:
    """What the file does not take is an error, at the latest when it is closed."""
    trace = open_trace(Path("/dev/full"), DEFAULT)
    with pytest.raises(TraceError, match="trace: got 'No space left on device'"):
        trace.close()

    trace = open_trace(Path("/dev/full"), DEFAULT)
    with pytest.raises(TraceError, match="trace: got 'No space left on device'"):
        _write_many(trace)


def _write_many(trace: TraceWriter) -> None:
    state = initial_state(DEFAULT)
    for _ in range(100_000):
        trace.write(EVENT, state, None)


def test_a_config_that_cannot_be_written_leaves_the_file_alone(tmp_path: Path) -> None:
    """Nothing is overwritten before it is known that the trace can be made."""

    class OwnHasher:
        def hash_block(self, *_: object) -> bytes:
            return b""

    path = tmp_path / "trace"
    path.write_bytes(b"kept")
    with pytest.raises(InvalidConfig, match="OwnHasher"):
        open_trace(path, attrs.evolve(DEFAULT, block_hasher=OwnHasher()))

    assert b"kept" == path.read_bytes()
