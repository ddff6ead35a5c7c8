"""The real scheduler and ours do the same with what else a running engine does, in every rare situation.

`run.py --features` plays more histories, and tells how often each pair of features met.
"""

from collections import Counter

import pytest

from .kinds import FEATURED
from .random_features import PAIRS
from .situations_of_features import FEATURE_SITUATIONS

NUM_HISTORIES = 400

pytestmark = pytest.mark.usefixtures("_reference")


@pytest.fixture(scope="module")
def played(_reference: None) -> tuple[object, Counter[str], Counter[tuple[str, str]]]:
    """Give the divergence of the first histories, if any, and how often each situation and pair came."""
    from .duel import Tally, play_history

    tally = Tally()
    for seed in range(NUM_HISTORIES):
        divergence = play_history(seed, tally, FEATURED)
        if divergence is not None:
            return divergence, tally.situations, tally.pairs
    return None, tally.situations, tally.pairs


Played = tuple[object, Counter[str], Counter[tuple[str, str]]]


def test_identical(played: Played) -> None:
    """After every event, outcome and state are the same on both sides."""
    divergence, _, _ = played

    assert divergence is None, str(divergence)


@pytest.mark.parametrize("situation", FEATURE_SITUATIONS)
def test_situation_occurred(played: Played, situation: str) -> None:
    """The histories went through every situation that is counted."""
    _, situations, _ = played

    assert situations[situation] > 0


def test_every_pair_of_features_met(played: Played) -> None:
    """In several histories each."""
    _, _, pairs = played

    assert set() == {pair for pair in PAIRS if pairs[pair] < 5}
