"""Seeds of histories that are known to kill each mutant quickly: `python -m tests.mutants.report --pin`.

A pin only saves time. Where one does not kill any more, the search goes on with other histories.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILE = Path(__file__).with_name("pins.json")


def read_pins() -> dict[str, list[int]]:
    """Read the seeds, by the name of the mutant."""
    if not _FILE.exists():
        return {}
    pins: dict[str, list[int]] = json.loads(_FILE.read_text())
    return pins


def write_pins(pins: Mapping[str, Sequence[int]]) -> None:
    """Write the seeds down, one mutant a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(list(seeds))}" for name, seeds in sorted(pins.items())]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
