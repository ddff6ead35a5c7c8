"""Checking several files at a time, in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsched_fp.cli.failures import EXIT_INTERRUPTED
from tests.unit.trace.helpers import write_trace

NUM_FILES = 3
BLANK_LINES = b"\n" * 2**18
"""More than a pipe holds: who has written it knows that the other side is reading."""
QUICK_SECONDS = 5.0
"""Wall time that the end may take; it takes a fraction of a second on an idle machine."""


@pytest.fixture
def pipes(tmp_path: Path) -> list[Path]:
    """Give traces that never end: pipes, each of which keeps one worker waiting."""
    paths = [tmp_path / f"{index}.jsonl" for index in range(NUM_FILES)]
    for path in paths:
        os.mkfifo(path)
    return paths


def start(*args: str | Path) -> "subprocess.Popen[str]":
    """Start a check as a terminal does, with a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kvsched_fp_command", "check", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def open_when_read(pipe: Path) -> int:
    """Open a pipe for writing as soon as a worker reads it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline, "no worker reads the pipe"
            time.sleep(0.02)


def is_alive(group: int) -> bool:
    """Tell whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("send", [os.killpg, os.kill])
def test_ctrl_c_ends_all_workers(
    pipes: list[Path], tmp_path: Path, send: Callable[[int, int], None]
) -> None:
    """In the middle of several files, the end comes at once, in one word, and leaves no process behind.

    A terminal sends Ctrl-C to every process of the group, a supervisor to the one that it started.
    """
    header = write_trace(tmp_path / "whole").read_bytes().splitlines(keepends=True)[0]
    process = start("--jobs", str(NUM_FILES), *pipes)
    writers = [open_when_read(pipe) for pipe in pipes]
    for writer in writers:
        os.set_blocking(writer, True)
        os.write(writer, header + BLANK_LINES)
    time.sleep(0.3)  # now the workers wait for more, and the parent for them
    started = time.monotonic()
    send(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    while is_alive(process.pid) and time.monotonic() < started + QUICK_SECONDS:
        time.sleep(0.02)

    assert (EXIT_INTERRUPTED, "", "interrupted\n") == (process.returncode, stdout, stderr)
    assert not is_alive(process.pid)
    assert time.monotonic() < started + QUICK_SECONDS
    for writer in writers:
        os.close(writer)
