"""How much memory this process has, and what a limit leaves for it."""

import sys
from pathlib import Path

from kvsched_fp.errors import InvalidInputError

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


def share_of(max_bytes: int, num_jobs: int) -> int:
    """Give what each process of a search may have, in bytes."""
    return max_bytes // _num_processes(num_jobs)


def require_memory(
    field: str, max_bytes: int, num_jobs: int, *, unit_bytes: int = 1, unit: str = "bytes"
) -> None:
    """Refuse a limit under which a search would end where it begins. Raises `InvalidInputError`.

    The error names the limit as `field`, and counts in units of so many bytes.
    """
    now = resident_bytes() or 0
    least = now * _num_processes(num_jobs)
    if max_bytes < least:
        share = "" if num_jobs == 1 else f", and there are {_num_processes(num_jobs)} of them"
        allowed = (
            f"at least {-(-least // unit_bytes)} {unit}: "
            f"this process has {-(-now // unit_bytes)} before the search{share}"
        )
        raise InvalidInputError(field, max_bytes // unit_bytes, allowed)


def _num_processes(num_jobs: int) -> int:
    return num_jobs + (num_jobs > 1)  # several have one beside them, which knows all keys


def lacks_memory(max_bytes: int | None) -> bool:
    """Tell whether this process has more than `max_bytes`; None is no limit."""
    return max_bytes is not None and (resident_bytes() or 0) > max_bytes
