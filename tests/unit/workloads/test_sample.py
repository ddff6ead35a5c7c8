"""The bundled sample and the configuration that it is played with."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from kvsched_fp.workloads.formats import WorkloadFormat, open_workload
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.sample import REPLAY_CONFIG, sample_path
from kvsched_fp.workloads.summary import Summary

MOONCAKE_TRACE = os.environ.get("KVSCHED_FP_MOONCAKE_TRACE", "")
needs_trace = pytest.mark.skipif(
    not Path(MOONCAKE_TRACE).is_file(),
    reason="KVSCHED_FP_MOONCAKE_TRACE does not name Mooncake's conversation_trace.jsonl",
)


def test_the_sample_is_a_workload() -> None:
    """A few hundred requests in Mooncake's format."""
    with (
        sample_path() as path,
        open_workload(path, None, max_model_len=REPLAY_CONFIG.max_model_len) as sample,
    ):
        assert WorkloadFormat.MOONCAKE == sample.format
        assert 281 == len(list(sample))


def test_the_notice_names_source_and_licence() -> None:
    """The sample ships with where it is from and what was changed."""
    notice = (resources.files("kvsched_fp.workloads") / "data" / "NOTICE").read_text(encoding="utf-8")

    for part in ("kvcache-ai/Mooncake", "3b5a5941", "Apache License 2.0", "FAST 2025", "Changed:"):
        assert part in notice


def test_the_default_configuration_is_short_of_memory() -> None:
    """The sample shows prefix hits, evictions, waiting and preemptions."""
    summary = Summary()
    with (
        sample_path() as path,
        open_workload(path, None, max_model_len=REPLAY_CONFIG.max_model_len) as sample,
    ):
        for played in play(REPLAY_CONFIG, sample):
            summary.record(played)
    figures = summary.figures()

    assert (281, 102_628) == (figures.num_finished, figures.num_output_tokens)
    assert figures.num_preemptions > 0
    assert (figures.prefix_cache_hit_rate or 0.0) > 0.05
    assert (figures.num_evicted_blocks or 0) > 1000
    assert figures.peak_waiting > 10


@needs_trace
def test_the_script_cuts_the_sample_that_ships() -> None:
    """The sample can be made again, byte for byte."""
    with sample_path() as path:
        script = path.with_name("make_sample.py")
        made = subprocess.run(
            [sys.executable, str(script), MOONCAKE_TRACE], capture_output=True, check=True
        ).stdout

        assert path.read_bytes() == made


@needs_trace
def test_the_whole_trace_reads() -> None:
    """All 12,031 requests pass every check of the reader."""
    with open_workload(Path(MOONCAKE_TRACE), None, max_model_len=REPLAY_CONFIG.max_model_len) as workload:
        requests = list(workload)
    last = json.loads(Path(MOONCAKE_TRACE).read_text(encoding="utf-8").splitlines()[-1])

    assert 12_031 == len(requests)
    assert last["timestamp"] / 1000 == requests[-1].arrival_time
    assert 126_195 == max(request.num_prompt_tokens for request in requests)
