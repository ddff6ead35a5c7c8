"""`kvsched-fp run`: what it prints and writes."""

import json
import os
from pathlib import Path

import pytest

from kvsched_fp import Emitted, InvariantViolation, OracleBug, SchedulerOutput, initial_state, step
from kvsched_fp.cli import checks
from kvsched_fp.trace.codec import decode_config, decode_emitted, decode_event, decode_output
from tests.unit.cli.helpers import TINY, run_cli, run_outside, small_workload
from tests.unit.workloads.helpers import plain_line, write_lines
from tests.unit.workloads.test_sample import MOONCAKE_TRACE, needs_trace


def test_prints_the_version() -> None:
    """The version is the package's."""
    result = run_cli("--version")

    assert (0, "kvsched-fp, version 0.1.0\n") == (result.exit_code, result.stdout)


@pytest.mark.parametrize("command", ["run", "check", "explain", "shrink"])
def test_help_states_the_exit_codes(command: str) -> None:
    """Of every command, so that a script can tell its ends apart."""
    text = run_cli(command, "--help").stdout

    assert "Exit codes: 0 " in text
    assert all(f" {code} " in text.partition("Exit codes:")[2] for code in (0, 2, 130))


def test_help_states_the_default_configuration_and_the_formats() -> None:
    """What a run without arguments does can be read before it is run."""
    text = run_cli("run", "--help").stdout

    for part in ("num_blocks=1200", "max_num_seqs=128", "hash_ids", "arrival,prompt_tokens,output_tokens"):
        assert part in text


def test_the_bundled_sample_is_played_without_an_argument() -> None:
    """The first requests of the sample, with everything checked after every event."""
    result = run_cli("run", "--limit", "8")

    assert 0 == result.exit_code, result.output
    assert "bundled sample conversation_sample.jsonl" in result.stdout
    assert "8 of 8 finished" in result.stdout


def test_the_table_has_all_the_figures(tmp_path: Path) -> None:
    """The rows that the summary promises."""
    result = run_cli("run", small_workload(tmp_path), *TINY)

    assert 0 == result.exit_code, result.output
    for row in (
        "requests",
        "steps",
        "tokens",
        "tokens per step",
        "running",
        "preemptions",
        "prefix-cache hit rate",
        "blocks evicted",
        "peak block usage",
        "time to first token",
        "time between tokens",
        "simulated time",
        "invariants checked",
        "wall time",
    ):
        assert row in result.stdout
    assert "small.csv" in result.stdout
    assert "\x1b" not in result.output


def test_json_has_the_figures_for_programs(tmp_path: Path) -> None:
    """The same figures under the names of the fields."""
    result = run_cli("run", small_workload(tmp_path), *TINY, "--json")
    values = json.loads(result.stdout)

    assert (12, 12, False) == (values["num_requests"], values["num_finished"], values["interrupted"])
    assert values["num_preemptions"] > 0
    assert values["peak_block_usage"] == 1.0
    assert values["num_invariants_checked"] > values["num_events"]
    assert {"mean", "p50", "p99", "max"} == set(values["time_to_first_token"])


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    """Only the exit code and the trace are left."""
    result = run_cli("run", small_workload(tmp_path), *TINY, "--quiet")

    assert (0, "") == (result.exit_code, result.output)


def test_limit_plays_the_first_requests(tmp_path: Path) -> None:
    """A line behind the limit is never looked at."""
    path = write_lines(tmp_path / "f", plain_line(), plain_line(), "{")
    result = run_cli("run", path, "--limit", "2", "--json")

    assert 2 == json.loads(result.stdout)["num_finished"]


def test_the_step_cost_sets_the_simulated_time(tmp_path: Path) -> None:
    """One prompt of 600 tokens and one further step."""
    path = write_lines(tmp_path / "f", plain_line(arrival=0, output_tokens=2))
    result = run_cli("run", path, "--step-cost-base", "1", "--step-cost-per-token", "0.5", "--json")

    assert 2 * 1 + 601 * 0.5 == json.loads(result.stdout)["simulated_seconds"]


def test_a_forced_format_is_used(tmp_path: Path) -> None:
    """`--format` overrules the first line."""
    path = write_lines(tmp_path / "f", plain_line())

    assert 0 == run_cli("run", path, "--format", "jsonl", "--quiet").exit_code
    assert "f:1: timestamp: missing; " in run_cli("run", path, "--format", "mooncake").stderr


def test_the_trace_replays(tmp_path: Path) -> None:
    """What is written is what happened: the events again give the same outputs."""
    trace = tmp_path / "trace.jsonl"
    run_cli("run", small_workload(tmp_path), *TINY, "--trace", trace, "--quiet")
    header, *records = [json.loads(line) for line in trace.read_text(encoding="ascii").splitlines()]
    state = initial_state(decode_config(header["config"]))
    kinds = set()
    for record in records:
        state, outcome = step(state, decode_event(record["event"]))
        kinds.add(record["event"]["kind"])
        if "output" in record:
            assert outcome == decode_output(record["output"])
        if "emitted" in record:
            assert state.emitted == decode_emitted(record["emitted"])

    assert {"add_request", "schedule", "update"} == kinds
    assert isinstance(state.emitted, Emitted)


def test_traces_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    """The order of a hash table never shows."""
    workload = small_workload(tmp_path)
    traces = set()
    for seed in ("0", "1", "2"):
        trace = tmp_path / f"trace-{seed}"
        result = run_outside("run", workload, *TINY, "--trace", trace, "--quiet", PYTHONHASHSEED=seed)

        assert (0, "") == (result.returncode, result.stderr)
        traces.add(trace.read_bytes())

    assert 1 == len(traces)


def test_the_progress_bar_needs_a_terminal(tmp_path: Path) -> None:
    """Nothing but errors is written to a standard error that is a file."""
    assert run_cli("run", small_workload(tmp_path), *TINY).stderr == ""


@pytest.mark.parametrize(
    ("error", "code"), [(InvariantViolation("INV-1", "bad"), 1), (OracleBug("odd"), 1)]
)
def test_a_fault_of_ours_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    """The message says which invariant, at which event; the trace has the event."""

    def fail(_before: object, _event: object, _after: object, outcome: object) -> int:
        if isinstance(outcome, SchedulerOutput):
            raise error
        return 1

    trace = tmp_path / "trace"
    monkeypatch.setattr(checks, "check_cheap", fail)
    result = run_cli("run", small_workload(tmp_path), *TINY, "--trace", trace)

    assert (code, "") == (result.exit_code, result.stdout)
    assert str(error) in result.stderr
    assert result.stderr.startswith("error: ")
    assert 1 == len(result.stderr.splitlines())
    assert '"kind":"schedule"' in trace.read_text().splitlines()[-1]


@needs_trace
def test_the_whole_file_starts(tmp_path: Path) -> None:
    """The first requests of Mooncake's whole trace, checked as by default."""
    trace = tmp_path / "trace"
    result = run_cli("run", MOONCAKE_TRACE, "--limit", "30", "--json", "--trace", trace)
    values = json.loads(result.stdout)

    assert (0, 30) == (result.exit_code, values["num_finished"])
    assert values["num_invariants_checked"] > values["num_events"]
    assert os.path.getsize(trace) > 0
