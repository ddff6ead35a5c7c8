"""`kvsched-fp shrink`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.helpers import assert_refused, run_cli
from tests.unit.trace.helpers import edit, give_one_more, read_values, write_trace


def _difference(path: Path) -> dict[str, Any]:
    report = json.loads(run_cli("check", "--json", path).stdout)
    found: dict[str, Any] = report["files"][0]["difference"]
    return found


def _change_finish_reason(values: list[dict[str, Any]]) -> None:
    for value in values:
        for _, client in value.get("emitted", {}).get("clients", ()):
            for output in client["outputs"]:
                if output["finish_reason"] == "length":
                    output["finish_reason"] = "stop"
                    return


@pytest.mark.parametrize(("change", "most"), [(give_one_more, 6), (_change_finish_reason, 9)])
def test_a_changed_outcome_shrinks_small(tmp_path: Path, change: Any, most: int) -> None:
    """The smaller trace differs in the same field, with the same two values, at its last event."""
    path = edit(write_trace(tmp_path / "t.jsonl"), change)
    target = tmp_path / "small.jsonl"
    result = run_cli("shrink", path, "--out", target)
    before, after = _difference(path), _difference(target)

    assert 1 == result.exit_code
    assert f"{target}: {len(read_values(target)) - 1} events left" in result.stdout
    assert (before["recorded"], before["ours"]) == (after["recorded"], after["ours"])
    assert before["path"].rpartition(".")[2][:9] == after["path"].rpartition(".")[2][:9]
    assert len(read_values(target)) - 1 == after["event"]
    assert after["event"] <= most < before["event"]


def test_shrinking_is_deterministic(tmp_path: Path) -> None:
    """Two runs write the same bytes."""
    path = edit(write_trace(tmp_path / "t.jsonl"), give_one_more)
    targets = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for target in targets:
        run_cli("shrink", "--quiet", path, "--out", target)

    assert targets[0].read_bytes() == targets[1].read_bytes()


def test_the_default_target_stands_beside_the_trace(tmp_path: Path) -> None:
    """With `.shrunk` before its ending."""
    path = edit(write_trace(tmp_path / "t.jsonl"), give_one_more)
    result = run_cli("shrink", "--quiet", path)

    assert (1, "") == (result.exit_code, result.stdout)
    assert (tmp_path / "t.shrunk.jsonl").exists()


def test_an_identical_trace_has_nothing_to_shrink(tmp_path: Path) -> None:
    """Nothing is written."""
    path = write_trace(tmp_path / "t.jsonl")
    result = run_cli("shrink", path)

    assert (0, f"{path}: identical: nothing to shrink\n") == (result.exit_code, result.stdout)
    assert ["t.jsonl"] == [file.name for file in tmp_path.iterdir()]


def test_the_trace_is_not_written_over(tmp_path: Path) -> None:
    """A trace is evidence."""
    path = edit(write_trace(tmp_path / "t.jsonl"), give_one_more)

    assert_refused(run_cli("shrink", path, "--out", path), "--out", "another file than TRACE")
    assert_refused(run_cli("shrink", tmp_path / "missing"), "missing: trace: got 'No such file")
