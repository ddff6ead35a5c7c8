"""How long to search.

A rule is one event, or a few steps in a row. The runs come in batches, each a search of its own: after
ten runs Hypothesis spends most of its time on variations of runs that it has seen, which find few new
situations. Every tenth batch is larger, so that Hypothesis can aim for what the machine tells it to.
"""

from collections.abc import Iterator, Mapping

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, settings

from kvsched_fp.errors import InvalidConfig

BATCH_SIZE = 9
"""Runs per batch; with fewer than ten, all but the first are drawn freely."""
AIMING_BATCH_SIZE = 45
"""Runs of every tenth batch."""


@attrs.frozen
class Profile:
    """How long to search."""

    num_runs: int
    """Runs, each with a world of its own."""
    num_rules: int
    """Rules per run."""
    is_repeatable: bool
    """Whether the runs are always the same ones."""

    def to_settings(self, num_runs: int | None = None) -> settings:
        """Give the settings of Hypothesis for so many runs; all of them, if not given."""
        return settings(
            max_examples=num_runs or self.num_runs,
            stateful_step_count=self.num_rules,
            deadline=None,
            database=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
            report_multiple_bugs=False,
        )

    def batches(self) -> Iterator[settings]:
        """Give the settings of one batch after another; what they find is made small elsewhere."""
        phases = [Phase.generate, Phase.target]
        num_left, number = self.num_runs, 0
        while num_left > 0:
            number += 1
            size = min(num_left, BATCH_SIZE if number % 10 else AIMING_BATCH_SIZE)
            num_left -= size
            yield settings(self.to_settings(size), phases=phases, verbosity=Verbosity.quiet)


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(num_runs=90, num_rules=20, is_repeatable=False),
    "ci": Profile(num_runs=450, num_rules=20, is_repeatable=True),
    "deep": Profile(num_runs=9000, num_rules=30, is_repeatable=False),
}
"""The profiles by name."""


def choose_profile(name: str | Profile) -> Profile:
    """Give a profile by its name. Raises `InvalidConfig` for a name that is none."""
    if isinstance(name, Profile):
        return name
    if name not in PROFILES:
        raise InvalidConfig("profile", name, " or ".join(map(repr, PROFILES)))
    return PROFILES[name]
