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
    """The function has no such place, or more than one."""


def mutate(
    function: FunctionType, matches: Callable[[ast.AST], bool], change: Change
) -> Callable[..., object]:
    """Compile `function` again with the one node that `matches` changed."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    editor = _Editor(matches, change)
    editor.visit(tree)
    if editor.num_changed != 1:
        raise MutationError(f"{editor.num_changed} places in {function.__qualname__}, not one")
    ast.fix_missing_locations(tree)
    module = sys.modules[function.__module__]
    made: dict[str, Any] = {}
    exec(compile(tree, f"<a fault in {function.__qualname__}>", "exec"), vars(module), made)
    mutant: Callable[..., object] = made[function.__name__]
    return mutant


class _Editor(ast.NodeTransformer):
    def __init__(self, matches: Callable[[ast.AST], bool], change: Change) -> None:
        self._matches = matches
        self._change = change
        self.num_changed = 0

    def visit(self, node: ast.AST) -> Any:
        if not self._matches(node):
            return super().visit(node)
        self.num_changed += 1
        return self._change(node)


def is_augmented(operator: type[ast.operator], name: str) -> Callable[[ast.AST], bool]:
    """Match `name += ...`, or another operator."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, operator)
            and isinstance(node.target, ast.Name)
            and node.target.id == name
        )

    return matches


def is_call_of(name: str) -> Callable[[ast.AST], bool]:
    """Match `name(..., key=...)`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == name
            and any(keyword.arg == "key" for keyword in node.keywords)
        )

    return matches


def is_if_about(attribute: str) -> Callable[[ast.AST], bool]:
    """Match an `if` statement whose condition reads `....attribute`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.If) and _reads(node.test, attribute)

    return matches


def is_choice_of(attribute: str) -> Callable[[ast.AST], bool]:
    """Match `....attribute if condition else otherwise`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.IfExp) and _reads(node.body, attribute)

    return matches


def is_assignment_to(attribute: str) -> Callable[[ast.AST], bool]:
    """Match `....attribute = ...`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == attribute for target in node.targets
        )

    return matches


def is_call_on(attribute: str, method: str) -> Callable[[ast.AST], bool]:
    """Match the statement `....attribute.method(...)`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == method
            and isinstance(node.value.func.value, ast.Attribute)
            and node.value.func.value.attr == attribute
        )

    return matches


def is_slice_of(name: str, start: str) -> Callable[[ast.AST], bool]:
    """Match `name[start:]`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == name
            and isinstance(node.slice, ast.Slice)
            and isinstance(node.slice.lower, ast.Name)
            and node.slice.lower.id == start
            and node.slice.upper is None
        )

    return matches


def remove(_: ast.AST) -> ast.AST:
    """Put `pass` in place of a statement."""
    return ast.Pass()


def _reads(tree: ast.AST, attribute: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == attribute for node in ast.walk(tree))
