"""The hash seed of the process is not an input."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def _rendered(hash_seed: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "tests.purity.rendering"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    ).stdout


def test_outputs_and_states_do_not_depend_on_the_hash_seed() -> None:
    """[M-STATE-03] The same events give the same bytes under three hash seeds."""
    expected = _rendered("0")

    assert len(expected) > 100_000
    assert expected == _rendered("1")
    assert expected == _rendered("12345")
