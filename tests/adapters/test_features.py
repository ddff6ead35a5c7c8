"""What else a running engine does: both schedulers of ours agree with the real one on all of it."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_reference")

NUM_HISTORIES = 40
"""Per kind of scheduler and shape of the output."""


@pytest.mark.parametrize("shape", ["v1", "v2"])
@pytest.mark.parametrize("seed", range(NUM_HISTORIES))
def test_oracle(seed: int, shape: str) -> None:
    """The oracle's outputs, requests and everything inside are the same after every call."""
    from kvsched_fp.adapters.vllm import OracleScheduler
    from tests.adapters.pairs import play

    difference = play(seed, OracleScheduler, shape, with_all_features=True)

    assert difference is None, str(difference)


@pytest.mark.parametrize("shape", ["v1", "v2"])
@pytest.mark.parametrize("seed", range(NUM_HISTORIES, 2 * NUM_HISTORIES))
def test_shadow(seed: int, shape: str, tmp_path: Path) -> None:
    """A shadow says what the real one says, sees no difference, and its trace passes the check."""
    from kvsched_fp.adapters.vllm import ShadowScheduler
    from kvsched_fp.trace import check_trace, open_trace_reader
    from tests.adapters.pairs import play

    trace = tmp_path / "trace.jsonl"
    difference = play(seed, ShadowScheduler, shape, with_all_features=True, trace=trace)
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert difference is None, str(difference)
    assert verdict.divergence is None, str(verdict.divergence)


def test_every_feature_is_met() -> None:
    """Each feature is in several of these histories, for the oracle and for the shadow."""
    from collections import Counter

    from tests.adapters.pairs import draw_world
    from tests.conformance.random_features import FEATURES

    for first in (0, NUM_HISTORIES):
        seeds = range(first, first + NUM_HISTORIES)
        met = Counter(name for seed in seeds for name in draw_world(seed, with_all_features=True)[1])

        assert {} == {name: met[name] for name in FEATURES if met[name] < 3}
