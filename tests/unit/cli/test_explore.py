"""`kvsched-fp explore`."""

import io
import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

from kvsched_fp.cli import progress
from kvsched_fp.cli.progress import ExploreProgress
from kvsched_fp.cli.world_source import encode_changes
from kvsched_fp.config import Quirk
from kvsched_fp.explore import SearchProgress, memory
from kvsched_fp.explore.presets import PRESETS
from tests.unit.cli.helpers import assert_refused, run_cli

MIB = 2**20
UNDERSIZED = ("--set", "num_blocks=3", "--set", "allow_undersized_pool=true")
"""A pool in which a request of the world `tiny` gets stuck."""


def test_a_world_without_faults() -> None:
    """The table says that it was explored in full, and what was reached."""
    result = run_cli("explore")

    assert 0 == result.exit_code
    for part in (
        "tiny: explored in full",
        "620",
        "1,803",
        "goal: preemption",
        "reached by 7 events",
        "states/s",
    ):
        assert part in result.stdout


def test_quiet_says_nothing_if_nothing_is_wrong() -> None:
    """The exit code tells."""
    result = run_cli("explore", "eagle", "--quiet")

    assert (0, "", "") == (result.exit_code, result.stdout, result.stderr)


def test_json_has_everything() -> None:
    """Counts, goals and standstills, and no counterexample."""
    values = json.loads(run_cli("explore", "async-grammar", "--json").stdout)
    del values["wall_seconds"]

    assert {
        "world": "async-grammar",
        "preset": "async-grammar",
        "changes": {},
        "limits": {"max_depth": None, "max_states": None, "max_bytes": 2048 * MIB},
        "checks": True,
        "ending": "complete",
        "num_states": 342,
        "num_expanded": 342,
        "num_moves": 1309,
        "depth": 10,
        "goals": values["goals"],
        "standstills": {"done": 8, "waiting for a grammar": 5},
        "counterexample": None,
    } == values
    assert set(PRESETS["async-grammar"].goals) == set(values["goals"])
    assert all(depth > 0 for depth in values["goals"].values())


def test_somebody_is_stuck(tmp_path: Path) -> None:
    """A story of events and states, exit code 1, and a trace that can be checked."""
    trace = tmp_path / "stuck.jsonl"
    result = run_cli("explore", "tiny", *UNDERSIZED, "--trace", trace, "--quiet")
    lines = result.stdout.splitlines()
    checked = run_cli("check", trace)

    assert 1 == result.exit_code
    assert "   1  add 1b: 4 tokens of prompt, at most 2 of output" == lines[0]
    assert ["STUCK: no step will ever serve 1b", f"written to {trace}"] == lines[-2:]
    assert (0, True) == (checked.exit_code, "identical: 5 events" in checked.stdout)


def test_an_older_trace_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """It stays, and the standard error says so, also with `--quiet` or `--json`."""
    trace = tmp_path / "stuck.jsonl"
    run_cli("explore", "tiny", *UNDERSIZED, "--trace", trace, "--quiet")
    before = trace.read_bytes()
    results = [
        run_cli("explore", "eagle", "--trace", trace, *more) for more in ((), ("--quiet",), ("--json",))
    ]

    for result in results:
        told = f"{trace}: left as it was before; this search has no counterexample\n"
        assert (0, told) == (result.exit_code, result.stderr)
    assert before == trace.read_bytes()
    assert "" == results[1].stdout


def test_no_trace_of_nothing(tmp_path: Path) -> None:
    """Without a counterexample none is written, and the report says so."""
    trace = tmp_path / "none.jsonl"
    result = run_cli("explore", "eagle", "--trace", trace)

    assert f"nothing written to {trace}: there is no counterexample" in result.stdout
    assert "" == result.stderr
    assert not trace.exists()


CHANGES: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (UNDERSIZED, {"set": {"num_blocks": 3, "allow_undersized_pool": True}}),
    (("--in-flight", "2"), {"in-flight": 2}),
    (("--with", "pauses", "--without", "aborts"), {"with": ["pauses"], "without": ["aborts"]}),
    (("--with", "aborts"), {}),
    (("--goal", "batch"), {"goal": ["batch"]}),
    (
        ("--request", "prompt=2,output=2,count=2", "--request", "prompt=1,grammar=true,priority=-1"),
        {"request": ["prompt=2,output=2,count=2", "prompt=1,priority=-1,grammar=true"]},
    ),
    (
        ("--set", "block_size=1", "--set", "num_blocks=9", "--set", "policy=priority"),
        {"set": {"block_size": 1, "num_blocks": 9, "policy": "priority"}},
    ),
    (("--set", "quirks=[]"), {"set": {"quirks": []}}),
    (("--set", "async_scheduling=true"), {"set": {"async_scheduling": True}}),
)
"""Options, and what the result says of them."""


@pytest.mark.parametrize(("args", "changes"), CHANGES)
def test_json_tells_how_the_world_was_changed(args: tuple[str, ...], changes: dict[str, Any]) -> None:
    """By option, so that they make the same world once more."""
    values = json.loads(run_cli("explore", "tiny", *args, "--depth", "2", "--json").stdout)
    groups = values["changes"].get("set", {}).pop("kv_cache_groups", None)  # they follow from block_size

    assert changes == values["changes"]
    assert ("block_size" in changes.get("set", {})) == (groups is not None)
    assert ("tiny", 2) == (values["preset"], values["limits"]["max_depth"])


def test_json_tells_what_was_set_back_to_its_default() -> None:
    """A field that the preset has and the world does not is a change like any other."""
    args = ("--set", "async_scheduling=false", "--set", "num_spec_tokens=0", "--in-flight", "1")
    values = json.loads(run_cli("explore", "async-drafts", *args, "--depth", "2", "--json").stdout)

    assert {"async_scheduling": False, "num_spec_tokens": 0} == values["changes"]["set"]


def test_quirks_that_are_all_there_are_told() -> None:
    """They are the default, and named where the preset has fewer."""
    strict = attrs.evolve(PRESETS["tiny"], config=attrs.evolve(PRESETS["tiny"].config, quirks=()))

    assert {"set": {"quirks": [quirk.value for quirk in Quirk]}} == encode_changes(strict, PRESETS["tiny"])


@pytest.mark.parametrize("args", [args for args, _ in CHANGES])
def test_what_json_tells_makes_the_world_again(args: tuple[str, ...]) -> None:
    """With the changes as options, the result is the same."""
    first = json.loads(run_cli("explore", "tiny", *args, "--depth", "4", "--json").stdout)
    changes = first["changes"]
    again = [f"--set={name}={json.dumps(value)}" for name, value in changes.pop("set", {}).items()]
    again += [
        f"--{option}={value}"
        for option, values in changes.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    second = json.loads(run_cli("explore", first["preset"], *again, "--depth", "4", "--json").stdout)
    del first["wall_seconds"], second["wall_seconds"], first["changes"], second["changes"]

    assert first == second


def test_json_tells_a_configuration_file(tmp_path: Path) -> None:
    """As single fields: the file may be another one when the result is read."""
    config = tmp_path / "config.toml"
    config.write_text("max_model_len = 6\nnum_blocks = 5\nblock_size = 2\nmax_num_batched_tokens = 200\n")
    values = json.loads(run_cli("explore", "--config", config, "--depth", "1", "--json").stdout)

    assert 200 == values["changes"]["set"]["max_num_batched_tokens"]


def test_json_tells_the_counterexample() -> None:
    """Its events as a trace has them, and the story."""
    result = run_cli("explore", "tiny", *UNDERSIZED, "--json")
    found = json.loads(result.stdout)["counterexample"]

    assert (1, "STUCK") == (result.exit_code, found["name"])
    assert 5 == len(found["events"])
    assert 11 == len(found["story"])


def test_a_goal_that_is_missed_is_a_failure() -> None:
    """It is named, with exit code 1; in a world that is cut short, nobody knows."""
    result = run_cli("explore", "eagle", "--goal", "two-in-flight", "--quiet")
    cut = run_cli("explore", "eagle", "--goal", "two-in-flight", "--quiet", "--depth", "3")

    assert (1, "never reached: two-in-flight\n") == (result.exit_code, result.stdout)
    assert 0 == cut.exit_code


def test_a_world_that_is_changed_has_no_goals() -> None:
    """What was written for the preset need not be reachable."""
    result = run_cli("explore", "tiny", "--set", "max_num_seqs=1", "--json")
    values = json.loads(result.stdout)

    assert (0, "tiny, changed", {}) == (result.exit_code, values["world"], values["goals"])


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    """A configuration from a file, requests, and what may happen besides."""
    config = tmp_path / "config.toml"
    config.write_text("max_model_len = 4\nnum_blocks = 5\nblock_size = 2\nmax_num_batched_tokens = 200\n")
    result = run_cli(
        "explore",
        "--config",
        config,
        "--request",
        "prompt=2,output=2,count=2",
        "--request",
        "prompt=2,grammar=true",
        "--with",
        "pauses",
        "--without",
        "aborts",
        "--without",
        "stops",
        "--goal",
        "grammar-error",
        "--goal",
        "paused",
        "--json",
    )
    values = json.loads(result.stdout)

    assert (0, "complete") == (result.exit_code, values["ending"])
    assert {"grammar-error", "paused"} == set(values["goals"])
    assert "waiting for a grammar and the end of a pause" in values["standstills"]


def test_steps_in_flight_can_be_set() -> None:
    """Two of them, with asynchronous scheduling."""
    result = run_cli(
        "explore",
        "eagle",
        "--in-flight",
        "2",
        "--set",
        "async_scheduling=true",
        "--goal",
        "two-in-flight",
        "--quiet",
    )

    assert (0, "") == (result.exit_code, result.stdout)


@pytest.mark.parametrize(
    ("args", "title"),
    [
        (
            ("--depth", "3"),
            "stopped at --depth 3: every history of at most 3 events was tried; states",
        ),
        (
            ("--max-states", "50"),
            "stopped at --max-states 50: every history of at most 4 events was tried; states",
        ),
    ],
)
def test_a_limit_says_what_was_explored(args: tuple[str, ...], title: str) -> None:
    """The title tells the limit, the histories that were tried, and what is left."""
    result = run_cli("explore", *args)

    assert 0 == result.exit_code
    assert title in result.stdout
    assert re.search(r"states found and not explored: [1-9]", result.stdout)


def test_the_memory_limit_says_what_was_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other limit does, on the standard error with `--quiet`."""
    monkeypatch.setattr(memory, "resident_bytes", itertools.count(MIB, MIB // 2).__next__)
    result = run_cli("explore", "--memory", "4", "--quiet")

    assert (0, "") == (result.exit_code, result.stdout)
    assert re.fullmatch(
        "tiny: stopped at --memory 4: every history of at most [1-9] events was tried; states found "
        "and not explored: .*\n",
        result.stderr,
    )


@pytest.mark.parametrize(("option", "limit"), [("--depth", "3"), ("--max-states", "50")])
def test_quiet_tells_that_a_limit_ended_the_search(option: str, limit: str) -> None:
    """One line on the standard error says what was explored; as JSON, the result has it."""
    result = run_cli("explore", option, limit, "--quiet")
    as_json = run_cli("explore", option, limit, "--quiet", "--json")

    assert (0, "") == (result.exit_code, result.stdout)
    assert re.fullmatch(rf"tiny: stopped at {option} {limit}: every history of .*\n", result.stderr)
    assert "" == as_json.stderr
    assert "complete" != json.loads(as_json.stdout)["ending"]


@pytest.mark.parametrize(("num_jobs", "least"), [(1, 151), (2, 453)])
def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch, num_jobs: int, least: int) -> None:
    """Before the search, with what the process has; several processes have one beside them."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: 151 * MIB)
    refused = run_cli("explore", "--memory", str(least - 1), "--jobs", str(num_jobs))

    assert_refused(
        refused, f"--memory: got {least - 1}; allowed: at least {least} MiB: this process has 151 before"
    )
    assert 0 == run_cli("explore", "eagle", "--memory", str(least), "--jobs", str(num_jobs)).exit_code


def test_several_processes_print_the_same() -> None:
    """But for the time that it takes."""
    outputs = []
    for num_jobs in ("1", "2"):
        values = json.loads(
            run_cli("explore", "async-reset", "--no-check", "--json", "--jobs", num_jobs).stdout
        )
        outputs.append({name: value for name, value in values.items() if name != "wall_seconds"})

    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("huge",), ["WORLD", "'huge'", "one of tiny, small"]),
        (("--set", "max_num_seqs=0"), ["max_num_seqs", "got 0", "an integer >= 1"]),
        (("--config", "missing.toml"), ["missing.toml", "No such file or directory"]),
        (("--request", "output=1"), ["--request", "'output=1'", "prompt=N"]),
        (("--request", "prompt"), ["--request", "'prompt'", "KEY=VALUE, separated by commas"]),
        (("--request", "prompt=many"), ["--request prompt", "'many'", "an integer"]),
        (("--request", "prompt=1,grammar=1"), ["--request grammar", "got 1", "true or false"]),
        (("--request", "prompt=1,color=1"), ["--request key 'color'", "one of prompt, shared, output"]),
        (("--request", "prompt=0"), ["num_prompt_tokens of request a", "got 0", "an integer >= 1"]),
        (("--request", "prompt=7"), ["num_prompt_tokens of request a", "got 7", "max_model_len = 6"]),
        (("--request", "prompt=1,lora=1"), ["lora_id of request a", "max_loras is not configured"]),
        (("--request", "prompt=4,prompt=5"), ["--request", "'prompt=4,prompt=5'", "one value for prompt"]),
        (("--with", "aborts", "--without", "aborts"), ["--with", "'aborts'", "--without aborts"]),
        (("--goal", "fame"), ["--goal", "'fame'", "one of batch, chunk"]),
        (("--with", "luck"), ["--with", "'luck'", "one of 'aborts'"]),
        (("--jobs", "0"), ["--jobs", "'0'", "an integer >= 1"]),
        (("--memory", "x"), ["--memory", "'x'", "an integer >= 1"]),
        (("--in-flight", "0"), ["--in-flight", "'0'", "an integer >= 1"]),
        (("--trace", "missing/t.jsonl"), ["missing/t.jsonl: trace", "a file that can be written"]),
        (("--trace", "."), [".: trace", "a file that can be written"]),
    ],
)
def test_bad_input_is_refused(args: tuple[str, ...], parts: list[str]) -> None:
    """By name, value and what is allowed, before anything is searched."""
    assert_refused(run_cli("explore", *args), *parts)


@pytest.mark.parametrize("num_jobs", ["1", "2"])
def test_ctrl_c_ends_a_search_with_what_was_found(monkeypatch: pytest.MonkeyPatch, num_jobs: str) -> None:
    """Exit code 130, the result so far, and nothing on the standard error."""

    def press_ctrl_c(_: ExploreProgress, found: SearchProgress) -> None:
        if found.depth == 6:
            monkeypatch.undo()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ExploreProgress, "update", press_ctrl_c)
    result = run_cli("explore", "pause", "--json", "--jobs", num_jobs)
    values = json.loads(result.stdout)

    assert (130, "", "interrupted") == (result.exit_code, result.stderr, values["ending"])
    assert 0 < values["num_expanded"] < values["num_states"]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """Depth, states and states per second."""
    stream = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(file=stream, force_terminal=terminal, width=140)
    )
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    with ExploreProgress(visible=True) as line:
        line.update(
            SearchProgress(depth=7, num_states=1234, num_expanded=1000, num_moves=5000, num_to_expand=234)
        )
    shown = stream.getvalue()

    assert terminal == all(part in shown for part in ("depth 7", "1,234 states", "234 left", "states/s"))
