"""Reading a hostile file: one clear error with file, line and field."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp import AddRequest
from kvsched_fp.errors import MISSING, TraceError
from kvsched_fp.trace import check_trace, open_trace_reader, reader, values
from tests.unit.trace.helpers import edit, read_values, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Give a small good trace."""
    return write_trace(tmp_path / "t.jsonl")


def _error(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught, open_trace_reader(path) as opened:
        check_trace(opened)
    return caught.value


def _replace_line(path: Path, line: int, content: bytes) -> Path:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = content + b"\n"
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[" * 100_000, "nested at most 16 deep"),
        (b'{"event":' + b'{"a":' * 40 + b"1" + b"}" * 41, "nested at most 16 deep"),
        (b'{"event":"]]]]' + b'","x":' + b"[" * 20 + b"]" * 20 + b"}", "nested at most 16 deep"),
        (b'"' + b'\\"' * 200_000, "one JSON object"),
        (gzip.compress(b"x" * 100)[:20], "UTF-8 text"),
        (b"\xff\xfe{}", "UTF-8 text; byte 1"),
        (b"{", "one JSON object"),
        (b"[]", "one JSON object"),
        (b'{"event":{"kind":"schedule","throttle_prefills":NaN}}', "NaN is not a JSON number"),
        (b'{"event":1' + b"0" * 5000 + b"}", "one JSON object"),
        (
            b'{"event":{"kind":"schedule","throttle_prefills":false},"event":2}',
            "the key 'event' stands twice",
        ),
    ],
)
def test_a_line_that_is_no_record(trace: Path, content: bytes, part: str) -> None:
    """Nesting, bytes, JSON and lengths are checked before anything is made of them."""
    error = _error(_replace_line(trace, 3, content))

    assert (trace, 3, "line") == (error.path, error.line, error.field)
    assert part in error.allowed


def test_runs_that_stand_for_too_much(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists of one record share what their runs may stand for."""
    monkeypatch.setattr(values, "MAX_RUN_TOTAL", 100)
    request: dict[str, Any] = read_values(trace)[1]["event"]["request"]
    request["prompt_token_ids"] = [[1, 60]]
    edit(trace, lambda lines: lines[1]["event"].update(request=request))
    with open_trace_reader(trace) as opened:
        next(opened.records())

    request["sampling_params"]["stop_token_ids"] = [[1, 60]]
    error = _error(edit(trace, lambda lines: lines[1]["event"].update(request=request)))

    assert (2, "event.request.sampling_params.stop_token_ids[0]") == (error.line, error.field)
    assert "100 integers in all" in error.allowed


def test_two_large_tokens_are_no_run(trace: Path) -> None:
    """A list of two integers is one of two tokens, unless it stands in a list of tokens."""
    tokens = [7, 2 * values.MAX_RUN_TOTAL]
    edit(trace, lambda lines: lines[1]["event"]["request"].update(prompt_token_ids=tokens))
    with open_trace_reader(trace) as opened:
        event = next(opened.records()).event

    assert isinstance(event, AddRequest)
    assert tuple(tokens) == event.request.prompt_token_ids


def test_a_line_that_is_too_long(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is not read whole before its length is known."""
    longest = max(map(len, trace.read_bytes().splitlines()))
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", longest + 1)
    error = _error(_replace_line(trace, 4, b"x" * (longest + 2)))

    assert (4, "line") == (error.line, error.field)
    assert f"at most {longest + 1} bytes" == error.allowed


def test_a_trace_that_ends_in_the_middle_of_a_line(trace: Path) -> None:
    """The last line is named."""
    content = trace.read_bytes()
    trace.write_bytes(content[:-20])
    error = _error(trace)

    assert (len(content.splitlines()), "line") == (error.line, error.field)


@pytest.mark.parametrize(
    ("change", "field", "part"),
    [
        ({"version": 2}, "version", "1"),
        ({"version": True}, "version", "1"),
        ({"version": 1.0}, "version", "1"),
        ({"format": "other"}, "format", "'kvsched-fp-trace'"),
        ({"reference": "vllm 0.9"}, "reference", "'vllm 0.33.0'"),
        ({"extra": 1}, "header", "an object with the keys"),
        ({"source_sha256": []}, "source_sha256", "an object"),
        ({"source_sha256": {"a": 1}}, "source_sha256.a", "a text"),
        ({"config": 5}, "config", "an object with the keys"),
    ],
)
def test_a_wrong_header(trace: Path, change: dict[str, Any], field: str, part: str) -> None:
    """The first line says what the file is, or it is not read."""
    error = _error(edit(trace, lambda lines: lines[0].update(change)))

    assert (1, field) == (error.line, error.field)
    assert part in error.allowed


@pytest.mark.parametrize(("key", "field"), [("version", "version"), ("config", "header.config")])
def test_a_header_without_a_key(trace: Path, key: str, field: str) -> None:
    """The error says that the key is missing, not that it is null."""
    error = _error(edit(trace, lambda lines: lines[0].pop(key)))

    assert (1, field, MISSING) == (error.line, error.field, error.value)
    assert f"{field}: missing; allowed: " in str(error)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("num_blocks", 10**12, "at most"),
        ("num_blocks", 1.5, "an integer"),
        ("block_hasher", {"kind": "pickle"}, "blake2b, opaque"),
        ("watermark", 10**400, "a number"),
        ("policy", "lifo", "'fcfs'"),
    ],
)
def test_a_wrong_configuration(trace: Path, name: str, value: object, part: str) -> None:
    """A configuration that no scheduler can run with names its field."""
    error = _error(edit(trace, lambda lines: lines[0]["config"].update({name: value})))

    assert (1, f"config.{name}") == (error.line, error.field)
    assert part in error.allowed


def _result_for(values: list[dict[str, Any]], step_id: int) -> None:
    update = next(value for value in values if value.get("emitted"))
    update["event"]["result"]["step_id"] = step_id


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda values: values[1].update(event={"kind": "explode"}), "event"),
        (lambda values: values[1].update(event=None), "event"),
        (lambda values: values[1].pop("event"), "record.event"),
        (lambda values: values[1].update(output={}), "record"),
        (lambda values: values[1]["event"].pop("request"), "event.request"),
        (
            lambda values: values[1]["event"]["request"].update(prompt_token_ids=["a"]),
            "event.request.prompt_token_ids[0]",
        ),
        (
            lambda values: values[1]["event"]["request"].update(prompt_token_ids=[]),
            "event.request.prompt_token_ids",
        ),
        (
            lambda values: values[1]["event"]["request"]["sampling_params"].update(max_tokens="1"),
            "event.request.sampling_params.max_tokens",
        ),
        (lambda values: values.insert(2, values[1]), "event: request_id"),
        (lambda values: _result_for(values, 7), "event: step_id"),
    ],
)
def test_a_wrong_event(trace: Path, change: Any, field: str) -> None:
    """An unknown kind, a wrong type, an id that is there twice, a result for another step."""
    error = _error(edit(trace, change))

    assert field == error.field
    assert error.line is not None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"total_num_scheduled_tokens": "5"}, "output.total_num_scheduled_tokens"),
        ({"num_scheduled_tokens": [["a", 1], ["a", 2]]}, "output.num_scheduled_tokens[1][0]"),
        ({"preempted_request_ids": ["b", "a"]}, "output.preempted_request_ids"),
        ({"new_block_ids_to_zero": [[1, 2]]}, "output.new_block_ids_to_zero[0]"),
        ({"more": 1}, "output"),
    ],
)
def test_a_wrong_outcome(trace: Path, change: dict[str, Any], field: str) -> None:
    """What cannot be an outcome is an error, not a difference."""
    error = _error(edit(trace, lambda v: next(x for x in v if "output" in x)["output"].update(change)))

    assert field == error.field
    assert error.line is not None


def test_a_missing_outcome(trace: Path) -> None:
    """A record of a step needs what came of it."""
    error = _error(edit(trace, lambda v: next(x for x in v if "output" in x).pop("output")))

    assert ("record.output", MISSING) == (error.field, error.value)
    assert "event, output" in error.allowed


@pytest.mark.parametrize(("content", "part"), [(b"", "a header line"), (b"\n \n", "a header line")])
def test_an_empty_file(tmp_path: Path, content: bytes, part: str) -> None:
    """There is no header."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)

    assert part == _error(path).allowed


@pytest.mark.parametrize("name", ["missing", ".", "a\0b"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """A missing file and a folder are named."""
    assert "trace" == _error(tmp_path / name).field


def test_brackets_in_texts_do_not_count_as_nesting(trace: Path) -> None:
    """An id may look like anything."""
    text = trace.read_text().replace('"r1"', json.dumps('[[[[[[[[[[[[[[[[[[[[{{\\"'))
    trace.write_text(text)
    with open_trace_reader(trace) as opened:
        verdict = check_trace(opened)

    assert verdict.divergence is None
    assert len(read_values(trace)) - 1 == verdict.num_events


def test_a_file_that_ends_in_the_middle_of_a_line(trace: Path) -> None:
    """Wherever it was cut, the error names the last line, and says that it is not whole."""
    content = trace.read_bytes()
    lines = content.splitlines(keepends=True)
    for num_missing in range(2, len(lines[-1])):
        trace.write_bytes(content[:-num_missing])
        error = _error(trace)

        assert (len(lines), "line") == (error.line, error.field)
        assert "the file ends in the middle of it" in error.allowed


def test_a_last_line_without_an_end(trace: Path) -> None:
    """It counts if it is whole."""
    content = trace.read_bytes()
    trace.write_bytes(content[:-1])
    with open_trace_reader(trace) as opened:
        verdict = check_trace(opened)

    assert (content.count(b"\n") - 1, None) == (verdict.num_events, verdict.divergence)
