"""Running the command, inside this process or outside, and what a test expects of a refusal."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from kvsched_fp.cli import main
from tests.unit.workloads.helpers import write_lines

HEADER = "arrival,prompt_tokens,output_tokens"
TINY = ("--set", "max_model_len=64", "--set", "num_blocks=17", "--set", "block_size=4")
"""16 usable blocks of 4 tokens, for requests of up to 64."""


def run_cli(*args: str | Path) -> Result:
    """Run `kvsched-fp` with `args` in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="kvsched-fp")


def run_outside(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `kvsched-fp` with `args` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kvsched_fp_command", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **env},
    )


def small_workload(directory: Path, num_requests: int = 12) -> Path:
    """Write a CSV workload that makes `TINY` preempt."""
    rows = [f"{0.1 * index:.1f},{9 + index % 7},{8 + index % 5}" for index in range(num_requests)]
    return write_lines(directory / "small.csv", HEADER, *rows)


def assert_refused(result: Result | subprocess.CompletedProcess[str], *parts: str) -> None:
    """Expect exit code 2, and one line on the standard error that has all `parts`."""
    code = result.exit_code if isinstance(result, Result) else result.returncode

    assert (2, "") == (code, result.stdout)
    assert result.stderr.startswith("error: ")
    assert 1 == len(result.stderr.splitlines())
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
