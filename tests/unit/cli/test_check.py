"""`kvsched-fp check`."""

import json
from pathlib import Path

import pytest

from kvsched_fp import InvariantViolation
from kvsched_fp.cli import checks
from tests.unit.cli.helpers import assert_refused, run_cli, run_outside
from tests.unit.trace.helpers import edit, give_one_more, read_values, small_config, write_trace


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Give a trace that is right."""
    return write_trace(tmp_path / "good.jsonl")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Give a trace with one changed decision, in step 9."""
    return edit(write_trace(tmp_path / "bad.jsonl"), give_one_more)


def test_says_that_a_trace_is_identical(good: Path) -> None:
    """With the numbers of events and decisions."""
    result = run_cli("check", good)
    num_events = len(read_values(good)) - 1

    assert 0 == result.exit_code
    assert result.stdout.startswith(f"{good}: identical: {num_events} events, ")
    assert " decisions, " in result.stdout
    assert "" == result.stderr


def test_reports_the_first_difference(bad: Path) -> None:
    """With the step, the path, both values, the rule and the last events; the exit code is 1."""
    result = run_cli("check", bad)

    assert 1 == result.exit_code
    for part in (
        f"{bad}: different: event ",
        ", schedule, step 9: output.num_scheduled_tokens[",
        "\n  recorded: ",
        "\n  ours:     ",
        "\ndecided by S-",
        "\nlast events:\n",
        ": schedule, step 9: ",
    ):
        assert part in result.stdout


def test_json_for_machines(good: Path, bad: Path, tmp_path: Path) -> None:
    """One object over all files, in their order; a difference weighs more than an error."""
    result = run_cli("check", "--json", "--jobs", 1, good, bad, tmp_path / "missing")
    report = json.loads(result.stdout)

    assert 1 == result.exit_code
    assert "different" == report["result"]
    assert ["identical", "different", "error"] == [file["result"] for file in report["files"]]
    assert [None, 9, None] == [(file["difference"] or {}).get("step") for file in report["files"]]
    assert "No such file" in report["files"][2]["error"]


def test_several_files_in_parallel(good: Path, bad: Path) -> None:
    """Reports come in the order of the files, whoever is ready first."""
    done = run_outside("check", "--jobs", "2", good, bad, good)

    assert 1 == done.returncode
    assert [str(good), str(bad), str(good)] == [
        line.split(": ")[0]
        for line in done.stdout.splitlines()
        if "identical: " in line or "different: " in line
    ]


def test_without_an_argument_it_checks_the_bundled_traces() -> None:
    """They were recorded from the real scheduler, and every invariant is checked after every event."""
    result = run_cli("check", "--json", "--jobs", 1)
    report = json.loads(result.stdout)

    assert (0, "identical") == (result.exit_code, report["result"])
    assert len(report["files"]) >= 8
    assert all(file["num_invariants_checked"] > 20 * file["num_events"] for file in report["files"])


def test_a_file_that_is_no_trace_is_refused(good: Path, tmp_path: Path) -> None:
    """One line with file, line and field; the exit code is 2, and no traceback."""
    path = tmp_path / "broken.jsonl"
    path.write_bytes(good.read_bytes().replace(b'"throttle_prefills":false', b'"throttle_prefills":0', 1))
    result = run_cli("check", path)

    assert_refused(result, "broken.jsonl:", "event.throttle_prefills: got 0; allowed: true or false")


def test_an_unreadable_file_among_good_ones(good: Path, tmp_path: Path) -> None:
    """The good ones are checked all the same."""
    result = run_cli("check", "--jobs", 1, tmp_path / "missing", good)

    assert 2 == result.exit_code
    assert "identical" in result.stdout
    assert "missing: trace: got 'No such file or directory'" in result.stderr


def test_a_broken_invariant_is_a_fault(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the file and the line."""

    def violate(*_: object) -> int:
        raise InvariantViolation("INV-X", "broken")

    monkeypatch.setattr(checks, "check_observed_cheap", violate)
    result = run_cli("check", good)

    assert 1 == result.exit_code
    assert f"error: {good}: INV-X: broken (event 1, AddRequest, step 0, line 2)\n" == result.stderr


def test_other_sources_are_mentioned(good: Path) -> None:
    """A trace of a changed vLLM is checked, and said to be one."""
    edit(good, lambda values: values[0]["source_sha256"].update({"v1/request.py": "00"}))
    result = run_cli("check", good)

    assert 0 == result.exit_code
    assert "recorded from other sources than the pinned ones: 1 files differ" in result.stderr


def test_quiet_says_nothing_about_identical_traces(good: Path) -> None:
    """The exit code says it."""
    result = run_cli("check", "--quiet", good)

    assert (0, "") == (result.exit_code, result.output)


@pytest.mark.parametrize("mode", ["every", "sampled", "off"])
def test_invariants_are_checked_as_asked(good: Path, mode: str) -> None:
    """More of them with `every`, none with `off`."""
    report = json.loads(run_cli("check", "--json", "--check", mode, good).stdout)
    num_checked = report["files"][0]["num_invariants_checked"]

    assert (mode != "off") == (num_checked > 0)


def test_the_trace_of_a_run_is_identical(tmp_path: Path) -> None:
    """What `run --trace` writes, `check` accepts."""
    path = tmp_path / "t.jsonl"
    assert 0 == run_cli("run", "--quiet", "--check", "off", "--limit", 3, "--trace", path).exit_code
    result = run_cli("check", path)

    assert 0 == result.exit_code
    assert small_config().policy.value in path.read_text()
