"""How much memory this process has."""

import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Give the memory that this process has now, in bytes.

    Where the system does not tell, it is the most that the process ever had; None where it tells neither.
    """
    try:
        import resource  # noqa: PLC0415  only Unix has it
    except ImportError:
        return None
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def lacks_memory(max_bytes: int | None) -> bool:
    """Tell whether this process has more than `max_bytes`; None is no limit."""
    return max_bytes is not None and (resident_bytes() or 0) > max_bytes
