"""A clock that a driver sets, in place of the one that a scheduler reads."""

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

Namespace: TypeAlias = dict[str, Any]
"""Where a module, or a function of it, finds its globals."""


class Clock:
    """Shows what it was set to. Stands in for the module `time`, too."""

    now = 0.0
    """In seconds."""

    def monotonic(self) -> float:
        """Give the time."""
        return self.now

    time = monotonic

    def monotonic_ns(self) -> int:
        """Give the time in nanoseconds."""
        return int(self.now * 1e9)

    time_ns = monotonic_ns

    @contextmanager
    def shown(self, kind: type[Any] = object) -> Iterator[None]:
        """Let this thread look at this clock, and no other thread.

        It is shown to whatever reads `time.monotonic()`, `time.time()`, or these in nanoseconds; and where
        the class `kind` and its bases are defined, to what has imported one of these functions by its name.
        """
        stand_ins = {real: _for_this_thread(getattr(self, real.__name__), real) for real in _READINGS}
        places = [(vars(time), real.__name__, real) for real in _READINGS] + _imported_by_name(kind)
        for namespace, name, real in places:
            namespace[name] = stand_ins[real]
        try:
            yield
        finally:
            for namespace, name, real in places:
                namespace[name] = real


_READINGS: tuple[Callable[[], Any], ...] = (time.monotonic, time.time, time.monotonic_ns, time.time_ns)


def _for_this_thread(shown: Callable[[], Any], real: Callable[[], Any]) -> Callable[[], Any]:
    """Read one clock in this thread, and the real one in all others: they wait with time limits."""
    here = threading.get_ident()
    return lambda: shown() if threading.get_ident() == here else real()


@functools.lru_cache(maxsize=16)  # it is asked at every event
def _imported_by_name(kind: Hashable) -> list[tuple[Namespace, str, Callable[[], Any]]]:
    """List where the modules of a class and its bases, and their functions, know a reading by a name."""
    assert isinstance(kind, type)
    return [
        (namespace, name, value)
        for namespace in _namespaces(kind)
        for name, value in namespace.items()
        if any(value is real for real in _READINGS)
    ]


def _namespaces(kind: type[Any]) -> list[Namespace]:
    """List the globals of a class and its bases; a function may have been made elsewhere."""
    found: dict[int, Namespace] = {}
    for base in kind.__mro__[:-1]:
        functions = [value for value in vars(base).values() if inspect.isfunction(value)]
        unwrapped = [inspect.unwrap(function) for function in functions]
        spaces = [function.__globals__ for function in (*functions, *unwrapped)]
        if base.__module__ in sys.modules:
            spaces.append(vars(sys.modules[base.__module__]))
        found |= {id(space): space for space in spaces}
    return list(found.values())
