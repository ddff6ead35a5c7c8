"""Planting a fault: a fresh import of the package, with one piece of its source replaced.

Nothing is written. The replaced text is compiled in memory when its module is imported again; the modules
that were there before stay what they are, for whoever holds them.
"""

import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import attrs

from tests.mutants.mutant import Mutant

_PLAY = "tests.mutants.play"
_BESIDE = "tests.mutants.beside"
_SHRINK = "kvsched_fp.trace.shrink"
_FRESH = ("kvsched_fp", "tests.conformance", "tests.unit", _PLAY, _BESIDE)
"""What is imported again: the package, and all that imports it."""


class PlantingError(Exception):
    """The text of a mutant does not stand in its module exactly once."""


@attrs.frozen
class World:
    """One import of the package, by the modules that play it."""

    play: Any
    """`tests.mutants.play` of this import."""
    beside: Any = None
    """`tests.mutants.beside` of this import, or None if it was not asked for."""
    shrink: Any = None
    """`kvsched_fp.trace.shrink` of this import, or None if it was not asked for."""


@contextmanager
def planted(mutant: Mutant | None, *, compares: bool = False) -> Iterator[World]:
    """Import the package afresh with a fault (None for none), and have it imported for a while.

    `compares` imports what compares two imports and makes histories small, too. Raises `PlantingError` if
    the text does not stand in the module exactly once.
    """
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(_FRESH)}
    finder = None if mutant is None else _Planter(mutant)
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        yield _import_world(compares=compares)
    finally:
        if finder is not None:
            sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(_FRESH)]:
            del sys.modules[name]
        sys.modules.update(before)


def _import_world(*, compares: bool) -> World:
    gc.disable()  # an import makes much that stays, which the collector would visit again and again
    try:
        play = importlib.import_module(_PLAY)
        if not compares:
            return World(play)
        return World(play, importlib.import_module(_BESIDE), importlib.import_module(_SHRINK))
    finally:
        gc.enable()


class _Planter(MetaPathFinder):
    """Finds the module of a mutant, and loads it with the fault."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the module of the mutant; all others are somebody else's."""
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise PlantingError(f"{self._mutant.name}: there is no module {fullname}")
        spec.loader = _FaultyLoader(fullname, spec.origin, self._mutant)
        return spec


class _FaultyLoader(SourceFileLoader):
    """Compiles a module with the fault in it."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Give the code; nothing is read from, or written to, a file of compiled code."""
        return compile(mutated_source(self._mutant, self.get_source(fullname)), self.path, "exec")


def mutated_source(mutant: Mutant, source: str | None) -> str:
    """Give the source of a module with the fault. Raises `PlantingError`."""
    count = (source or "").count(mutant.old)
    if source is None or count != 1 or mutant.old == mutant.new:
        raise PlantingError(f"{mutant.name}: its text stands {count} times in {mutant.module}")
    return source.replace(mutant.old, mutant.new)


def read_source(module: str) -> str | None:
    """Read the source of a module, as it is."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    return spec.loader.get_source(module)
