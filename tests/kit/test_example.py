"""The example in C++ is built, agrees with the machine, and each of its planted faults is found."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvsched_fp.testing import Feature, Profile, SchedulersDiffer, check_scheduler
from kvsched_fp.testing.subprocess_adapter import SubprocessAdapter
from kvsched_fp.trace import check_trace, open_trace_reader

SOURCE = Path(__file__).parent / "examples" / "cpp" / "main.cpp"
COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (g++, c++ or clang++) is here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder for what is built."""
    return tmp_path_factory.mktemp("built")


def build(folder: Path, *flags: str) -> str:
    """Build the example; give the program."""
    program = folder / "-".join(["scheduler", *(flag.removeprefix("-D").lower() for flag in flags)])
    command = [str(COMPILER), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, "-o", str(program), str(SOURCE)], check=True, timeout=300)
    return str(program)


def test_it_agrees(folder: Path) -> None:
    """The program does what the machine does, in all that it says that it supports."""
    adapter = SubprocessAdapter([build(folder)])

    assert {Feature.PAUSE, Feature.REUSED_IDS, Feature.SEVERAL_CLIENTS} == adapter.features
    check_scheduler(adapter, profile=Profile(num_runs=60, num_rules=20, is_repeatable=True))


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ("-DFAULT_FIRST_IS_PREEMPTED", "output.scheduled_cached_requests"),
        ("-DFAULT_FREED_IN_TABLE_ORDER", "output.scheduled_"),
    ],
)
def test_a_fault_is_found(flag: str, path: str, folder: Path, tmp_path: Path) -> None:
    """A planted fault is found and made small, and the trace shows it."""
    program = build(folder, flag)
    with pytest.raises(SchedulersDiffer) as caught:
        check_scheduler(SubprocessAdapter([program]), trace_dir=tmp_path)
    (trace,) = tmp_path.glob("*.jsonl")
    with open_trace_reader(trace) as reader:
        divergence = check_trace(reader).divergence

    assert divergence is not None
    assert divergence.difference.path.startswith(path)
    assert len(caught.value.parting.played) <= 8
