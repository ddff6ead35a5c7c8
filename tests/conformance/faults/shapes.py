"""The shapes by which a place in a function is found, and what can be put there."""

import ast
from collections.abc import Callable

Shape = Callable[[ast.AST], bool]
"""Tells whether a node is of the shape."""


# Statements.


def is_augmented(operator: type[ast.operator], name: str) -> Shape:
    """Match `name += ...`, or another operator."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, operator)
            and isinstance(node.target, ast.Name)
            and node.target.id == name
        )

    return matches


def is_assignment_to(name: str) -> Shape:
    """Match `name = ...` and `....name = ...`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.Assign) and any(_is_called(target, name) for target in node.targets)

    return matches


def is_deletion_in(name: str) -> Shape:
    """Match `del name[...]`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.Delete) and any(
            isinstance(target, ast.Subscript) and _is_called(target.value, name) for target in node.targets
        )

    return matches


def is_if_about(name: str) -> Shape:
    """Match an `if` statement whose condition reads `name` or `....name`."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.If) and _reads(node.test, name)

    return matches


def is_if_zero(name: str) -> Shape:
    """Match `if name == 0:`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Compare)
            and _is_called(node.test.left, name)
            and [type(operator) for operator in node.test.ops] == [ast.Eq]
            and isinstance(node.test.comparators[0], ast.Constant)
            and node.test.comparators[0].value == 0
        )

    return matches


def is_statement_calling(attribute: str, method: str) -> Shape:
    """Match the statement `....attribute.method(...)`."""
    is_call = is_call_on(attribute, method)

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.Expr) and is_call(node.value)

    return matches


# Expressions.


def is_call_of(name: str) -> Shape:
    """Match `name(..., key=...)`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == name
            and any(keyword.arg == "key" for keyword in node.keywords)
        )

    return matches


def is_call_on(attribute: str, method: str) -> Shape:
    """Match `....attribute.method(...)`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and _is_called(node.func.value, attribute)
        )

    return matches


def is_keyword(name: str) -> Shape:
    """Match `name=...` in a call."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.keyword) and node.arg == name

    return matches


def is_comparison_with(name: str) -> Shape:
    """Match a comparison that reads `name` or `....name` on either side."""

    def matches(node: ast.AST) -> bool:
        return isinstance(node, ast.Compare) and _reads(node, name)

    return matches


def is_slice_of(name: str, start: str) -> Shape:
    """Match `name[start:]`."""

    def matches(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Subscript)
            and _is_called(node.value, name)
            and isinstance(node.slice, ast.Slice)
            and isinstance(node.slice.lower, ast.Name)
            and node.slice.lower.id == start
            and node.slice.upper is None
        )

    return matches


def _is_called(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (
        isinstance(node, ast.Attribute) and node.attr == name
    )


def _reads(tree: ast.AST, name: str) -> bool:
    return any(_is_called(node, name) for node in ast.walk(tree))


# What to put there.


def remove(_: ast.AST) -> ast.AST:
    """Put `pass` in place of a statement."""
    return ast.Pass()


def leave_the_loop(node: ast.AST) -> ast.AST:
    """Leave the loop under the condition of an `if` statement."""
    assert isinstance(node, ast.If)
    node.body = [ast.Break()]
    return node


def always(_: ast.AST) -> ast.AST:
    """Put `True` in place of a condition."""
    return ast.Constant(True)


def always_do(node: ast.AST) -> ast.AST:
    """Do what an `if` statement does, whatever its condition says."""
    assert isinstance(node, ast.If)
    node.test = ast.Constant(True)
    return node


def first_condition_only(node: ast.AST) -> ast.AST:
    """Leave of the conditions of an `if` statement the first."""
    return _keep_condition(node, 0)


def last_condition_only(node: ast.AST) -> ast.AST:
    """Leave of the conditions of an `if` statement the last."""
    return _keep_condition(node, -1)


def _keep_condition(node: ast.AST, index: int) -> ast.AST:
    assert isinstance(node, ast.If)
    assert isinstance(node.test, ast.BoolOp)
    node.test = node.test.values[index]
    return node


def left_side_only(node: ast.AST) -> ast.AST:
    """Leave of a value that is a sum or a difference the left side."""
    assert isinstance(node, ast.Assign | ast.keyword)
    assert isinstance(node.value, ast.BinOp)
    node.value = node.value.left
    return node


def compare_with(value: int) -> Callable[[ast.AST], ast.AST]:
    """Compare with another number."""

    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.comparators = [ast.Constant(value)]
        return node

    return change


def call_instead(name: str) -> Callable[[ast.AST], ast.AST]:
    """Call another function with the same arguments."""

    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        node.func = ast.Name(name, ast.Load())
        return node

    return change


def with_argument(value: int) -> Callable[[ast.AST], ast.AST]:
    """Call with one argument, where there was none."""

    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        assert not node.args
        node.args = [ast.Constant(value)]
        return node

    return change


def from_the_start(node: ast.AST) -> ast.AST:
    """Take the whole of what is sliced."""
    assert isinstance(node, ast.Subscript)
    return node.value
