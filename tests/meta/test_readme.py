"""What the README shows works."""

import re
from typing import Any

import pytest

from tests.meta.rules import ROOT


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The example can be copied: it plays its request to the end, and prints every step."""
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"## In a program\n\n```python\n(.*?)```", readme, re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {}
    exec(program[1], names)

    assert not names["state"].requests
    assert "1 {'a': 10}\n" in capsys.readouterr().out
