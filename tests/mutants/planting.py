"""Planting a fault: a fresh import of the package, with one piece of its source replaced.

Nothing is written. The replaced text is compiled in memory when its module is imported again; the modules
that were there before stay what they are, for whoever holds them.
"""

import gc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from tests.mutants.mutant import Mutant

PLAYER = "tests.mutants.play"
"""What plays histories; it is imported again with the package that it plays."""
_FRESH = ("kvsched_fp", "tests.conformance", "tests.unit", PLAYER)


class PlantingError(Exception):
    """The text of a mutant does not stand in its module exactly once."""


class _Planter(MetaPathFinder):
    """Finds the module of a mutant, and loads it with the fault."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise PlantingError(f"{self._mutant.name}: there is no module {fullname}")
        spec.loader = _FaultyLoader(fullname, spec.origin, self._mutant)
        return spec


class _FaultyLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(mutated_source(self._mutant, self.get_source(fullname)), self.path, "exec")


def mutated_source(mutant: Mutant, source: str | None) -> str:
    """Give the source of the module with the fault. Raises `PlantingError`."""
    count = (source or "").count(mutant.old)
    if source is None or count != 1 or mutant.old == mutant.new:
        raise PlantingError(f"{mutant.name}: its text stands {count} times in {mutant.module}")
    return source.replace(mutant.old, mutant.new)


def read_source(mutant: Mutant) -> str:
    """Read the module of a mutant, as it is."""
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    return spec.loader.get_source(mutant.module) or ""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Any]:
    """Import the package afresh with a fault (None for none); give the player that plays it.

    Raises `PlantingError` if the text does not stand in the module exactly once.
    """
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(_FRESH)}
    finder = None if mutant is None else _Planter(mutant)
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(PLAYER)
    finally:
        if finder is not None:
            sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(_FRESH)]:
            del sys.modules[name]
        sys.modules.update(before)
        gc.collect()
