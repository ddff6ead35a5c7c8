"""Checking trace files for the command line, one in this process or several in processes of their own."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_longlong
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import attrs

from kvsched_fp.cli.checks import Checker, CheckMode
from kvsched_fp.cli.failures import EXIT_DIFFERENT, exit_code_of
from kvsched_fp.cli.interrupt import interrupts_held_back
from kvsched_fp.errors import KvschedError, TraceError
from kvsched_fp.trace.header import count_other_sources
from kvsched_fp.trace.reader import open_trace_reader
from kvsched_fp.trace.replay import Replayed
from kvsched_fp.trace.verdict import Verdict, check_trace

TELL_INTERVAL = 64
"""Events from one word about the progress to the next."""
POLL_SECONDS = 0.1
"""Wall time between two looks at the other processes."""


@attrs.frozen(kw_only=True)
class CheckOptions:
    """How traces are checked."""

    mode: CheckMode
    """How much of the invariants is checked."""
    interval: int
    """Events from one full check to the next, where not every event gets one."""


@attrs.frozen(kw_only=True)
class FileReport:
    """What came of one file."""

    path: str
    """The file."""
    verdict: Verdict | None = None
    """What was found; None if the file could not be checked to its end."""
    error: str | None = None
    """Why it could not."""
    exit_code: int = 0
    """What this file alone makes of the exit code."""
    num_invariants_checked: int = 0
    """Checks made; one invariant after two events counts twice."""
    num_other_sources: int = 0
    """Source files of the recorded scheduler that are not the pinned ones."""
    wall_seconds: float = 0.0
    """How long it took."""


def check_file(path: Path, options: CheckOptions, tell: Callable[[int], object]) -> FileReport:
    """Check one file; `tell` is given the bytes read so far, now and then."""
    started = time.perf_counter()
    checker = Checker(options.mode, options.interval)
    try:
        with open_trace_reader(path) as reader:
            num_other_sources = count_other_sources(reader.header)

            def observe(replayed: Replayed) -> None:
                checker.check(replayed)
                if replayed.number % TELL_INTERVAL == 0:
                    tell(reader.tell())

            verdict = check_trace(reader, observe)
            checker.finish()
            tell(reader.tell())
    except (KvschedError, MemoryError) as error:
        text = str(error) or "out of memory"
        if not isinstance(error, TraceError):
            text = f"{path}: {text}"
        return FileReport(path=str(path), error=text, exit_code=exit_code_of(error))
    return FileReport(
        path=str(path),
        verdict=verdict,
        exit_code=0 if verdict.divergence is None else EXIT_DIFFERENT,
        num_invariants_checked=checker.num_checked,
        num_other_sources=num_other_sources,
        wall_seconds=time.perf_counter() - started,
    )


def check_files(
    paths: Sequence[Path], options: CheckOptions, num_jobs: int | None, tell: Callable[[int], object]
) -> Iterator[FileReport]:
    """Check files, in their order; `tell` is given the bytes read of all files, now and then."""
    num_jobs = min(len(paths), num_jobs or os.cpu_count() or 1)
    if num_jobs > 1:
        yield from _check_in_parallel(paths, options, num_jobs, tell)
        return
    num_before = 0
    for path in paths:
        yield check_file(path, options, lambda read, before=num_before: tell(before + read))  # type: ignore[misc]
        num_before += size_of(path)


def size_of(path: Path) -> int:
    """Give the size of a file in bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return 0


def _check_in_parallel(
    paths: Sequence[Path], options: CheckOptions, num_jobs: int, tell: Callable[[int], object]
) -> Iterator[FileReport]:
    context: SpawnContext = multiprocessing.get_context("spawn")
    read = context.Array(c_longlong, len(paths))
    with interrupts_held_back():
        pool = context.Pool(num_jobs, _start_worker, (read, options))
    with pool:
        results = [pool.apply_async(_check_in_worker, (index, path)) for index, path in enumerate(paths)]
        for result in results:
            while not result.ready():
                result.wait(POLL_SECONDS)
                tell(sum(read[:]))
            yield result.get()


class _Worker:
    """What a worker process was given at its start."""

    read: Any
    options: CheckOptions


def _start_worker(read: Any, options: CheckOptions) -> None:
    _Worker.read = read
    _Worker.options = options


def _check_in_worker(index: int, path: Path) -> FileReport:
    def tell(num_bytes: int) -> None:
        _Worker.read[index] = num_bytes

    return check_file(path, _Worker.options, tell)
