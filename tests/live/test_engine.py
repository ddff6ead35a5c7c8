"""A live engine makes the same tokens with each scheduler, and its shadow sees no difference.

One run of 200 requests takes some minutes; `KVSCHED_FP_LIVE_REQUESTS` sets another number.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp.trace import check_trace, open_trace_reader

NUM_REQUESTS = int(os.environ.get("KVSCHED_FP_LIVE_REQUESTS", "200"))


def has_cpu_engine() -> bool:
    """Tell whether a vLLM with compiled kernels for the CPU is installed, without importing it."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent
    # The wheels for GPUs bring an allocator of GPU memory.
    return any(folder.glob("_C*.so")) and not any(folder.glob("cumem_allocator*.so"))


pytestmark = pytest.mark.skipif(
    not has_cpu_engine(), reason="no vLLM with compiled CPU kernels: see tests/live/engine.py"
)


def run(scheduler: str, *arguments: str) -> dict[str, Any]:
    """Run an engine in a process of its own; give what it prints."""
    command = [sys.executable, "-m", "tests.live.engine", scheduler, "--requests", str(NUM_REQUESTS)]
    environment = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """Give the run with the real scheduler."""
    return run("real")


def test_pool_is_small(real: dict[str, Any]) -> None:
    """The run with the real scheduler preempts, and aborts some requests."""
    assert real["num_preemptions"] > 0
    assert 0 < real["num_finished"] < real["num_requests"]


def test_oracle(real: dict[str, Any]) -> None:
    """The oracle in the place of the real scheduler makes the same tokens in as many steps."""
    oracle = run("oracle")

    assert "OracleScheduler" in oracle["scheduler"]
    assert (real["num_steps"], real["tokens"]) == (oracle["num_steps"], oracle["tokens"])


def test_shadow(real: dict[str, Any], tmp_path: Path) -> None:
    """The shadow sees no difference, makes the same tokens, and its recorded trace passes the check."""
    trace = tmp_path / "live.jsonl"
    shadow = run("shadow", "--trace", str(trace))
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert shadow["difference"] is None
    assert real["tokens"] == shadow["tokens"]
    assert verdict.divergence is None
    assert verdict.num_events > 2 * real["num_steps"]


def test_recording(real: dict[str, Any], tmp_path: Path) -> None:
    """With the recorder the engine makes the same tokens, and the trace passes the check."""
    trace = tmp_path / "live.jsonl"
    recording = run("recording", "--trace", str(trace))
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert "RecordingScheduler" in recording["scheduler"]
    assert (real["num_steps"], real["tokens"]) == (recording["num_steps"], recording["tokens"])
    assert verdict.divergence is None
    # Every step is planned and answered, every request added, and some are aborted.
    assert verdict.num_events > 2 * real["num_steps"] + real["num_requests"]
