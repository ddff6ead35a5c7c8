"""The real scheduler and ours do the same with what else a running engine does.

`features.py` plays more histories, and tells how often each pair of features met.
"""

import pytest

NUM_HISTORIES = 150

pytestmark = pytest.mark.usefixtures("_reference")


def test_identical_with_features() -> None:
    """After every event, outcome and state are the same on both sides."""
    from .duel import Tally, play_history

    tally = Tally()
    for seed in range(3000, 3000 + NUM_HISTORIES):
        divergence = play_history(seed, tally, with_all_features=True)

        assert divergence is None, str(divergence)
    assert len(tally.situations) > 0
