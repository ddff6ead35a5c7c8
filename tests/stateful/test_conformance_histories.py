"""The histories of the conformance suite keep every invariant, but for what is outside of the rules.

They are drawn from a wider world than the machine's: several groups, large pools, any mix of features.
"""

from hypothesis import settings

from kvsched_fp import initial_state, step
from kvsched_fp.invariants import RunChecker, check_full, check_observed_full, observe
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from tests.conformance.kinds import FEATURED
from tests.conformance.within_the_rules import WithinTheRules


def test_histories_with_features_keep_every_invariant() -> None:
    """Random histories with features keep every invariant, after every event."""
    for seed in range(settings().max_examples // 2):
        _play(seed)


def _play(seed: int) -> None:
    drawn = FEATURED.draw(seed, Blake2BlockHasher())
    state = initial_state(drawn.config)
    history, rules, run = drawn.history(state), WithinTheRules(), RunChecker(state)
    for drawn_event in history.events():
        event = rules.turn(state, drawn_event)
        after, outcome = step(state, event)
        seen = observe(state, event, after, outcome)
        check_full(after)
        check_observed_full(seen)
        run.check_observed(seen)
        rules.observe(event, after)
        history.observe(after)
        state = after
