"""What `specs/testing.md` shows works."""

import inspect
import re
from typing import Any

import pytest

from kvsched_fp.testing import CallAdapter, Profile, check_scheduler
from tests.meta.rules import SPECS

PAGE = (SPECS / "testing.md").read_text()
SHORT = Profile(num_runs=36, num_rules=15, is_repeatable=True)
EVENTS = sorted(
    name for name in vars(CallAdapter) if not name.startswith("_") and name not in {"happen", "features"}
)
"""The methods of an adapter with one per event."""


def test_the_adapter_can_be_copied() -> None:
    """The example is a scheduler that does what the machine does, and it is asked to pause."""
    program = re.search(r"```python\n(import kvsched_fp as fp\n.*?)```", PAGE, re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {}
    exec(program[1], names)
    asked = []

    class Listening(names["MyAdapter"]):  # type: ignore[misc]  # made by exec
        """The example, which listens."""

        def set_pause_state(self, pause_state: object) -> None:
            """Remember that it was asked."""
            asked.append(pause_state)
            super().set_pause_state(pause_state)

    check_scheduler(Listening(), profile=SHORT, trace_dir=None)

    assert asked


@pytest.mark.parametrize("name", EVENTS)
def test_every_method_is_shown(name: str) -> None:
    """The page has each method of `CallAdapter` with the parameters that it has."""
    parameters = list(inspect.signature(getattr(CallAdapter, name)).parameters)
    example, listed = (f"def {name}({', '.join(parameters)}):", f"- `{name}({', '.join(parameters[1:])})`")

    assert example in PAGE or listed in PAGE
