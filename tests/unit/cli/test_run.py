"""`kvsched-fp run`: what it prints and writes."""

import json
import os
from pathlib import Path

import pytest

from kvsched_fp import Emitted, InvariantViolation, OracleBug, SchedulerOutput, initial_state, step
from kvsched_fp.cli import checks
from kvsched_fp.invariants import Step
from kvsched_fp.trace.codec import decode_config, decode_event, encode_emitted, encode_output
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

    for part in (
        "num_blocks=1200",
        "max_num_seqs=128",
        "hash_ids",
        "arrival,prompt_tokens,output_tokens",
        "num_lookahead_tokens=N",
    ):
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


def test_without_features_the_figures_are_what_they_always_were(tmp_path: Path) -> None:
    """Byte for byte, but for the path and the wall time; recorded before there were any features."""
    result = run_cli("run", small_workload(tmp_path), *TINY, "--check", "off", "--json")
    lines = [line for line in result.stdout.splitlines() if '"workload"' not in line and "wall" not in line]

    assert PLAIN_FIGURES.splitlines() == [line.strip() for line in lines]


PLAIN_FIGURES = """\
{
"interrupted": false,
"num_requests": 12,
"num_finished": 12,
"num_events": 98,
"num_steps": 42,
"num_scheduled_tokens": 265,
"num_prompt_tokens": 139,
"num_output_tokens": 117,
"mean_tokens_per_step": 6.309523809523809,
"mean_running": 2.7857142857142856,
"peak_running": 4,
"peak_waiting": 5,
"num_preemptions": 4,
"prefix_cache_hit_rate": 0.0,
"num_evicted_blocks": 46,
"peak_used_blocks": 16,
"peak_block_usage": 1.0,
"time_to_first_token": {
"mean": 0.24226666666666677,
"p50": 0.255859375,
"p99": 0.6100399999999999,
"max": 0.6100399999999999
},
"time_between_tokens": {
"mean": 0.05405333333333334,
"p50": 0.05029296875,
"p99": 0.1513671875,
"max": 0.2008399999999999
},
"simulated_seconds": 2.1106,
"num_invariants_checked": 0,
}
"""


FEATURES = [
    ("--async",),
    ("--pp", "3"),
    ("--async", "--pp", "3"),
    ("--spec", "3"),
    ("--async", "--spec", "3"),
    ("--pp", "3", "--spec", "3"),
    ("--async", "--pp", "3", "--spec", "3"),
    ("--async", "--spec", "2", "--set", "use_v2_model_runner=false"),
]
"""Options that can be combined."""


@pytest.mark.parametrize("features", FEATURES, ids=" ".join)
def test_the_table_has_the_rows_of_the_features_that_are_on(
    tmp_path: Path, features: tuple[str, ...]
) -> None:
    """And no others."""
    result = run_cli("run", small_workload(tmp_path), *TINY, *features)
    plain = run_cli("run", small_workload(tmp_path), *TINY)
    expected = set()
    if "--async" in features or "--pp" in features:
        expected.add("steps in flight")
    if "--spec" in features:
        expected |= {"drafts", "draft acceptance rate", "mean accepted length"}

    assert 0 == result.exit_code, result.output
    assert "12 of 12 finished" in result.stdout
    assert expected == _rows(result.stdout) - _rows(plain.stdout)
    assert set() == _rows(plain.stdout) - _rows(result.stdout)


def _rows(table: str) -> set[str]:
    """Name the rows of a table."""
    return {line.split("\u2502")[1].strip() for line in table.splitlines() if line.startswith("\u2502")}


def test_the_figures_of_the_features(tmp_path: Path) -> None:
    """Drafts that are always right are all accepted, two steps are in flight."""
    workload = write_lines(tmp_path / "f", plain_line(arrival=0, prompt_tokens=9, output_tokens=41))
    options = ("--async", "--spec", "3", "--acceptance-rate", "1")
    values = json.loads(run_cli("run", workload, *options, "--json").stdout)

    # One token with the prompt, then 10 times 4; the step behind the last one verifies drafts for nobody.
    assert (12, 41) == (values["num_steps"], values["num_output_tokens"])
    assert {
        "num_draft_tokens": 30,
        "num_accepted_tokens": 30,
        "acceptance_rate": 1.0,
        "mean_acceptance_length": 4.0,
    } == values["drafts"]
    assert 2 == values["steps_in_flight"]["max"]


def test_the_options_of_features_stand_for_settings(tmp_path: Path) -> None:
    """A setting of one's own goes before, and before what a file says."""
    config = tmp_path / "c.toml"
    config.write_text("max_model_len = 64\nnum_blocks = 17\nblock_size = 4\nnum_spec_tokens = 1\n")
    run = ("run", small_workload(tmp_path), "--config", config, "--quiet", "--limit", "2")
    run_cli(
        *run,
        *("--async", "--pp", "2", "--spec", "3", "--set", "num_lookahead_tokens=5"),
        *("--trace", tmp_path / "trace"),
    )
    with (tmp_path / "trace").open(encoding="ascii") as stream:
        made = decode_config(json.loads(stream.readline())["config"])

    assert (True, 2, 3) == (made.async_scheduling, made.pipeline_parallel_size, made.num_spec_tokens)
    assert (5, 1, 1) == (
        made.num_lookahead_tokens,
        made.num_prefill_lookahead_tokens,
        made.num_hash_lookahead_tokens,
    )


def test_the_engine_costs_what_it_is_said_to(tmp_path: Path) -> None:
    """One prompt and two further steps: planned one by one, or while the one before runs."""
    path = write_lines(tmp_path / "f", plain_line(arrival=0, prompt_tokens=8, output_tokens=3))
    cost = ("--step-cost-base", "1", "--step-cost-per-token", "0", "--step-cost-engine", "0.5")
    plain = run_cli("run", path, *cost, "--json")
    overlapped = run_cli("run", path, *cost, "--async", "--json")

    assert 3 * 1.5 == json.loads(plain.stdout)["simulated_seconds"]
    assert 0.5 + 3 * 1 == json.loads(overlapped.stdout)["simulated_seconds"]


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


@pytest.mark.parametrize("features", [(), *FEATURES], ids=" ".join)
def test_the_trace_replays(tmp_path: Path, features: tuple[str, ...]) -> None:
    """What is written is what happened: the events again give the same outputs."""
    trace = tmp_path / "trace.jsonl"
    run_cli("run", small_workload(tmp_path), *TINY, *features, "--trace", trace, "--quiet")
    header, *records = [json.loads(line) for line in trace.read_text(encoding="ascii").splitlines()]
    state = initial_state(decode_config(header["config"]))
    kinds = set()
    for record in records:
        state, outcome = step(state, decode_event(record["event"]))
        kinds.add(record["event"]["kind"])
        if "output" in record:
            assert record["output"] == encode_output(outcome)
        if "emitted" in record:
            assert record["emitted"] == encode_emitted(state.emitted)

    tells_drafts = "--spec" in features and "--async" not in features
    assert {"add_request", "schedule", "update"} | ({"update_drafts"} if tells_drafts else set()) == kinds
    assert isinstance(state.emitted, Emitted)
    assert () == state.in_flight


@pytest.mark.parametrize("rate", ["0", "0.7", "1"])
@pytest.mark.parametrize("features", FEATURES, ids=" ".join)
def test_check_finds_the_trace_identical(tmp_path: Path, features: tuple[str, ...], rate: str) -> None:
    """With every draft right, every draft wrong, and in between; the invariants hold in the trace, too."""
    trace = tmp_path / "trace.jsonl"
    options = (*features, "--acceptance-rate", rate) if "--spec" in features else features
    run_cli("run", small_workload(tmp_path), *TINY, *options, "--trace", trace, "--quiet")
    result = run_cli("check", trace)

    assert 0 == result.exit_code, result.output
    assert f"{trace}: identical: " in result.stdout


@pytest.mark.parametrize("features", [(), ("--async", "--spec", "3"), ("--pp", "2", "--spec", "3")])
def test_traces_do_not_depend_on_the_hash_seed(tmp_path: Path, features: tuple[str, ...]) -> None:
    """Neither the order of a hash table ever shows, nor which drafts are right."""
    workload = small_workload(tmp_path)
    traces = set()
    for seed in ("0", "1", "2"):
        trace = tmp_path / f"trace-{seed}"
        result = run_outside(
            "run", workload, *TINY, *features, "--trace", trace, "--quiet", PYTHONHASHSEED=seed
        )

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

    def fail(seen: Step) -> int:
        if isinstance(seen.outcome, SchedulerOutput):
            raise error
        return 1

    trace = tmp_path / "trace"
    monkeypatch.setattr(checks, "check_observed_cheap", fail)
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
