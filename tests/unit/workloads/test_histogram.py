"""The histogram of durations."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.workloads.histogram import SUB_BITS, Histogram

durations = st.lists(st.just(0.0) | st.floats(min_value=1e-9, max_value=1e9), min_size=1, max_size=50)


def test_an_empty_histogram_has_no_figures() -> None:
    """Nothing is made up."""
    assert {"mean": None, "p50": None, "p99": None, "max": None} == Histogram().as_mapping()


@given(durations, st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_at_most_one_bucket_too_large(values: list[float], share: float) -> None:
    """The stated resolution holds, at every scale."""
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
    quantile = histogram.quantile(share)

    assert quantile is not None
    assert exact <= quantile <= exact * (1 + 2**-SUB_BITS)


@given(durations)
def test_count_mean_and_largest_are_exact(values: list[float]) -> None:
    """Only quantiles are rounded."""
    histogram = Histogram()
    for value in values:
        histogram.add(value)

    assert (len(values), max(values)) == (histogram.count, histogram.largest)
    assert sum(values) / len(values) == pytest.approx(histogram.mean)


def test_adding_a_value_many_times_is_adding_it_over_and_over() -> None:
    """A step's equal gaps are added at once."""
    at_once, one_by_one = Histogram(), Histogram()
    at_once.add(0.25, times=4)
    for _ in range(4):
        one_by_one.add(0.25)

    assert one_by_one.as_mapping() == at_once.as_mapping()
    assert 4 == at_once.count


def test_zero_comes_before_the_smallest_fraction() -> None:
    """The order of the buckets is the order of the values."""
    histogram = Histogram()
    for value in (1e-300, 0.0, 0.5):
        histogram.add(value)

    assert histogram.quantile(0.3) == pytest.approx(0.0, abs=1e-300)
    assert histogram.quantile(0.6) < 1e-299
