"""One request of a workload, with its prompt as runs of consecutive token ids.

A trace of a hundred thousand tokens per request would not fit as token ids; the runs do, and the prompt
is written out when the request is added to the scheduler.

Token ids are invented, so they are laid out to mean something:

| who                      | token ids                                                       |
|--------------------------|-----------------------------------------------------------------|
| prompts of any format    | below `OUTPUT_TOKEN_BASE`; how, each format says                |
| outputs (`stub.py`)      | from `OUTPUT_TOKEN_BASE` on, one per request and position       |

All are below 2**53, so that every JSON reader gets them whole.
"""

import itertools
from typing import Any, TypeAlias

import attrs

from kvsched_fp.ids import RequestId
from kvsched_fp.request import Request, SamplingParams

OUTPUT_TOKEN_BASE = 2**52
"""Prompts use token ids below, outputs from here on."""
MAX_TOKENS = 2**26 - 1
"""The most prompt tokens, and the most output tokens, of one request."""
MAX_ARRIVAL_SECONDS = 1e9
"""The latest arrival; beyond, a double no longer tells microseconds apart."""

PromptRuns: TypeAlias = tuple[tuple[int, int], ...]
"""A prompt as runs of consecutive token ids: (first token id, number of tokens)."""


@attrs.frozen(kw_only=True)
class WorkloadRequest:
    """One request as a workload file describes it."""

    request_id: RequestId
    """Unique in the workload; names the line."""
    line: int
    """The line that it stands on, from 1."""
    arrival_time: float
    """Seconds from the start of the workload."""
    prompt_runs: PromptRuns
    """The prompt, at least one token."""
    num_output_tokens: int
    """Tokens to sample, at least 1; `max_model_len` may end the output before."""
    priority: int = 0
    """Smaller is more important; only the priority policy looks at it."""

    @property
    def num_prompt_tokens(self) -> int:
        """The length of the prompt, in tokens."""
        return sum(count for _, count in self.prompt_runs)

    def prompt_token_ids(self) -> tuple[int, ...]:
        """Write the prompt out."""
        runs = (range(first, first + count) for first, count in self.prompt_runs)
        return tuple(itertools.chain.from_iterable(runs))


def request_id_of_line(line: int) -> RequestId:
    """Name the request on a line of a workload file."""
    return RequestId(f"r{line}")


def merge_runs(runs: list[tuple[int, int]]) -> PromptRuns:
    """Join runs where the next begins at the end of the one before."""
    merged: list[tuple[int, int]] = []
    for first, count in runs:
        if merged and first == sum(merged[-1]):
            merged[-1] = (merged[-1][0], merged[-1][1] + count)
        else:
            merged.append((first, count))
    return tuple(merged)


def make_request(workload_request: WorkloadRequest) -> Request:
    """Make the scheduler's request: the output ends by its length and by nothing else."""
    prompt_token_ids: Any = workload_request.prompt_token_ids()  # mypy has no type for a tuple converter
    return Request(
        request_id=workload_request.request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=SamplingParams(max_tokens=workload_request.num_output_tokens),
        arrival_time=workload_request.arrival_time,
        priority=workload_request.priority,
    )
