"""What is left of a difference: an error that tells its story, and a trace."""

import re
from pathlib import Path

from kvsched_fp.testing.parting import Parting, SchedulersDiffer
from kvsched_fp.testing.story import tell_story


def report(parting: Parting, trace_dir: Path | None, name: str) -> SchedulersDiffer:
    """Write the trace of a parting, unless there is no `trace_dir`, and make the error.

    Raises `TraceError` if the trace cannot be written.
    """
    path = None
    if trace_dir is not None:
        path = trace_dir / f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}.jsonl"
        parting.write_trace(path)
    return SchedulersDiffer(parting, tell_story(parting, path))
