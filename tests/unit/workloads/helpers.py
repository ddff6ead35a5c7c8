"""Small workloads for the tests: files with given lines, and requests without a file."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp import Update
from kvsched_fp.errors import WorkloadError
from kvsched_fp.workloads.formats import WorkloadFormat, open_workload
from kvsched_fp.workloads.play import Played
from kvsched_fp.workloads.request import WorkloadRequest, request_id_of_line

MAX_MODEL_LEN = 4096


def write_lines(path: Path, *lines: str | bytes | dict[str, Any]) -> Path:
    """Write lines to `path`: text, bytes, or objects as JSON."""
    with path.open("wb") as stream:
        for line in lines:
            text = json.dumps(line) if isinstance(line, dict) else line
            stream.write((text.encode() if isinstance(text, str) else text) + b"\n")
    return path


def read_all(
    path: Path, workload_format: WorkloadFormat | None = None, max_model_len: int = MAX_MODEL_LEN
) -> list[WorkloadRequest]:
    """Read a whole workload file."""
    with open_workload(path, workload_format, max_model_len=max_model_len) as workload:
        return list(workload)


def mooncake_line(**changes: Any) -> dict[str, Any]:
    """Make a good line of Mooncake's format, with changes; a change to `...` drops the field."""
    line = {"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]} | changes
    return {name: value for name, value in line.items() if value is not ...}


def plain_line(**changes: Any) -> dict[str, Any]:
    """Make a good line of the plain JSON Lines format, with changes; a change to `...` drops the field."""
    line = {"arrival": 1.5, "prompt_tokens": 600, "output_tokens": 5} | changes
    return {name: value for name, value in line.items() if value is not ...}


def make_workload(*requests: tuple[float, int, int]) -> list[WorkloadRequest]:
    """Make requests of (arrival, prompt tokens, output tokens), numbered from 1, that share no token."""
    return [
        WorkloadRequest(
            request_id=request_id_of_line(line),
            line=line,
            arrival_time=arrival,
            prompt_runs=((line * 1_000_000, num_prompt_tokens),),
            num_output_tokens=num_output_tokens,
        )
        for line, (arrival, num_prompt_tokens, num_output_tokens) in enumerate(requests, 1)
    ]


def outputs_of(events: Iterable[Played]) -> dict[str, list[int]]:
    """Gather the tokens that the clients got, by request."""
    outputs: dict[str, list[int]] = {}
    for played in events:
        if isinstance(played.event, Update):
            for client in played.after.emitted.clients.values():
                for told in client.outputs:
                    outputs.setdefault(told.request_id, []).extend(told.new_token_ids)
    return outputs


@contextmanager
def refused_line(line: int | None, field: str, allowed: str, value: object = ...) -> Iterator[None]:
    """Expect a `WorkloadError` at `line` naming `field`, (a part of) `allowed` and, if given, `value`."""
    with pytest.raises(WorkloadError) as caught:
        yield

    assert (line, field) == (caught.value.line, caught.value.field)
    assert allowed in caught.value.allowed
    assert value is ... or value == caught.value.value
