"""Mooncake's trace format: JSON Lines with the content of prompts named by hash ids.

    {"timestamp": 3000, "input_length": 1053, "output_length": 26, "hash_ids": [0, 14, 15]}

`timestamp` is in milliseconds from the start, the lengths in tokens. There is one hash id per 512 prompt
tokens, the last block possibly partial; equal ids mean equal tokens. So the tokens of a block with id h
are made to be h * 512, h * 512 + 1, ...: equal ids give equal tokens, and different ids share none.
Fields beyond these four are ignored: later traces of the family carry more.

Source: kvcache-ai/Mooncake, `FAST25-release/traces/`.
"""

from collections.abc import Iterable, Iterator

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
    PromptRuns,
    WorkloadRequest,
    merge_runs,
    request_id_of_line,
)

FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
"""The fields that every line has."""
TOKENS_PER_HASH_ID = 512
"""Prompt tokens that one hash id names."""
MAX_HASH_ID = OUTPUT_TOKEN_BASE // TOKENS_PER_HASH_ID - 1
"""The largest hash id whose tokens stay below the output's."""
MILLISECONDS = 1000.0
"""In a second."""


def read_mooncake(lines: Iterable[Line], max_model_len: int) -> Iterator[WorkloadRequest]:
    """Read the lines one by one. Raises `WorkloadError` at the first that breaks the format."""
    previous = 0.0
    for line in lines:
        values = parse_object(line)
        require_keys(line, values, FIELDS)
        timestamp = require_time(
            line, "timestamp", values["timestamp"], MAX_ARRIVAL_SECONDS * MILLISECONDS, "milliseconds"
        )
        require_order(line, "timestamp", timestamp, previous)
        previous = timestamp
        input_length = require_prompt_length(line, "input_length", values["input_length"], max_model_len)
        yield WorkloadRequest(
            request_id=request_id_of_line(line.number),
            line=line.number,
            arrival_time=timestamp / MILLISECONDS,
            prompt_runs=_prompt_runs(line, values["hash_ids"], input_length),
            num_output_tokens=require_output_length(line, "output_length", values["output_length"]),
        )


def _prompt_runs(line: Line, hash_ids: object, input_length: int) -> PromptRuns:
    """Lay the prompt out as the tokens that its hash ids stand for."""
    if not isinstance(hash_ids, list):
        raise line.error("hash_ids", hash_ids, "a list of integers")
    num_blocks = -(-input_length // TOKENS_PER_HASH_ID)
    if len(hash_ids) != num_blocks:
        raise line.error(
            "hash_ids",
            f"{len(hash_ids)} ids",
            f"{num_blocks} ids: one per {TOKENS_PER_HASH_ID} tokens of input_length = {input_length}",
        )
    runs = []
    for index, value in enumerate(hash_ids):
        hash_id = require_int(line, f"hash_ids[{index}]", value, 0, MAX_HASH_ID)
        num_tokens = min(TOKENS_PER_HASH_ID, input_length - index * TOKENS_PER_HASH_ID)
        runs.append((hash_id * TOKENS_PER_HASH_ID, num_tokens))
    return merge_runs(runs)
