"""Imports go down the layers, and the core reaches nothing outside."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.rules import ROOT


def test_import_contracts_hold() -> None:
    """The contracts in pyproject.toml are kept (import-linter)."""
    pytest.importorskip("importlinter", reason="import-linter comes with the [dev] extra; CI runs it")
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
