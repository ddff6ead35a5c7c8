"""Render the generated sections of the pages in `specs/`: rules, statuses, invariants, pins, a trace."""

import re
from collections.abc import Callable
from pathlib import Path

from kvsched_fp.invariants import CATALOGUE, Cost, RunInvariant, Scope
from kvsched_fp.request import LEGAL_MOVES, RequestStatus, is_finished
from tests.meta.example_trace import render_trace
from tests.meta.fidelity import render_pins
from tests.meta.kit import render_features, render_profiles
from tests.meta.rules import SPECS, read_implementers, read_rules
from tests.mutants.exempt import EXEMPT
from tests.mutants.planted import MUTANTS

PAGE_OF_PREFIX = {
    "M": "machine.md",
    "M-SESS": "sessions.md",
    "S": "schedule.md",
    "K": "kvcache.md",
    "U": "update.md",
    "D": "drafting.md",
    "G": "grammars.md",
}
"""Which page a rule is printed on, by how its id begins; the longest that fits counts."""

_SECTION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end generated -->\n)", re.DOTALL)


def prefix_of(rule_id: str) -> str:
    """Give the prefix of the page that a rule is printed on."""
    return max((prefix for prefix in PAGE_OF_PREFIX if rule_id.startswith(f"{prefix}-")), key=len)


def render_rules(prefix: str) -> str:
    """List the rules of one page, file by file, each with the code that implements it."""
    places = read_implementers()
    lines: list[str] = []
    module = None
    for rule in read_rules():
        if prefix_of(rule.rule_id) != prefix:
            continue
        if rule.module != module:
            module = rule.module
            lines += ["", f"### `{module}`", ""]
        code = ", ".join(f"`{_short(place, module)}`" for place in places.get(rule.rule_id, ()))
        lines += [f"- **{rule.rule_id}** {rule.sentence}", f"  *Code:* {code}."]
    return "\n".join(lines[1:]) + "\n"


def render_moves() -> str:
    """Draw the legal moves of a request's status from the table."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> WAITING: add_request"]
    for status, targets in LEGAL_MOVES.items():
        lines += [
            f"    {status.name} --> {to.name}"
            for to in RequestStatus
            if to in targets and not is_finished(to)
        ]
    lines += [f"    {status.name} --> FINISHED" for status in LEGAL_MOVES if not is_finished(status)]
    finals = ", ".join(status.name for status in RequestStatus if is_finished(status))
    lines += ["    FINISHED --> [*]", "```", "", f"FINISHED stands for {finals}."]
    return "\n".join(lines) + "\n"


def render_invariants() -> str:
    """List the invariants of the catalogue, each with what is known against it and what it is proved by."""
    lines: list[str] = []
    for entry in CATALOGUE:
        lines += [
            f"- **{entry.invariant_id}** ({entry.scope.value}, {entry.cost.value}) {entry.sentence}",
            f"  *Why:* {entry.why}",
        ]
        if isinstance(entry, RunInvariant):
            lines.append(f"  *Remembers:* {entry.memory}.")
        if entry.reports:
            lines.append(f"  *Reported:* {', '.join(entry.reports)}.")
        killed = [mutant.name for mutant in MUTANTS if entry.invariant_id in mutant.killers]
        if killed:
            lines.append(f"  *Kills:* {'; '.join(killed)}.")
        else:
            lines.append(f"  *Kills nothing:* {EXEMPT[entry.invariant_id]}")
        lines.append(f"  *Checked by:* {_CHECKED_BY[entry.scope, entry.cost]}.")
    return "\n".join(lines) + "\n"


_CHECKED_BY = {
    (Scope.STATE, Cost.CHEAP): "`check_cheap`, `check_full`",
    (Scope.STATE, Cost.FULL): "`check_full`",
    (Scope.STEP, Cost.CHEAP): "`check_cheap`, `check_full_step`",
    (Scope.STEP, Cost.FULL): "`check_full_step`",
    (Scope.RUN, Cost.CHEAP): "`RunChecker`",
}


def render_page(path: Path) -> str:
    """Give the text of a page with its generated sections as they should be."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{GENERATORS[match[2]]()}\n{match[3]}"

    return _SECTION.sub(fill, path.read_text())


def pages() -> list[Path]:
    """List the pages."""
    return sorted(SPECS.glob("*.md"))


GENERATORS: dict[str, Callable[[], str]] = {
    **{
        page.removesuffix(".md"): lambda prefix=prefix: render_rules(prefix)
        for prefix, page in PAGE_OF_PREFIX.items()
    },
    "moves": render_moves,
    "invariants": render_invariants,
    "pins": render_pins,
    "trace": render_trace,
    "features": render_features,
    "profiles": render_profiles,
}
"""What fills the section `<!-- generated: NAME -->`."""


def _short(place: str, module: str) -> str:
    file, _, function = place.partition("::")
    return function if file == module else f"{file.removeprefix('kvsched_fp/')}::{function}"
