"""Traces of a real scheduler with a fault planted into it, shrunk with that scheduler as the live judge.

Importing this module imports vLLM.
"""

from pathlib import Path

from tests.conformance.faults import AREAS
from tests.conformance.planted import try_fault


def record_faults(folder: Path) -> int:
    """Write one trace for every area that faults are planted in, over what is there; give the exit status.

    It is the first of the area: `tests.conformance.planted --save FOLDER` writes all.
    """
    for path in folder.glob("*.jsonl"):
        path.unlink()
    status = 0
    for area, (fault, *_) in AREAS.items():
        report = try_fault(area, fault.name, folder)
        print(report)
        if not report.is_good or not report.shows_in_outcomes:
            status = 1
    return status
