"""Planting a fault: a fresh import of the package, with one piece of its source replaced.

Nothing is written. The replaced text is compiled in memory when its module is imported again; the modules
that were there before stay what they are, for whoever holds them.
"""

import gc
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import attrs

from tests.mutants.mutant import Mutant

_PLAY = "tests.mutants.play"
_BESIDE = "tests.mutants.beside"
_SHRINK = "kvsched_fp.trace.shrink"
_FRESH = ("kvsched_fp", "tests.conformance", "tests.unit", _PLAY, _BESIDE)
"""What is imported again: the package, and all that imports it."""
_ROOT = Path(__file__).parents[2]


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
    why_not = _why_not(mutant, source)
    if source is None or why_not:
        raise PlantingError(f"{mutant.name}: {why_not} in {mutant.module}")
    return source.replace(mutant.old, mutant.new)


def _why_not(mutant: Mutant, source: str | None) -> str:
    """Say why a mutant cannot be planted into the source of its module; nothing if it can."""
    if source is None:
        return "there is no source"
    count = source.count(mutant.old)
    if count != 1:
        return f"its text stands {count} times"
    return "nothing is changed" if mutant.old == mutant.new else ""


def read_source(module: str) -> str | None:
    """Read the source of a module, as it is; None if there is no such module."""
    path = _path_of(module)
    return path.read_text() if path.exists() else None


def stale_lines(mutants: Iterable[Mutant]) -> list[str]:
    """Give a line for each mutant that cannot be planted: its name, the file, why not, and its text."""
    return [
        f"{mutant.name} | {_path_of(mutant.module).relative_to(_ROOT)} | {why_not} | {mutant.old!r}"
        for mutant in mutants
        if (why_not := _why_not(mutant, read_source(mutant.module)))
    ]


def _path_of(module: str) -> Path:
    """Give the file that a module of this repository has, or would have."""
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
