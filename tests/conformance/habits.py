"""How the outside world behaves in one history: drawn once, then kept to.

A history in which everything is equally likely shows little; one in which requests are long, or hung
up on, or answered late, shows what depends on that.
"""

from random import Random
from typing import Literal

import attrs

RunnerKind = Literal["plain", "bursts", "wild"]


@attrs.frozen(kw_only=True)
class Habits:
    """The outside world of one history."""

    num_events: int
    """How many events before the draining."""
    max_in_flight: int
    """The most steps in flight: 1 is a plain engine, more is a pipeline."""
    max_live: int
    """The most live requests."""
    runner: RunnerKind
    """What comes back: one token per finished prompt (`plain`), one to three (`bursts`), or anything for
    anybody (`wild`)."""
    num_token_ids: int
    """The size of the vocabulary: small, so that stop tokens and repetitions happen."""
    prefixes: tuple[tuple[int, ...], ...]
    """Token sequences that prompts begin with."""
    max_prompt_len: int
    """The longest prompt."""
    max_output_len: int
    """The largest `max_tokens`."""
    stop_rate: float
    """The share of requests that each way of stopping before that applies to."""
    num_priorities: int
    """How many different priorities, from 1; 0 makes every request more important than the ones before."""
    arrivals: Literal["in order", "at once", "any"]
    """How arrival times relate to the order in which requests are added."""
    num_clients: int
    """How many front ends."""
    add_rate: float
    """How often requests arrive, relative to steps, which have the rate 1."""
    max_burst: int
    """The most requests that arrive one after the other."""
    finish_rate: float
    """How often requests are ended from outside."""
    pause_rate: float
    """How often the engine is paused."""
    reset_rate: float
    """How often the prefix cache is reset."""
    throttle_rate: float
    """The share of the steps that are throttled."""
    reuse_rate: float
    """The share of new requests that take the id of one that ended."""
    features: frozenset[str] = frozenset()
    """What the engine does besides (`random_features.py`)."""
    acceptance_rate: float = 0.5
    """The chance of each draft to be accepted, if those before it were."""
    max_loras: int = 0
    """The most adapters among the running requests."""


def draw_habits(rng: Random, max_model_len: int) -> Habits:
    """Draw the outside world for requests of at most `max_model_len` tokens."""
    num_token_ids = rng.choice((2, 3, 5, 9))
    return Habits(
        num_events=rng.randint(15, 120),
        max_in_flight=rng.choice((1, 1, 2, 3, 4)),
        max_live=rng.choice((3, 6, 9, 12)),
        runner=rng.choice(("plain", "plain", "bursts", "wild")),
        num_token_ids=num_token_ids,
        prefixes=tuple(
            draw_tokens(rng, num_token_ids, rng.randint(1, max_model_len)) for _ in range(rng.randint(1, 3))
        ),
        max_prompt_len=rng.choice((max_model_len, max_model_len // 2, max_model_len // 2, 5)),
        max_output_len=rng.choice((1, 4, 15, 40, 40)),
        stop_rate=rng.choice((0.0, 0.0, 0.3)),
        num_priorities=rng.choice((0, 0, 1, 2, 4)),
        arrivals=rng.choice(("in order", "at once", "any")),
        num_clients=rng.choice((1, 1, 2, 3)),
        add_rate=rng.choice((0.2, 0.6, 1.5)),
        max_burst=rng.choice((1, 3, 6)),
        finish_rate=rng.choice((0.0, 0.03, 0.15)),
        pause_rate=rng.choice((0.0, 0.0, 0.02, 0.1)),
        reset_rate=rng.choice((0.0, 0.0, 0.02, 0.1)),
        throttle_rate=rng.choice((0.0, 0.0, 0.5)),
        reuse_rate=rng.choice((0.0, 0.0, 0.7)),
    )


def draw_tokens(rng: Random, num_token_ids: int, length: int) -> tuple[int, ...]:
    """Draw `length` token ids."""
    return tuple(rng.randrange(num_token_ids) for _ in range(length))
