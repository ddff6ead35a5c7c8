"""A clock that a driver sets, in place of the one that a scheduler reads."""

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

Namespace: TypeAlias = dict[str, Any]
"""Where a module, or a function of it, finds its globals."""
Reading: TypeAlias = Callable[[], Any]
"""A function that reads a clock."""
Place: TypeAlias = tuple[Namespace, str, Reading]
"""Where a reading is found, and under which name."""


class Clock:
    """Shows what it was set to. Stands in for the module `time`, too."""

    now = 0.0
    """In seconds."""

    def __init__(self) -> None:
        self._places: list[Place] = list(_IN_MODULE)

    def monotonic(self) -> float:
        """Give the time."""
        return self.now

    time = monotonic

    def monotonic_ns(self) -> int:
        """Give the time in nanoseconds."""
        return int(self.now * 1e9)

    time_ns = monotonic_ns

    def reach(self, kind: type[Any]) -> None:
        """Be shown, too, to what has imported a reading by its name, around a class and its bases."""
        self._places = [*_IN_MODULE, *_imported_by_name(kind)]

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let this thread look at this clock, and no other thread.

        It is shown to whatever reads `time.monotonic()`, `time.time()`, or these in nanoseconds.
        """
        stand_ins = {real: _for_this_thread(getattr(self, real.__name__), real) for real in _READINGS}
        for namespace, name, real in self._places:
            namespace[name] = stand_ins[real]
        try:
            yield
        finally:
            for namespace, name, real in self._places:
                namespace[name] = real


_READINGS: tuple[Reading, ...] = (time.monotonic, time.time, time.monotonic_ns, time.time_ns)
_IN_MODULE: tuple[Place, ...] = tuple((vars(time), real.__name__, real) for real in _READINGS)


def _for_this_thread(shown: Reading, real: Reading) -> Reading:
    """Read one clock in this thread, and the real one in all others: they wait with time limits."""
    here = threading.get_ident()
    return lambda: shown() if threading.get_ident() == here else real()


def _imported_by_name(kind: type[Any]) -> list[Place]:
    """List where the modules of a class and its bases, and their functions, know a reading by a name."""
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
