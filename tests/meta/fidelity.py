"""Read which functions of the reference `specs/fidelity.md` lists, and which there are."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.conformance.pins import PINS
from tests.meta.rules import SPECS

PAGE = SPECS / "fidelity.md"

_HEADING = re.compile(r"^### `([\w/.]+\.py)`$")
_NAME = re.compile(r"`([\w.*/]+)`")


def read_pins() -> dict[str, str]:
    """Give the SHA-256 of every pinned file."""
    pins: dict[str, str] = json.loads(PINS.read_text())["sha256"]
    return pins


def render_pins() -> str:
    """List the pinned files."""
    rows = [f"| `{name}` | `{digest}` |" for name, digest in read_pins().items()]
    return "\n".join(["| file | SHA-256 |", "|---|---|", *rows]) + "\n"


def read_listed() -> dict[str, list[str]]:
    """Give, for every file that has a table of functions, the names in its first column."""
    listed: dict[str, list[str]] = {}
    file = None
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = _HEADING.match(line)
            file = None if heading is None else heading[1]
            if file is not None:
                listed[file] = []
        elif file is not None and line.startswith("| `"):
            listed[file] += _names(line)
    return listed


def read_mentioned() -> set[str]:
    """Give the files that stand in the first column of any table, or in a heading."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in _names(row)} | read_listed().keys()


def _names(row: str) -> list[str]:
    return _NAME.findall(row.split("|")[1])


def read_section(title: str) -> set[str]:
    """Give the names in the first column of the tables below one heading."""
    text = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return {name for line in text.splitlines() if line.startswith("| `") for name in _names(line)}


def read_functions(path: Path) -> dict[str, list[str]]:
    """Give the names that each function, class and method of a file may be listed under.

    A method is listed by its full name, by its own, or as part of `Class.*`; a class also by anything that
    is listed of it, its special methods included. Everything may be listed as part of `*`.
    """
    return {name: [*names, "*"] for name, names in _functions(ast.parse(path.read_text()))}


def _functions(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, [node.name]
        if isinstance(node, ast.ClassDef):
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            full_names = [f"{node.name}.{method}" for method in methods]
            yield node.name, [node.name, f"{node.name}.*", *methods, *full_names]
            for method, full_name in zip(methods, full_names, strict=True):
                if not method.startswith("__"):
                    yield full_name, [full_name, f"{node.name}.*", method]


def unlisted(listed: list[str], functions: Mapping[str, list[str]]) -> list[str]:
    """Name the functions of a file that are not listed."""
    return [name for name, names in functions.items() if not set(names) & set(listed)]


def made_up(listed: list[str], functions: Mapping[str, list[str]]) -> list[str]:
    """Name what is listed for a file and is not there."""
    known = {"*", *(name for names in functions.values() for name in names)}
    return [name for name in listed if name not in known]
