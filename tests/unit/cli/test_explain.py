"""`kvsched-fp explain`."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.helpers import assert_refused, run_cli
from tests.unit.trace.helpers import edit, give_one_more, line_of_step, read_values, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Give a small trace."""
    return write_trace(tmp_path / "t.jsonl")


def test_gives_a_reason_for_every_live_request(trace: Path) -> None:
    """Each with what it got and the id of the rule."""
    report = json.loads(run_cli("explain", trace, "--step", 9, "--json").stdout)
    values = read_values(trace)
    line = line_of_step(values, 9)
    batch = dict(values[line]["output"]["num_scheduled_tokens"])
    added = {value["event"]["request"]["request_id"] for value in values[1:line] if _adds(value)}
    given = {reason["request_id"]: reason["num_tokens"] for reason in report["reasons"]}

    assert (9, line + 1) == (report["step"], report["line"])
    assert batch == {name: count for name, count in given.items() if count}
    assert given.keys() <= added
    assert all(reason["rule_id"][:2] == "S-" for reason in report["reasons"])
    assert report["difference"] is None


def _adds(value: dict[str, dict[str, str]]) -> bool:
    return value["event"]["kind"] == "add_request"


def test_prints_a_table(trace: Path) -> None:
    """For people."""
    result = run_cli("explain", trace, "--step", 9)

    assert 0 == result.exit_code
    assert result.stdout.startswith("step 9 (line ")
    assert "S-" in result.stdout


def test_one_request_alone(trace: Path) -> None:
    """The others are left out."""
    report = json.loads(run_cli("explain", trace, "--step", 1, "--request", "r1", "--json").stdout)

    assert ["r1"] == [reason["request_id"] for reason in report["reasons"]]


def test_a_step_that_differs_says_so(trace: Path) -> None:
    """What is explained is what this package decides."""
    edit(trace, give_one_more)
    result = run_cli("explain", trace, "--step", 9)

    assert 0 == result.exit_code
    assert "the trace has something else: output.num_scheduled_tokens[" in result.stdout
    assert_refused(run_cli("explain", trace, "--step", 10), "--step: got 10", "where the trace differs")


def test_a_step_or_request_that_is_not_there(trace: Path) -> None:
    """The error says which there are."""
    assert_refused(
        run_cli("explain", trace, "--step", 999), "--step: got 999", "a step of the trace (1 to "
    )
    assert_refused(
        run_cli("explain", trace, "--step", 1, "--request", "zz"),
        "--request: got 'zz'",
        "live before step 1: 'r1'",
    )
