"""A live engine makes the same tokens with each scheduler, and its shadow sees no difference.

It schedules asynchronously, as is vLLM's default; with drafts it does not, since vLLM has no drafts by
n-grams for the CPU's model runner then. One run of 200 requests takes some minutes;
`KVSCHED_FP_LIVE_REQUESTS` sets another number.
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


MODES = {"asynchronous": (), "drafts": ("--synchronous", "--drafts", "3")}
"""How the engine runs, and the options that say so."""


def run(scheduler: str, mode: str, *arguments: str) -> dict[str, Any]:
    """Run an engine in a process of its own; give what it prints."""
    num_requests = NUM_REQUESTS if mode == "asynchronous" else max(NUM_REQUESTS // 3, 16)
    command = [sys.executable, "-m", "tests.live.engine", scheduler, "--requests", str(num_requests)]
    environment = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [*command, *MODES[mode], *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Give how the engine runs."""
    return str(request.param)


@pytest.fixture(scope="module")
def real(mode: str) -> dict[str, Any]:
    """Give the run with the real scheduler."""
    return run("real", mode)


def test_what_runs(mode: str, real: dict[str, Any]) -> None:
    """The run with the real scheduler preempts, aborts some requests, and does what its mode says."""
    assert real["num_preemptions"] > 0
    assert 0 < real["num_finished"] < real["num_requests"]
    assert (mode == "asynchronous") == ("AsyncScheduler" in real["scheduler"])
    assert (mode == "drafts") == (real["num_accepted_drafts"] > 0)


def test_oracle(mode: str, real: dict[str, Any]) -> None:
    """The oracle in the place of the real scheduler makes the same tokens in as many steps."""
    oracle = run("oracle", mode)

    assert "OracleScheduler" in oracle["scheduler"]
    assert _decisions(real) == _decisions(oracle)


def test_shadow(mode: str, real: dict[str, Any], tmp_path: Path) -> None:
    """The shadow sees no difference, makes the same tokens, and its recorded trace passes the check."""
    trace = tmp_path / "live.jsonl"
    shadow = run("shadow", mode, "--trace", str(trace))
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert shadow["difference"] is None
    assert _decisions(real) == _decisions(shadow)
    assert verdict.divergence is None
    assert verdict.num_events > real["num_steps"] + real["num_requests"]


def test_recording(mode: str, real: dict[str, Any], tmp_path: Path) -> None:
    """With the recorder the engine makes the same tokens, and the trace passes the check."""
    trace = tmp_path / "live.jsonl"
    recording = run("recording", mode, "--trace", str(trace))
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert "RecordingScheduler" in recording["scheduler"]
    assert _decisions(real) == _decisions(recording)
    assert verdict.divergence is None
    assert verdict.num_events > real["num_steps"] + real["num_requests"]


def _decisions(result: dict[str, Any]) -> list[Any]:
    """Give what must be the same whoever schedules."""
    names = ("num_steps", "num_preemptions", "num_accepted_drafts", "tokens")
    return [result[name] for name in names]
