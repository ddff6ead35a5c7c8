"""The command: what it plays, and what it does with a history that differs."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvsched_fp.trace import check_trace, open_trace_reader

from . import run

pytestmark = pytest.mark.usefixtures("_reference")


def test_a_failing_history_is_saved_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shrunk, saved, and `check` finds the file different, at the event that `run --replay` finds."""
    from .faults import FAULTS

    with FAULTS["the victim is the most important one"].planted():
        status = run.main(["--histories", "30", "--folder", str(tmp_path / "new")])
        (path,) = (tmp_path / "new").iterdir()
        replay_status = run.main(["--replay", str(path)])
    printed = capsys.readouterr().out
    with open_trace_reader(path) as reader:
        divergence = check_trace(reader).divergence

    assert (1, 1) == (status, replay_status)
    assert divergence is not None
    assert divergence.event_number <= 12
    assert f"see it: kvsched-fp check {path}" in printed
    assert str(divergence) in printed
    assert f"different: event {divergence.event_number}: " in printed
    assert run.main(["--replay", str(path)]) == 0


def test_what_no_trace_shows_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A crash of the reference is told by `run --replay` alone."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from .faults.planting import Fault

    with Fault("a pause crashes", Scheduler, "set_pause_state", None).planted():
        status = run.main(["--histories", "1", "--folder", str(tmp_path)])
        (path,) = tmp_path.iterdir()
        replay_status = run.main(["--replay", str(path)])
    printed = capsys.readouterr().out

    assert (1, 1) == (status, replay_status)
    assert "which no trace shows" in printed
    assert f"--replay {path}" in printed
    assert "shrunk to 1 events" in printed


def test_it_goes_on_to_the_number_of_events_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """With the seed that it drew, which is printed."""
    status = run.main(["--profile", "deep", "--events", "300", "--jobs", "1"])
    printed = capsys.readouterr().out.splitlines()

    assert 0 == status
    assert printed[0].startswith("seed ")
    assert "profile deep, 1 processes" in printed[0]
    assert int(printed[-1].split()[3].replace(",", "")) >= 300


def test_several_processes_share_the_seeds() -> None:
    """Together they play what one alone plays."""
    command = [sys.executable, "-m", "tests.conformance.run", "--histories", "7", "--jobs"]
    alone, together = (
        subprocess.run([*command, jobs], capture_output=True, text=True, check=True) for jobs in "12"
    )

    assert alone.stdout.splitlines()[1:] == together.stdout.splitlines()[1:]


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With an error that names it."""
    path = tmp_path / "t.jsonl"
    path.write_text("{}\n")

    assert run.main(["--replay", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
