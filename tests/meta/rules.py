"""Read the numbered rules out of the code: where each is stated, and which functions implement it.

A rule is stated once, in the docstring of the module that implements it:

    [S-RUN-01] Requests are looked at in scheduling order, ...
        continued on indented lines.

A function implements it when the id stands in its docstring or in a comment in its body. The pages in
`specs/` repeat the sentences in a section that is written by `python -m tests.meta.write_specs`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kvsched_fp"
SPECS = ROOT / "specs"

RULE_ID = re.compile(r"\b[A-Z]-[A-Z]+-\d\d\b")
_STATEMENT = re.compile(r"^\[([A-Z]-[A-Z]+-\d\d)\] (.*)$")


@attrs.frozen
class Rule:
    """A rule, as stated in the code."""

    rule_id: str
    """Like S-RUN-01."""
    sentence: str
    """What it says, on one line."""
    module: str
    """The file that states it, relative to the root."""


def read_rules() -> list[Rule]:
    """Read every rule that the package states, by file and then in the order stated."""
    return [rule for path in _modules() for rule in _rules_of(path)]


def read_implementers() -> dict[str, list[str]]:
    """Map each rule id to the places, as `file::function`, that mention it in their code."""
    places: dict[str, list[str]] = {}
    for path in _modules():
        if path.name == "explain.py":
            continue  # It names the rules that decided, and implements none.
        for name, text in _functions_of(path):
            for rule_id in dict.fromkeys(RULE_ID.findall(text)):
                places.setdefault(rule_id, []).append(f"{_relative(path)}::{name}")
    return places


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"), key=lambda path: (len(path.parts), path))


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _rules_of(path: Path) -> Iterator[Rule]:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    rule_id = None
    sentence: list[str] = []
    for line in [*docstring.splitlines(), ""]:
        started = _STATEMENT.match(line)
        if rule_id is not None and (started or not line.startswith("    ")):
            yield Rule(rule_id, " ".join(sentence), _relative(path))
            rule_id = None
        if started:
            rule_id, sentence = started[1], [started[2]]
        elif rule_id is not None:
            sentence.append(line.strip())


def _functions_of(path: Path) -> Iterator[tuple[str, str]]:
    source = path.read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _text(node, lines)
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            first = methods[0].lineno - 1 if methods else node.end_lineno
            yield node.name, "\n".join(lines[node.lineno - 1 : first])
            for method in methods:
                yield f"{node.name}.{method.name}", _text(method, lines)


def _text(node: ast.FunctionDef, lines: list[str]) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])
