"""The canonical form: situations of one form behave alike, and what makes a difference shows in it."""

import pytest

from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.invariants.liveness import classify_standstill
from tests.unit.explore.pairs import Searched

NUM_PAIRS = 150
MOST_STATES = 1500


@pytest.fixture(scope="module", params=PRESETS)
def searched(request: pytest.FixtureRequest) -> Searched:
    """Search a preset, or the beginning of it."""
    return Searched(PRESETS[request.param], MOST_STATES)


def test_one_form_behaves_alike(searched: Searched) -> None:
    """Random pairs of one form have the same moves, and those lead to the same set of forms."""
    pairs = searched.sample_pairs(NUM_PAIRS, seed=1)

    assert pairs
    for one, other in pairs:
        ones = [key for key, _ in searched.follow_all(one)]
        others = [key for key, _ in searched.follow_all(other)]

        assert ones == others
        assert classify_standstill(one.state).kind is classify_standstill(other.state).kind
