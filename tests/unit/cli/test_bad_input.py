"""Everything that can be wrong with the input of `kvsched-fp run`: one line, exit code 2, no traceback."""

import sys
from pathlib import Path

import pytest

from tests.unit.cli.helpers import HEADER, TINY, assert_refused, run_cli, run_outside, small_workload
from tests.unit.workloads.helpers import mooncake_line, plain_line, write_lines


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("num_blcks=5", ["num_blcks", "got 5", "one of max_model_len, max_num_seqs"]),
        ("max_num_seqs=0", ["max_num_seqs", "got 0", "an integer >= 1"]),
        ("max_num_seqs=many", ["max_num_seqs", "'many'", "an integer >= 1"]),
        ("max_num_seqs=1.5", ["max_num_seqs", "1.5", "an integer >= 1"]),
        ("max_num_seqs=null", ["max_num_seqs", "None", "an integer >= 1"]),
        ("max_num_seqs=", ["max_num_seqs", "''", "an integer >= 1"]),
        ("enable_prefix_caching=yes", ["enable_prefix_caching", "'yes'", "true or false"]),
        ("watermark=1.0", ["watermark", "1.0", "0.0 <= watermark < 1.0"]),
        ("watermark=NaN", ["watermark", "nan", "0.0 <= watermark < 1.0"]),
        ("policy=lifo", ["policy", "'lifo'", "'fcfs' or 'priority'"]),
        ("policy=[1]", ["policy", "[1]", "'fcfs' or 'priority'"]),
        ("max_num_active_seqs=4000", ["max_num_active_seqs", "4000", "at most max_num_seqs = 128"]),
        ("enable_chunked_prefill=false", ["max_num_batched_tokens", "8192", "max_model_len = 131072"]),
        ("num_blocks=20", ["num_blocks", "20", "at least 257"]),
        ("block_size=16", ["num_blocks", "1200", "at least 8193"]),
        ("kv_cache_groups=5", ["kv_cache_groups", "got 5", "a list"]),
        ("kv_cache_groups=[]", ["kv_cache_groups", "()", "at least one group"]),
        ('kv_cache_groups=[{"kind": "linear"}]', ["kv_cache_groups[0]", "linear", "full_attention"]),
        (
            'kv_cache_groups=[{"kind": "full_attention", "block_size": 8}]',
            ["kv_cache_groups[0].block_size", "got 8", "block_size = 512"],
        ),
        ("block_hasher=md5", ["block_hasher", "md5", "blake2b"]),
        ("max_num_seqs", ["--set", "'max_num_seqs'", "KEY=VALUE"]),
        ("=5", ["--set", "'=5'", "KEY=VALUE"]),
    ],
)
def test_a_wrong_setting(assignment: str, parts: list[str]) -> None:
    """An unknown key, a wrong value and a contradiction name the field, the value and what is allowed."""
    assert_refused(run_cli("run", "--set", assignment), *parts)


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("c.toml", b"num_blocks = ", ["c.toml", "num_blocks = ", "TOML", "at end of document"]),
        ("c.toml", b"num_blcks = 5", ["num_blcks", "got 5", "one of max_model_len"]),
        ("c.toml", b"num_blocks = 20", ["num_blocks", "20", "at least 513"]),
        ("c.toml", b"[scheduler]\nnum_blocks = 20", ["scheduler", "one of max_model_len"]),
        ("c.toml", b"\xff", ["c.toml", "xff", "utf-8"]),
        ("c.json", b'{"num_blocks": 20', ["c.json", "line 1"]),
        ("c.json", b"[1]", ["c.json", "[1]", "an object"]),
        ("c.json", b'{"policy": "lifo"}', ["policy", "'lifo'", "'fcfs' or 'priority'"]),
        ("c.yaml", b"num_blocks: 20", ["c.yaml", "'.yaml'", "(.toml)", "(.json)"]),
        ("missing.toml", None, ["missing.toml", "No such file or directory"]),
    ],
)
def test_a_wrong_config_file(tmp_path: Path, name: str, text: bytes | None, parts: list[str]) -> None:
    """A file that is missing, malformed or wrong is named."""
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text)

    assert_refused(run_cli("run", "--config", path), str(path), *parts)


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([mooncake_line(), '{"timestamp": 100'], ["f:2", "line", '{"timestamp": 100', "one JSON object"]),
        ([mooncake_line(), mooncake_line(input_length=-1)], ["f:2", "input_length", "-1", "an integer"]),
        ([mooncake_line(hash_ids=[1])], ["f:1", "hash_ids", "1 ids", "2 ids"]),
        ([mooncake_line(), mooncake_line(timestamp=1)], ["f:2", "timestamp", "1.0", "at least 1000.0"]),
        ([mooncake_line(), "\udcff"], ["f:2", "line", "UTF-8"]),
        ([plain_line(), plain_line(output_tokens="x")], ["f:2", "output_tokens", "'x'", "an integer"]),
        ([plain_line(prompt_tokens=200_000)], ["f:1", "prompt_tokens", "200000", "max_model_len = 131072"]),
        ([HEADER, "0,5,5", "1,5"], ["f:3", "line", "1,5", "3 columns"]),
        ([HEADER, "0,5,5", "nan,5,5"], ["f:3", "arrival", "'nan'", "a number"]),
        (["hello"], ["f:1", "header", "'hello'", "arrival, prompt_tokens, output_tokens"]),
        ([], ["f: workload", "no request", "at least one request"]),
    ],
)
def test_a_wrong_workload(tmp_path: Path, lines: list[str], parts: list[str]) -> None:
    """A malformed, truncated or impossible line is named with the field, the value and what is allowed."""
    encoded = [line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line for line in lines]
    path = write_lines(tmp_path / "f", *encoded)

    assert_refused(run_cli("run", path), *parts)


def test_a_missing_workload(tmp_path: Path) -> None:
    """The path and the reason are named."""
    assert_refused(
        run_cli("run", tmp_path / "missing"),
        "missing: workload",
        "No such file or directory",
        "can be read",
    )


def test_a_workload_that_is_a_directory(tmp_path: Path) -> None:
    """The path and the reason are named."""
    assert_refused(run_cli("run", tmp_path), str(tmp_path), "workload", "Is a directory")


@pytest.mark.parametrize(
    ("name", "reason"), [("missing/trace", "No such file or directory"), (".", "Is a directory")]
)
def test_a_trace_that_cannot_be_written(tmp_path: Path, name: str, reason: str) -> None:
    """The path and the reason are named, before anything is played."""
    path = tmp_path / name

    assert_refused(
        run_cli("run", "--trace", path), str(path), "trace", reason, "a file that can be written"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_trace_that_runs_out_of_space(tmp_path: Path) -> None:
    """A full disk is reported as what it is."""
    result = run_cli("run", small_workload(tmp_path), *TINY, "--trace", "/dev/full")

    assert_refused(result, "/dev/full", "trace", "No space left on device")


def test_a_trace_over_the_workload(tmp_path: Path) -> None:
    """The input is not destroyed."""
    path = small_workload(tmp_path)
    before = path.read_bytes()

    assert_refused(run_cli("run", path, "--trace", path), str(path), "trace", "not read by the run")
    assert before == path.read_bytes()


def test_a_trace_over_the_config_file(tmp_path: Path) -> None:
    """The input is not destroyed."""
    config = tmp_path / "c.toml"
    config.write_text("num_blocks = 2000")

    assert_refused(
        run_cli("run", "--config", config, "--trace", config), str(config), "trace", "not read by the run"
    )
    assert "num_blocks = 2000" == config.read_text()


def test_a_bad_workload_does_not_empty_an_old_trace(tmp_path: Path) -> None:
    """The trace is opened when the workload is known to be one."""
    trace = tmp_path / "trace"
    trace.write_text("kept")
    run_cli("run", tmp_path / "missing", "--trace", trace)

    assert "kept" == trace.read_text()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--spec", "8192"], ["num_spec_tokens: got 8192", "less than max_num_batched_tokens = 8192"]),
        (
            ["--spec", "9" * 30],
            ["num_lookahead_tokens: got 9999", "an integer >= 0, at most 1099511627776"],
        ),
        (["--pp", "1000000000"], ["pipeline_parallel_size: got 1000000000", "at most 64 in a run"]),
        (
            ["--async", "--pp", "2", "--set", "use_v2_model_runner=false"],
            [
                "pipeline_parallel_size: got 2",
                "1 with async_scheduling, unless use_v2_model_runner is true",
            ],
        ),
        (["--spec", "2", "--set", "num_spec_tokens=0"], ["--set num_spec_tokens", "got 0", "2, as --spec"]),
        (["--set", "async_scheduling=false", "--async"], ["async_scheduling", "got False", "true, as --a"]),
        (["--pp", "2", "--set", "pipeline_parallel_size=3"], ["pipeline_parallel_size", "2, as --pp says"]),
        (["--spec", "2", "--set", "drop_eagle_block=true"], ["drop_eagle_block: got True", "false with"]),
        (["--set", "runner_type=pooling"], ["runner_type: got 'pooling'", "the stub model samples tokens"]),
    ],
)
def test_features_that_do_not_go_together(tmp_path: Path, options: list[str], parts: list[str]) -> None:
    """Too many drafts or stages, or what the reference's engine refuses; a trace is not begun."""
    trace = tmp_path / "trace"

    assert_refused(run_cli("run", *options, "--trace", trace), *parts)
    assert not trace.exists()


@pytest.mark.parametrize("cost", ["nan", "inf", "-1"])
def test_a_step_cost_that_is_no_duration(cost: str) -> None:
    """A number of seconds is finite and not negative."""
    assert_refused(
        run_cli("run", "--step-cost-base", cost),
        "step cost, base",
        "a number of seconds from 0 to 1,000,000",
    )


def test_a_workload_that_gets_stuck(tmp_path: Path) -> None:
    """A pool that was made too small on purpose ends the run with the reason."""
    path = write_lines(tmp_path / "f", HEADER, "0,40,5")
    result = run_cli("run", path, *TINY, "--set", "num_blocks=5", "--set", "allow_undersized_pool=true")

    assert_refused(result, "the run is stuck at step 1", "r2 (waiting", "more than the pool's 4")


def test_a_world_that_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of more blocks than there is memory for ends with one line too."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sys.modules["kvsched_fp.cli.run"], "play", fail)

    assert_refused(run_cli("run"), "out of memory")


def test_a_config_file_that_is_a_directory(tmp_path: Path) -> None:
    """It is called what it is, whatever its name ends with."""
    assert_refused(run_cli("run", "--config", tmp_path), str(tmp_path), "got 'Is a directory'")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["run", "--limit", "0"], ["--limit: got '0'", "an integer >= 1"]),
        (["run", "--limit", "many"], ["--limit: got 'many'", "an integer >= 1"]),
        (["run", "--limit"], ["--limit: missing", "an integer >= 1"]),
        (["run", "--check-every", "0"], ["--check-every: got '0'", "an integer >= 1"]),
        (["run", "--max-waiting", "0"], ["--max-waiting: got '0'", "an integer >= 1"]),
        (["run", "--check", "maybe"], ["--check: got 'maybe'", "one of 'every', 'sampled', 'off'"]),
        (["run", "--format", "parquet"], ["--format: got 'parquet'", "one of 'mooncake', 'jsonl', 'csv'"]),
        (["run", "--step-cost-base", "x"], ["--step-cost-base: got 'x'", "a number"]),
        (["run", "--spec", "0"], ["--spec: got '0'", "an integer >= 1"]),
        (["run", "--spec", "-1"], ["--spec: got '-1'", "an integer >= 1"]),
        (["run", "--spec"], ["--spec: missing", "an integer >= 1"]),
        (["run", "--pp", "0"], ["--pp: got '0'", "an integer >= 1"]),
        (["run", "--pp", "2.5"], ["--pp: got '2.5'", "an integer >= 1"]),
        (["run", "--async=yes"], ["--async: got 'yes'", "no value"]),
        (
            ["run", "--spec", "2", "--acceptance-rate", "1.5"],
            ["--acceptance-rate: got '1.5'", "a number from 0 to 1"],
        ),
        (
            ["run", "--spec", "2", "--acceptance-rate", "-0.5"],
            ["--acceptance-rate: got '-0.5'", "a number from 0 to 1"],
        ),
        (
            ["run", "--spec", "2", "--acceptance-rate", "often"],
            ["--acceptance-rate: got 'often'", "a number from 0 to 1"],
        ),
        (
            ["run", "--spec", "2", "--acceptance-rate", "nan"],
            ["acceptance rate: got nan", "a number from 0 to 1"],
        ),
        (["run", "--acceptance-rate", "0.5"], ["--acceptance-rate: got 0.5", "no value without --spec"]),
        (
            ["run", "--step-cost-engine", "-1"],
            ["step cost, engine: got -1.0", "a number of seconds from 0"],
        ),
        (["run", "--set"], ["--set: missing", "KEY=VALUE"]),
        (["run", "--trace"], ["--trace: missing", "the path of a file"]),
        (["run", "--quiet=5"], ["--quiet: got '5'", "no value"]),
        (["run", "--no-such-option"], ["option: got '--no-such-option'", "--config, --set, --format"]),
        (["run", "a", "b", "c"], ["arguments: got 'b c'", "[WORKLOAD] and nothing behind it"]),
        (["check", "--jobs", "0"], ["--jobs: got '0'", "an integer >= 1"]),
        (["explain"], ["TRACE: missing", "the path of a file"]),
        (["explain", "t"], ["--step: missing", "an integer >= 1"]),
        (["explain", "t", "--step", "1", "--request"], ["--request: missing", "ID"]),
        (["shrink", "t", "--tries", "1.5"], ["--tries: got '1.5'", "an integer >= 1"]),
        (["shrnk", "t"], ["command: got 'shrnk'", "one of check, explain, explore, run, shrink"]),
        (["--no-such-option"], ["option: got '--no-such-option'", "--version"]),
    ],
)
def test_a_wrong_command_line(args: list[str], parts: list[str]) -> None:
    """It is refused like any other input: by name, value and what is allowed."""
    assert_refused(run_cli(*args), *parts)


def test_a_command_line_without_a_command() -> None:
    """The help says what there is; the exit code, that nothing was done."""
    result = run_cli()

    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("Usage: kvsched-fp ")


def test_a_refusal_outside_of_this_process(tmp_path: Path) -> None:
    """The installed command gives the same line and exit code."""
    path = write_lines(tmp_path / "f", mooncake_line(), mooncake_line(output_length=0))
    result = run_outside("run", path, "--quiet")

    assert_refused(result, f"error: {path}:2: output_length: got 0; allowed: an integer from 1 to 67108863")
