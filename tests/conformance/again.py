"""Playing a saved trace through both sides again, with everything compared.

Importing this module imports vLLM.
"""

from pathlib import Path

import attrs

from kvsched_fp.trace import open_trace_reader
from kvsched_fp.trace.block_names import OpaqueBlockHasher
from tests.traces.recorder import RecordedScheduler

from .compare import first_difference
from .duel import play_event
from .oracle import OracleScheduler
from .vllm_hasher import VllmBlockHasher


def play_trace(path: Path) -> tuple[bool, str]:
    """Play the events of a trace; tell whether both sides did the same, and what there is to say.

    Raises `TraceError` for a file that cannot be read.
    """
    with open_trace_reader(path) as reader:
        config = reader.header.config
        if isinstance(config.block_hasher, OpaqueBlockHasher):
            config = attrs.evolve(config, block_hasher=VllmBlockHasher())
        reference, oracle = RecordedScheduler(config), OracleScheduler(config)
        number = 0
        for number, record in enumerate(reader.records(), start=1):
            left, right = play_event(reference, record.event), play_event(oracle, record.event)
            difference = first_difference(left, right)
            if difference is not None:
                return False, f"event {number}: {record.event}\n{difference}"
    return True, f"{number:,} events"
