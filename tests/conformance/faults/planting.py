"""How a fault is made, and had in the reference for a while."""

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from unittest import mock

import attrs

from .mutate import Change, mutate


@attrs.frozen
class Fault:
    """One slip: what stands in for what."""

    name: str
    owner: object
    attribute: str
    replacement: object

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the fault in the reference for a while."""
        with mock.patch.object(self.owner, self.attribute, self.replacement):
            yield


def inside(
    name: str,
    owner: object,
    attribute: str,
    matches: Callable[[ast.AST], bool],
    change: Change,
    *,
    place: int = 1,
    of_places: int = 1,
) -> Fault:
    """Make a fault that changes one place of a function."""
    function = getattr(owner, attribute)
    assert isinstance(function, FunctionType)
    return Fault(
        name, owner, attribute, mutate(function, matches, change, place=place, of_places=of_places)
    )


def around(name: str, owner: object, attribute: str, wrap: Callable[..., Callable[..., object]]) -> Fault:
    """Make a fault that wraps a function: `wrap` is given the function, and gives another."""
    return Fault(name, owner, attribute, wrap(getattr(owner, attribute)))


def after_init(name: str, owner: type, change: Callable[..., None]) -> Fault:
    """Make a fault that changes an object right after its construction."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def construct(self: object, *arguments: object, **keywords: object) -> None:
            original(self, *arguments, **keywords)
            change(self)

        return construct

    return around(name, owner, "__init__", wrap)
