"""The plain format: arrivals and lengths, as CSV with a header line or as JSON Lines.

    arrival,prompt_tokens,output_tokens        {"arrival": 0.5, "prompt_tokens": 900, "output_tokens": 40}
    0.5,900,40

`arrival` is in seconds from the start, in order; the lengths are in tokens. A fourth field, `priority`,
is optional. Other fields are refused, so that a misspelt one is noticed.

Nothing is known about the content of the prompts, so no two share a token: the token ids are counted up
from one request to the next.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping

from kvsched_fp.workloads.fields import (
    parse_object,
    require_int,
    require_keys,
    require_order,
    require_output_length,
    require_prompt_length,
    require_time,
)
from kvsched_fp.workloads.lines import Line
from kvsched_fp.workloads.request import (
    MAX_ARRIVAL_SECONDS,
    OUTPUT_TOKEN_BASE,
    WorkloadRequest,
    request_id_of_line,
)

FIELDS = ("arrival", "prompt_tokens", "output_tokens")
"""The fields that every line has."""
OPTIONAL_FIELDS = ("priority",)
"""The fields that a line may have."""
MAX_PRIORITY = 2**31 - 1
"""The largest priority, and the smallest one negated."""

_ALLOWED = f"the fields {', '.join(FIELDS)} and, if wanted, {', '.join(OPTIONAL_FIELDS)}"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def read_plain_jsonl(lines: Iterable[Line], max_model_len: int) -> Iterator[WorkloadRequest]:
    """Read JSON Lines. Raises `WorkloadError` at the first line that breaks the format."""
    yield from _read_rows(((line, parse_object(line)) for line in lines), max_model_len)


def read_plain_csv(lines: Iterable[Line], max_model_len: int) -> Iterator[WorkloadRequest]:
    """Read CSV. Raises `WorkloadError` at the first line that breaks the format."""
    yield from _read_rows(_csv_rows(lines), max_model_len)


def _read_rows(
    rows: Iterable[tuple[Line, Mapping[str, object]]], max_model_len: int
) -> Iterator[WorkloadRequest]:
    previous = 0.0
    next_token_id = 0
    for line, values in rows:
        _require_known(line, values)
        require_keys(line, values, FIELDS)
        arrival = require_time(line, "arrival", values["arrival"], MAX_ARRIVAL_SECONDS, "seconds")
        require_order(line, "arrival", arrival, previous)
        previous = arrival
        length = require_prompt_length(line, "prompt_tokens", values["prompt_tokens"], max_model_len)
        priority = require_int(line, "priority", values.get("priority", 0), -MAX_PRIORITY, MAX_PRIORITY)
        yield WorkloadRequest(
            request_id=request_id_of_line(line.number),
            line=line.number,
            arrival_time=arrival,
            prompt_runs=((next_token_id, length),),
            num_output_tokens=require_output_length(line, "output_tokens", values["output_tokens"]),
            priority=priority,
        )
        # Around again in the end: only requests that live together must not share any.
        next_token_id = (next_token_id + length) % (OUTPUT_TOKEN_BASE // 2)


def _require_known(line: Line, values: Iterable[str]) -> None:
    for name in values:
        if name not in FIELDS and name not in OPTIONAL_FIELDS:
            raise line.error("field", name, _ALLOWED)


def _csv_rows(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[str, object]]]:
    header: list[str] | None = None
    for line in lines:
        cells = _csv_cells(line)
        if header is None:
            header = _csv_header(line, cells)
        elif len(cells) != len(header):
            raise line.error(
                "line", line.text, f"{len(header)} columns, as in the header; got {len(cells)}"
            )
        else:
            yield line, {name: _csv_value(name, cell) for name, cell in zip(header, cells, strict=True)}


def _csv_cells(line: Line) -> list[str]:
    try:
        cells = next(csv.reader([line.text], strict=True))
    except csv.Error as error:
        raise line.error("line", line.text, f"comma-separated values ({error})") from None
    return [cell.strip() for cell in cells]


def _csv_header(line: Line, cells: list[str]) -> list[str]:
    known = set(cells) <= {*FIELDS, *OPTIONAL_FIELDS}
    if not known or not set(FIELDS) <= set(cells) or len(set(cells)) < len(cells):
        raise line.error("header", line.text, f"a first line that names {_ALLOWED}")
    return cells


def _csv_value(name: str, cell: str) -> object:
    """Give the number that a cell holds; the text as it is where it holds none, to be refused."""
    if name == "arrival":
        return float(cell) if _NUMBER.fullmatch(cell) else cell
    return int(cell) if _INTEGER.fullmatch(cell) else cell
