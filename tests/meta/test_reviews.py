"""The worked reviews name what is there."""

import re

from kvsched_fp.invariants import CATALOGUE
from tests.meta.rules import SPECS
from tests.mutants.planted import MUTANTS


def _words_of_reviews() -> str:
    """Give the text of all reviews, on one line."""
    return " ".join(" ".join(page.read_text().split()) for page in (SPECS / "reviews").glob("*.md"))


def test_reviews_name_invariants_and_mutants_that_exist() -> None:
    """Every invariant and every mutant that a review names is in the catalogue."""
    text = _words_of_reviews()
    invariants = set(re.findall(r"INV-[A-Z]+-\d\d", text))
    mutants = set(re.findall(r'"([a-z][^"]+)"', text))

    assert invariants
    assert mutants
    assert set() == invariants - {entry.invariant_id for entry in CATALOGUE}
    assert set() == mutants - {mutant.name for mutant in MUTANTS}
