"""The bundled sample of real requests, and the configuration that it is played with by default.

Source, licence and what was cut: `data/NOTICE`.
"""

import contextlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from kvsched_fp.config import SchedulerConfig

SAMPLE_NAME = "conversation_sample.jsonl"
"""281 requests of Mooncake's conversation trace."""

REPLAY_CONFIG = SchedulerConfig(
    max_model_len=131_072,
    max_num_seqs=128,
    max_num_batched_tokens=8_192,
    num_blocks=1_200,
    block_size=512,
    enable_kv_cache_events=True,
)
"""A scheduler short of memory, for Mooncake's traces.

Their longest request has 126,527 tokens, so `max_model_len` is the next power of two. They name content by
blocks of 512 tokens, so smaller blocks find no more of it again. 1,200 blocks hold the requests of about a
minute: prefixes are found again, and in a burst requests wait, blocks are evicted and requests preempted.
"""


@contextlib.contextmanager
def sample_path() -> Iterator[Path]:
    """Give the sample as a file, for the length of a `with` block."""
    with resources.as_file(resources.files("kvsched_fp.workloads") / "data" / SAMPLE_NAME) as path:
        yield path
