"""Whether a rule decided anything in a step: plan the same step without the rule, and look.

A state is a value, so that a step can be planned twice. What a limit refused cannot be seen in the
output; that the output would have been another without the limit can.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from kvsched_fp import SchedulerConfig, SchedulerState, schedule
from kvsched_fp.state import num_waiting_requests

_WITHOUT: dict[str, tuple[Callable[[SchedulerConfig], bool], dict[str, Any]]] = {
    "the watermark refused": (lambda config: config.watermark_blocks > 0, {"watermark": 0.0}),
    "the full length was refused": (
        lambda config: config.scheduler_reserve_full_isl,
        {"scheduler_reserve_full_isl": False},
    ),
    "the long-prefill threshold cut": (
        lambda config: config.long_prefill_token_threshold > 0,
        {"long_prefill_token_threshold": 0},
    ),
    "the adaptive threshold allowed more": (
        lambda config: (
            config.long_prefill_token_threshold > 0 and config.long_prefill_token_threshold_adaptive
        ),
        {"long_prefill_token_threshold_adaptive": False},
    ),
    "the active limit refused": (
        lambda config: config.max_num_active < config.max_num_seqs,
        {"max_num_active_seqs": None},
    ),
    "the token budget below the input budget decided": (
        lambda config: config.token_budget < config.max_num_batched_tokens,
        {"max_num_scheduled_tokens": None},
    ),
    "the prefill interval held back": (
        lambda config: config.prefill_schedule_interval > 1,
        {"prefill_schedule_interval": 1},
    ),
    "lookahead slots decided": (
        lambda config: config.num_lookahead_tokens > 0,
        {"num_lookahead_tokens": 0},
    ),
    "chunking was refused": (
        lambda config: not config.enable_chunked_prefill,
        {"enable_chunked_prefill": True},
    ),
}
"""Per rule: whether it is on, and the configuration without it."""

COUNTERFACTUALS = (*_WITHOUT, "a throttled step held back")
"""The names that `rules_that_decided` gives."""


def rules_that_decided(before: SchedulerState, *, throttle_prefills: bool) -> Iterator[str]:
    """Name the rules without which the step planned from `before` would have been another."""
    if not before.running and not num_waiting_requests(before):
        return
    batch = _batch(before, throttle_prefills=throttle_prefills)
    for name, config in _configs_without(before.config):
        if batch != _batch(attrs.evolve(before, config=config), throttle_prefills=throttle_prefills):
            yield name
    if throttle_prefills and batch != _batch(before, throttle_prefills=False):
        yield "a throttled step held back"


@functools.lru_cache(maxsize=1)
def _configs_without(config: SchedulerConfig) -> tuple[tuple[str, SchedulerConfig], ...]:
    """Give, per rule that is on, its name and the configuration without it."""
    return tuple(
        (name, attrs.evolve(config, **changes))
        for name, (is_on, changes) in _WITHOUT.items()
        if is_on(config)
    )


def _batch(state: SchedulerState, *, throttle_prefills: bool) -> object:
    _, output = schedule(state, throttle_prefills=throttle_prefills)
    return output.num_scheduled_tokens, output.preempted_request_ids
