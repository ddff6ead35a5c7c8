"""The catalogue as a whole."""

import ast
import re
from pathlib import Path

import kvsched_fp.invariants
from kvsched_fp.invariants import CATALOGUE, Invariant, RunInvariant, Scope, StateInvariant

from .broken_drafts import BROKEN_DRAFTS
from .broken_results import BROKEN_RESULTS
from .broken_runs import BROKEN_RUNS
from .broken_schedules import BROKEN_SCHEDULES
from .broken_sessions import BROKEN_SESSIONS
from .broken_states import BROKEN_STATES

ALGORITHMS = (
    "kvsched_fp.schedule",
    "kvsched_fp.update",
    "kvsched_fp.lifecycle",
    "kvsched_fp.drafting",
    "kvsched_fp.bitmask",
    "kvsched_fp.sessions",
    "kvsched_fp.release",
    "kvsched_fp.transient",
    "kvsched_fp.machine",
    "kvsched_fp.kvcache.allocation",
)
"""What the predicates check, and so may not call."""


def _is_plain_english(entry: Invariant) -> bool:
    return all(re.fullmatch(r"[A-Z0-9].*[^.]\.", text) for text in (entry.sentence, entry.why))


def test_ids_are_stable_and_different() -> None:
    """Every invariant has an id of its own, INV-SUBJECT-NUMBER, and numbers have no gap."""
    ids = [entry.invariant_id for entry in CATALOGUE]
    subjects: dict[str, list[int]] = {}
    for invariant_id in sorted(ids):
        match = re.fullmatch(r"INV-([A-Z]+)-(\d\d)", invariant_id)
        assert match is not None
        subjects.setdefault(match[1], []).append(int(match[2]))

    assert len(set(ids)) == len(ids)
    assert {subject: list(range(1, len(numbers) + 1)) for subject, numbers in subjects.items()} == subjects


def test_the_catalogue_counts_up() -> None:
    """The invariants of one subject stand together, in the order of their numbers."""
    ids = [entry.invariant_id for entry in CATALOGUE]
    subjects = list(dict.fromkeys(invariant_id.rpartition("-")[0] for invariant_id in ids))

    assert sorted(ids, key=lambda name: (subjects.index(name.rpartition("-")[0]), name)) == ids


def test_every_invariant_is_said_in_plain_english() -> None:
    """Every invariant is a sentence, and has a reason."""
    assert [] == [entry.invariant_id for entry in CATALOGUE if not _is_plain_english(entry)]


def test_every_invariant_has_a_broken_example() -> None:
    """Every invariant has exactly one example that breaks it, of its own scope."""
    states = {entry.invariant_id for entry in CATALOGUE if entry.scope is Scope.STATE}
    steps = {entry.invariant_id for entry in CATALOGUE if entry.scope is Scope.STEP}
    runs = {entry.invariant_id for entry in CATALOGUE if entry.scope is Scope.RUN}

    assert states == BROKEN_STATES.keys()
    assert sorted(steps) == sorted([*BROKEN_SCHEDULES, *BROKEN_RESULTS, *BROKEN_DRAFTS, *BROKEN_SESSIONS])
    assert runs == BROKEN_RUNS.keys()


def test_invariants_of_steps_and_runs_are_about_some_event() -> None:
    """Every invariant of a step or a run names the events that it is about."""
    assert all(entry.events for entry in CATALOGUE if not isinstance(entry, StateInvariant))


def test_it_is_said_how_much_a_run_invariant_remembers() -> None:
    """Every invariant of a run says what it keeps of the run."""
    assert all(entry.memory for entry in CATALOGUE if isinstance(entry, RunInvariant))


def test_predicates_do_not_call_what_they_check() -> None:
    """No module of the catalogue imports an algorithm of the machine."""
    package = Path(kvsched_fp.invariants.__file__).parent
    imported = {
        (path.name, node.module)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }

    assert imported
    assert set() == {(name, module) for name, module in imported if module.startswith(ALGORITHMS)}
