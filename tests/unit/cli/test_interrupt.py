"""Ctrl-C, at any moment."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import kvsched_fp_command
import pytest

from kvsched_fp.cli.failures import EXIT_INTERRUPTED
from kvsched_fp.cli.interrupt import catch_interrupt
from tests.unit.cli.helpers import HEADER, TINY
from tests.unit.workloads.helpers import write_lines


def _start(*args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kvsched_fp_command", "run", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_lines(path: Path, num_lines: int) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or path.read_bytes().count(b"\n") < num_lines:
        assert time.monotonic() < deadline, "the run did not get that far"
        time.sleep(0.02)


def test_ctrl_c_ends_a_run_with_the_summary_so_far(tmp_path: Path) -> None:
    """Exit code 130, figures that are marked, and a trace of whole lines."""
    workload = write_lines(tmp_path / "f", HEADER, *[f"{index},9,20" for index in range(200_000)])
    trace = tmp_path / "trace"
    process = _start(workload, *TINY, "--check", "off", "--json", "--trace", trace)
    _wait_for_lines(trace, 200)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    values = json.loads(stdout)
    lines = trace.read_bytes().splitlines(keepends=True)

    assert (130, "") == (process.returncode, stderr)
    assert values["interrupted"] is True
    assert 0 < values["num_finished"] < 200_000
    assert all(isinstance(json.loads(line), dict) and line.endswith(b"\n") for line in lines)
    assert values["num_events"] == len(lines) - 1


def test_an_interrupted_table_says_so(tmp_path: Path) -> None:
    """The title of the table has the mark."""
    workload = write_lines(tmp_path / "f", HEADER, *[f"{index},9,20" for index in range(200_000)])
    trace = tmp_path / "trace"
    process = _start(workload, *TINY, "--check", "off", "--trace", trace)
    _wait_for_lines(trace, 10)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)

    assert 130 == process.returncode
    assert "(interrupted: the summary so far)" in stdout
    assert "wall time" in stdout


def test_a_second_ctrl_c_gets_through_while_the_input_blocks(tmp_path: Path) -> None:
    """A run that waits for a pipe that nobody writes to can be ended too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    trace = tmp_path / "trace"
    process = _start(pipe, *TINY, "--json", "--trace", trace)
    with pipe.open("w") as stream:
        stream.write(f"{HEADER}\n0,9,2\n")
        stream.flush()
        _wait_for_trace(trace)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        stdout, stderr = process.communicate(timeout=30)

    assert (130, "") == (process.returncode, stderr)
    assert json.loads(stdout)["interrupted"] is True


def test_ctrl_c_before_the_run_has_begun(tmp_path: Path) -> None:
    """While the workload is being opened there is nothing to sum up."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = _start(pipe)
    writer = _open_when_read(pipe)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    os.close(writer)

    assert (130, "", "interrupted\n") == (process.returncode, stdout, stderr)


def _open_when_read(pipe: Path) -> int:
    """Open the pipe for writing as soon as the other side has it open for reading."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline, "nobody reads the pipe"
            time.sleep(0.02)


def _wait_for_trace(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.02)
    time.sleep(0.3)


def _interrupt_when_imported(module: str, times: int, *args: str | Path) -> tuple[int, str, list[str]]:
    """Run a command, and press Ctrl-C as soon as so many of its processes have imported `module`.

    Gives the exit code and what was printed, but for Python's report of the imports.
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "kvsched_fp_command", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to all processes of a terminal
    )
    assert process.stderr is not None
    printed = []
    while times:
        line = process.stderr.readline()
        assert line, f"it ended before: {printed}"
        printed.append(line)
        times -= line.rpartition("| ")[2].strip() == module
    os.killpg(process.pid, signal.SIGINT)
    try:
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    printed += stderr.splitlines(keepends=True)
    return process.returncode, stdout, [line for line in printed if not line.startswith("import time:")]


EARLY = ("signal", "attr", "immutables", "kvsched_fp.kvcache.pool", "kvsched_fp", "click", "rich.progress")
"""Modules, in the order in which they are imported when the command starts."""


@pytest.mark.parametrize("module", EARLY)
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    """Before there is a command that could catch it, the end is the same: one word, and exit code 130."""
    ended = _interrupt_when_imported(module, 1, "run", "--quiet")

    assert (130, "", ["interrupted\n"]) == ended


@pytest.mark.parametrize(
    "args", [("check", "--jobs", "1"), ("explain", "PIPE", "--step", "1"), ("shrink", "PIPE")]
)
@pytest.mark.parametrize("module", [EARLY[1], EARLY[-1]])
def test_ctrl_c_at_the_start_of_every_command(tmp_path: Path, module: str, args: tuple[str, ...]) -> None:
    """The command does not matter, nor whether its work has begun."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = _interrupt_when_imported(module, 1, *[pipe if arg == "PIPE" else arg for arg in args])

    assert (130, "", ["interrupted\n"]) == ended


@pytest.mark.parametrize("module", EARLY[1:5])
def test_ctrl_c_while_the_workers_start(module: str) -> None:
    """The workers of a check, which import everything once more, say nothing about it."""
    ended = _interrupt_when_imported(module, 2, "check", "--jobs", "2")

    assert (130, "", ["interrupted\n"]) == ended


def test_both_ways_to_end_have_one_exit_code() -> None:
    """The way in knows what the command line ends with."""
    assert EXIT_INTERRUPTED == kvsched_fp_command.EXIT_INTERRUPTED


def test_the_flag_is_set_once_and_the_handler_put_back() -> None:
    """The first signal sets the flag; afterwards the handler is the one from before."""
    before = signal.getsignal(signal.SIGINT)
    with catch_interrupt() as flag:
        assert not flag.is_set
        signal.raise_signal(signal.SIGINT)
        assert flag.is_set

    assert before is signal.getsignal(signal.SIGINT)


def test_other_threads_leave_the_signal_alone() -> None:
    """Only the main thread may handle signals; elsewhere the flag is never set."""
    flags = []

    def run() -> None:
        with catch_interrupt() as flag:
            flags.append(flag.is_set)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert [False] == flags
