"""The example on the page of the trace format: a real trace of one request, its lines broken to be read."""

import json
from collections.abc import Iterator
from typing import Any

from kvsched_fp import (
    AddRequest,
    Event,
    Request,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
    initial_state,
    step,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.trace.codec import encode_record, what_was_told
from kvsched_fp.trace.header import encode_header

WIDTH = 110
"""The longest line on the page."""

CONFIG = SchedulerConfig(
    max_model_len=16, max_num_seqs=2, max_num_batched_tokens=16, num_blocks=5, block_size=4
)
A = RequestId("a")
EVENTS: tuple[Event, ...] = (
    AddRequest(
        Request(
            request_id=A,
            prompt_token_ids=(5, 7, 8, 9, 10),
            sampling_params=SamplingParams(max_tokens=1),
        )
    ),
    Schedule(),
    Update(StepResult(step_id=StepId(1), sampled_token_ids={A: (11,)})),
)


def example_records() -> Iterator[dict[str, Any]]:
    """Give the header and the records."""
    yield encode_header(CONFIG, {})
    state = initial_state(CONFIG)
    for event in EVENTS:
        state, outcome = step(state, event)
        yield encode_record(event, what_was_told(event, state, outcome))


def render_trace() -> str:
    """Give the example as it stands on the page: a record begins at the margin and goes on indented."""
    return "\n".join(["```", *map(_broken, example_records()), "```"]) + "\n"


def parse_trace(page: str) -> str:
    """Give the trace that a page shows, one record a line."""
    shown = page.partition("```\n{")[2].partition("\n```")[0]
    return "{" + shown.replace("\n  ", "") + "\n"


def _broken(record: dict[str, Any]) -> str:
    """Write a record on lines of at most `WIDTH` characters."""
    # In a string a line end is escaped, so those in the text are the places where it may be broken.
    first, *pieces = json.dumps(record, separators=(",\n", ": ")).split("\n")
    lines = [first]
    for piece in pieces:
        if len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"  {piece}")
    return "\n".join(lines)
