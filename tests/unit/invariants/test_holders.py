"""Each clause of INV-HOLD-01: who waits with blocks in hand gives them back for a reason."""

from collections.abc import Callable

import pytest

from kvsched_fp.invariants import CATALOGUE, Step, StepInvariant, observe

from .broken_holders import BROKEN_HOLDERS, S, T, U, gives_back, two_give_back
from .good import Changed

(INVARIANT,) = [entry for entry in CATALOGUE if entry.invariant_id == "INV-HOLD-01"]
assert isinstance(INVARIANT, StepInvariant)
PREDICATE = INVARIANT.predicate


@pytest.mark.parametrize(("step", "gave_back"), [(gives_back(), (T,)), (two_give_back(), (U, T))])
def test_blocks_are_given_back_for_a_reason(step: Step, gave_back: tuple[str, ...]) -> None:
    """The last in line give theirs back, until the first has enough; it is admitted, alone."""
    assert gave_back == step.gave_back
    assert (S,) == step.admitted
    assert None is PREDICATE(step)


@pytest.mark.parametrize("make", BROKEN_HOLDERS, ids=lambda make: make.__name__.strip("_"))
def test_each_clause_has_its_evidence(make: Callable[[], Changed]) -> None:
    """Whatever is wrong about who gave blocks back is told by the clause that says it must not be."""
    assert BROKEN_HOLDERS[make] == PREDICATE(observe(*make()))
