"""Changing one place of a function of the reference, by its syntax tree.

For faults inside a long function, where nothing can be wrapped from outside. The place is found by its
shape, not by its text.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

Change = Callable[[ast.AST], ast.AST | None]
"""Gives the node to put in place of one that matched; None removes it."""


class MutationError(Exception):
    """The function has no such place, or not so many."""


def mutate(
    function: FunctionType,
    matches: Callable[[ast.AST], bool],
    change: Change,
    *,
    place: int = 1,
    of_places: int = 1,
) -> Callable[..., object]:
    """Compile `function` again with the one node that `matches` changed, or the `place`-th of several."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    editor = _Editor(matches, change, place)
    editor.visit(tree)
    if editor.num_found != of_places:
        raise MutationError(f"{editor.num_found} places in {function.__qualname__}, not {of_places}")
    ast.fix_missing_locations(tree)
    module = sys.modules[function.__module__]
    made: dict[str, Any] = {}
    exec(compile(tree, f"<a fault in {function.__qualname__}>", "exec"), vars(module), made)
    mutant: Callable[..., object] = made[function.__name__]
    return mutant


class _Editor(ast.NodeTransformer):
    def __init__(self, matches: Callable[[ast.AST], bool], change: Change, place: int) -> None:
        self._matches = matches
        self._change = change
        self._place = place
        self.num_found = 0

    def visit(self, node: ast.AST) -> Any:
        if self._matches(node):
            self.num_found += 1
            if self.num_found == self._place:
                return self._change(node)
        return super().visit(node)
