"""The simulated clock: how long steps take, and how they overlap.

Rules
-----
A step takes `StepCost.seconds` of its tokens, drafts included, in equal shares on the stages of the
pipeline. It enters a stage when it has left the one before and the step ahead of it has left this one;
nothing overtakes. Its result is there when it has left the last stage. An empty step takes no time; its
result comes behind the results of those ahead of it.

A step that goes on from a token that a step in flight samples (asynchronous scheduling) enters the first
stage when that one has left the last.

The engine plans one step after the other, in `StepCost.engine` seconds each, and meanwhile the pipeline
works on what it has been given. So with one step in flight that time counts in full; with several, it is
hidden behind a step that takes longer. That is all that asynchronous scheduling saves on one stage: where
planning is free, as by default, it saves nothing. Proposing drafts takes no time of its own.
"""

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError

MAX_COST_SECONDS = 1_000_000
"""The most that a step, or a token, may cost; so the clock never overflows."""


@attrs.frozen(kw_only=True)
class StepCost:
    """How long a step takes on the simulated clock. A step without tokens takes no time."""

    base: float = 0.05
    """Seconds per step."""
    per_token: float = 0.00004
    """Seconds per scheduled token."""
    engine: float = 0.0
    """Seconds that the engine needs to plan a step, before the step can begin."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(StepCost):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and 0 <= value <= MAX_COST_SECONDS):
                allowed = f"a number of seconds from 0 to {MAX_COST_SECONDS:,}"
                raise InvalidInputError(f"step cost, {field.name}", value, allowed)

    def seconds(self, num_tokens: int) -> float:
        """Give the duration of a step of `num_tokens` scheduled tokens, on all stages together."""
        return self.base + self.per_token * num_tokens if num_tokens else 0.0

    def planning_seconds(self, num_tokens: int) -> float:
        """Give how long the engine plans a step of `num_tokens` scheduled tokens."""
        return self.engine if num_tokens else 0.0


class Pipeline:
    """The stages that steps pass, one step behind the other."""

    def __init__(self, num_stages: int) -> None:
        # Per stage, when the last step that was sent leaves it.
        self._left = [0.0] * num_stages

    def send(self, earliest: float, seconds: float) -> float:
        """Send a step that takes `seconds`, from `earliest` on; give when its result is there."""
        share = seconds / len(self._left)
        time = earliest
        for stage, free in enumerate(self._left):
            time = max(time, free) + share
            self._left[stage] = time
        return time


def max_steps_in_flight(config: SchedulerConfig) -> int:
    """Give the steps that the engine keeps in flight: one per stage; one more with asynchronous scheduling.

    Upstream: `config/vllm.py::VllmConfig.max_concurrent_batches`.
    """
    return config.pipeline_parallel_size + config.async_scheduling
