"""A distribution of durations in bounded memory.

Values are counted in buckets of a fixed relative width: two values share a bucket when they have the same
power of two and the same first `SUB_BITS` bits behind it. So a quantile is at most 1 / 2**SUB_BITS = 0.8 %
above the true one; count, mean, least and largest are exact (the mean up to rounding). A value is a
double, so there are at most 2**18 buckets, and a few hundred in practice.
"""

import math
from collections.abc import Mapping

SUB_BITS = 7
"""Each power of two is cut into 2**SUB_BITS buckets."""

_SUB_BUCKETS = 2 ** (SUB_BITS + 1)
_ZERO = (-2000, 0)  # below the exponent of every double


class Histogram:
    """Counts of non-negative numbers."""

    def __init__(self) -> None:
        self.count = 0
        """How many values were added."""
        self.total = 0.0
        """Their sum."""
        self.largest = 0.0
        """The largest of them; 0.0 without any."""
        self._buckets: dict[tuple[int, int], int] = {}

    def add(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` times."""
        mantissa, exponent = math.frexp(value)  # the mantissa is in [0.5, 1)
        bucket = (exponent, int(mantissa * _SUB_BUCKETS)) if value else _ZERO
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.total += value * times
        self.largest = max(self.largest, value)

    @property
    def mean(self) -> float | None:
        """The mean, or None without values."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Give a value that `share` (0.0 to 1.0) of the values do not exceed; None without values.

        It is the upper edge of the bucket that holds the true quantile, or the largest value.
        """
        rank = max(math.ceil(share * self.count), 1)
        below = 0
        for (exponent, index), count in sorted(self._buckets.items()):
            below += count
            if below >= rank:
                return min(math.ldexp((index + 1) / _SUB_BUCKETS, exponent), self.largest)
        return None

    def as_mapping(self) -> Mapping[str, float | None]:
        """Give mean, median, 99th percentile and the largest."""
        return {
            "mean": self.mean,
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "max": self.largest if self.count else None,
        }
