"""The statistics of prefix look-ups add up."""

from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.outputs import PrefixCacheStats


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans())))
def test_look_ups_are_summed_by_kind(look_ups: list[tuple[int, int, bool]]) -> None:
    """Requests, tokens and hits are counted, those of preempted requests apart."""
    stats = PrefixCacheStats()
    for num_tokens, num_hits, preempted in look_ups:
        stats = stats.record(num_tokens, num_hits, preempted=preempted)
    sums = [
        tuple(map(sum, zip(*rows, strict=True))) if rows else (0, 0, 0)
        for rows in (
            [(1, tokens, hits) for tokens, hits, again in look_ups if again is kind]
            for kind in (False, True)
        )
    ]

    assert not stats.reset
    assert sums[0] == (stats.requests, stats.queries, stats.hits)
    assert sums[1] == (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits)


def test_record_keeps_the_note_of_a_reset() -> None:
    """A reset is reported with whatever is looked up after it."""
    assert PrefixCacheStats(reset=True).record(1, 0, preempted=False).reset
