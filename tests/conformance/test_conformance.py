"""The real scheduler and ours do the same, in histories that go through everything rare.

These tests take about a minute. `run.py` plays more histories, and under a fixed hash seed.
"""

import pytest

from .situations import SITUATIONS

NUM_HISTORIES = 350

pytestmark = pytest.mark.usefixtures("_reference")


@pytest.fixture(scope="module")
def played(_reference: None) -> tuple[object, dict[str, int]]:
    """Give the divergence of the first histories, if any, and how often each situation occurred."""
    from .duel import Tally, play_history

    tally = Tally()
    for seed in range(NUM_HISTORIES):
        divergence = play_history(seed, tally)
        if divergence is not None:
            return divergence, tally.situations
    return None, tally.situations


def test_identical(played: tuple[object, dict[str, int]]) -> None:
    """After every event, outcome and state are the same on both sides."""
    divergence, _ = played

    assert divergence is None, str(divergence)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_situation_occurred(played: tuple[object, dict[str, int]], situation: str) -> None:
    """The histories went through every situation that is counted."""
    _, situations = played

    assert situations[situation] > 0
