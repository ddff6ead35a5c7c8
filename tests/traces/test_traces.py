"""Traces recorded from the real scheduler, replayed without it."""

import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from kvsched_fp import Event, SchedulingPolicy
from kvsched_fp.config import RunnerType
from kvsched_fp.trace import bundled_traces, check_trace, open_trace, open_trace_reader
from kvsched_fp.trace.header import count_other_sources, pinned_sources
from kvsched_fp.workloads.formats import open_workload
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.sample import REPLAY_CONFIG, sample_path

HERE = Path(__file__).parent
PINS = HERE.parent / "conformance" / "pins.json"

SWITCHES = (
    "use_v2_model_runner",
    "enable_prefix_caching",
    "enable_kv_cache_events",
    "async_scheduling",
    "log_request_events",
)

FAULTY = sorted((HERE / "faulty").glob("*.jsonl"))

with bundled_traces() as bundled:
    TRACES = [*bundled, *sorted(HERE.glob("*.jsonl"))]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_we_do_what_the_real_scheduler_did(path: Path) -> None:
    """Every recorded outcome is the one that comes here, and the sources were the pinned ones."""
    with open_trace_reader(path) as reader:
        num_other_sources = count_other_sources(reader.header)
        verdict = check_trace(reader)

    assert verdict.divergence is None, str(verdict.divergence)
    assert 0 == num_other_sources
    assert verdict.num_events > 0


def test_the_traces_show_what_they_should() -> None:
    """Both shapes of output, both policies, every kind of event, and what an engine does besides."""
    configs, kinds, preempted = [], set(), False
    for path in TRACES:
        with open_trace_reader(path) as reader:
            configs.append(reader.header.config)
        records = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        kinds |= {record["event"]["kind"] for record in records}
        preempted |= any(_preempts(record) for record in records)

    def values_of(field: str) -> set[Any]:
        return {getattr(config, field) for config in configs}

    assert preempted
    assert set(SchedulingPolicy) == values_of("policy")
    assert set(RunnerType) == values_of("runner_type")
    for switch in SWITCHES:
        assert {True, False} == values_of(switch)
    assert {1, 2, 3} == values_of("pipeline_parallel_size")
    assert {0, 1, 2} < values_of("num_spec_tokens")
    assert {None, 1} < values_of("max_loras")
    assert len(get_args(Event)) == len(kinds)


def _preempts(record: dict[str, Any]) -> bool:
    return bool(record.get("output", {}).get("preempted_request_ids"))


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_fault_in_the_real_scheduler_is_found(path: Path) -> None:
    """Each trace is of the real one with a slip planted into it, shrunk: it differs at its last event."""
    with open_trace_reader(path) as reader:
        verdict = check_trace(reader)

    assert verdict.divergence is not None
    assert len(path.read_text().splitlines()) - 1 == verdict.divergence.event_number
    assert () != verdict.divergence.rule_ids


def test_the_faulty_traces_can_be_read_by_a_person() -> None:
    """There is one for each area that faults are planted in, of a few events: see `faults.py`."""
    num_events = [len(path.read_text().splitlines()) - 1 for path in FAULTY]

    assert len({path.stem.partition("-")[0] for path in FAULTY}) == len(FAULTY) > 10
    assert max(num_events) <= 12


def test_the_bundle_is_small() -> None:
    """It is part of every installation."""
    assert sum(path.stat().st_size for path in TRACES) < 1_500_000


def test_the_pins_in_the_package_are_those_of_the_conformance_suite() -> None:
    """Else: python -m tests.traces.record bundled."""
    assert json.loads(PINS.read_text())["sha256"] == dict(pinned_sources())


def test_the_bundled_workload_gives_the_bytes_that_the_real_scheduler_gave(tmp_path: Path) -> None:
    """The digest is of the trace that `python -m tests.traces.record sample` recorded from vLLM."""
    path = tmp_path / "sample.jsonl"
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
        open_trace(path, REPLAY_CONFIG) as trace,
    ):
        for played in play(REPLAY_CONFIG, workload):
            trace.write(played.event, played.after, played.outcome)

    assert (HERE / "sample.sha256").read_text().strip() == hashlib.sha256(path.read_bytes()).hexdigest()
