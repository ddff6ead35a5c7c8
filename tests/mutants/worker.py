"""Plants all mutants, one after the other, and hunts each down: `python -m tests.mutants.worker`.

It prints one line of JSON for each. `test_mutants.py` runs it in a process of its own, in which the hash
seed is fixed (the order of a set is part of a history).
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.mutants.hunting import Hunt, hunts, stream
from tests.mutants.pins import read_pins
from tests.mutants.planted import MUTANTS
from tests.mutants.planting import stale_lines

FALLBACK_EVENTS = 8_000
"""Events that are played where the pinned seeds do not kill."""


def hunt_all() -> Iterator[dict[str, Any]]:
    """Run the worker; give what it found, mutant by mutant."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", __name__], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the worker failed:\n{done.stderr}")
    yield from map(json.loads, done.stdout.splitlines())


def _hunt(hunt: Hunt, pins: list[int]) -> dict[str, Any]:
    kills = hunt.search(chain(pins, stream(1)), FALLBACK_EVENTS)
    killed = {kill.killer: kill.num_events for kill in kills}
    missing = [name for name in hunt.mutant.killers if name not in killed]
    return {"name": hunt.mutant.name, "killed": killed, "missing": missing}


if __name__ == "__main__":
    if stale := stale_lines(MUTANTS):
        sys.exit("\n".join(stale))
    known = read_pins()
    for planted_one in hunts(MUTANTS):
        print(json.dumps(_hunt(planted_one, known.get(planted_one.mutant.name, []))), flush=True)
