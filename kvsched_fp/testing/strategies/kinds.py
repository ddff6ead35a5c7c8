"""Strategies: what happens often in a world, and what that says about its configuration and its requests.

Chance alone reaches some situations in one run of a hundred, or of a thousand. So most worlds are of a
kind in which one of them happens often.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.testing.features import Feature
from kvsched_fp.testing.strategies.themes import Besides
from kvsched_fp.testing.strategies.wishes import Wish


class Kind(enum.Enum):
    """What happens often in a world."""

    ANYTHING = "anything"
    """Nothing in particular."""
    CONTEST = "contest"
    """Easy to get in: the running requests outgrow the pool."""
    RISING = "rising"
    """A contest with long outputs, in which each request is more important than the ones before it."""
    TIGHT = "tight"
    """Ever more important requests come one by one, and the budgets do not suffice for all of them."""
    FLOOD = "flood"
    """Prompts outgrow the pool in pieces, while many steps are in flight and the cache is reset."""
    TALK = "talk"
    """A contest of sessions of one priority, whose next input comes while they are busy."""
    SHARING = "sharing"
    """All prompts are of one text, in whole blocks."""
    DOOR = "door"
    """It is hard to get in: reserve, watermark, whole prompts."""


_KINDS = (
    *(Kind.ANYTHING, Kind.CONTEST, Kind.CONTEST, Kind.RISING, Kind.RISING, Kind.RISING),
    *(Kind.SHARING, Kind.SHARING, Kind.DOOR, Kind.DOOR, Kind.DOOR),
)
"""The ones that need more luck come more often."""

_KINDS_WITH_DRAFTS = (Kind.ANYTHING, Kind.CONTEST, Kind.CONTEST, Kind.RISING, Kind.SHARING, Kind.SHARING)
"""Those in which decodes are preempted, and padded."""

_OPENED = (
    *(Kind.ANYTHING, Kind.CONTEST, Kind.CONTEST, Kind.RISING, Kind.RISING, Kind.TIGHT),
    *(Kind.FLOOD, Kind.FLOOD, Kind.SHARING, Kind.SHARING, Kind.DOOR, Kind.DOOR, Kind.DOOR),
)
"""All of them, for a machine that plays how a world of a kind opens."""

_OPENED_WITH_DRAFTS = (*_KINDS_WITH_DRAFTS, Kind.FLOOD)

_OPENED_WITH_SLOTS = (Kind.ANYTHING, Kind.CONTEST, Kind.RISING, Kind.TIGHT, Kind.TIGHT, Kind.TIGHT)
"""Those in which the drafter may have positions of its own, which are given back."""

_OPENED_WITH_SESSIONS = (
    *(Kind.ANYTHING, Kind.CONTEST, Kind.RISING, Kind.SHARING, Kind.DOOR, Kind.DOOR),
    *(Kind.TALK,) * 6,
)
"""Those in which sessions go on."""

_SLOTS = "max_num_new_slots_for_drafting"

_NEEDS: Mapping[Kind, frozenset[Feature]] = {
    Kind.ANYTHING: frozenset(),
    Kind.CONTEST: frozenset(),
    Kind.RISING: frozenset({Feature.PRIORITY}),
    Kind.TIGHT: frozenset({Feature.PRIORITY}),
    Kind.FLOOD: frozenset({Feature.RESET, Feature.STEPS_IN_FLIGHT}),
    Kind.TALK: frozenset({Feature.PRIORITY, Feature.SESSIONS}),
    Kind.SHARING: frozenset({Feature.PREFIX_CACHING}),
    Kind.DOOR: frozenset(),
}
"""What a scheduler has to support for a kind of world."""

NUM_FIRST = 3
"""Requests that come first in a tight world, or in one of sessions, and differ from those behind them."""

FIRST_REQUESTS: Mapping[Kind, st.SearchStrategy[int]] = {
    **dict.fromkeys(Kind, st.integers(1, 3)),
    Kind.TIGHT: st.just(NUM_FIRST + 1),
    Kind.FLOOD: st.just(2),
    Kind.TALK: st.just(NUM_FIRST),
}
"""How many requests come before anything else."""

MOST_IN_FLIGHT = 6
"""The most steps in flight where there are many."""


def kinds(besides: Besides, allowed: frozenset[Feature], *, is_opened: bool) -> st.SearchStrategy[Kind]:
    """Draw the kind of a world by what its engine does besides.

    `is_opened` says whether the machine plays how a world of a kind opens; some kinds are nothing without.
    """
    has_drafts = "num_spec_tokens" in besides.config
    chosen: Sequence[Kind] = _KINDS_WITH_DRAFTS if has_drafts else _KINDS
    if is_opened and _SLOTS in besides.config:
        chosen = _OPENED_WITH_SLOTS
    elif is_opened and has_drafts:
        chosen = _OPENED_WITH_DRAFTS
    elif is_opened:
        chosen = _OPENED_WITH_SESSIONS if besides.sessions else _OPENED
    return st.sampled_from([kind for kind in chosen if _NEEDS[kind] <= allowed])


def fit_besides(kind: Kind, besides: Besides) -> Besides:
    """Leave out what keeps requests from getting in where all of them are to run."""
    if kind not in {Kind.TIGHT, Kind.FLOOD}:
        return besides
    return attrs.evolve(
        besides, config={**besides.config, "max_loras": None}, grammars=False, sessions=False
    )


def fit_config(kind: Kind, values: dict[str, Any]) -> None:
    """Make a tight world with drafts as tight in its budgets as one without, and its pool larger."""
    num_spec_tokens = values.get("num_spec_tokens", 0)
    if kind is Kind.TIGHT and num_spec_tokens:
        # All rows but the last one verify drafts, which leaves a token or so for that.
        num_slots = max(values[_SLOTS], 1) if _SLOTS in values else 0
        values |= {_SLOTS: num_slots}
        values["max_num_batched_tokens"] = 3 * (1 + num_spec_tokens) + 4 * num_slots + 1
        values |= {"block_size": 4, "num_blocks": values["num_blocks"] + 4}


def fit_wish(kind: Kind, number: int, wish: Wish) -> Wish:
    """Make a wish for the how many-th request one that goes with the kind of the world."""
    share, fields, is_first = wish.share, wish.fields, number < NUM_FIRST
    match kind:
        case Kind.CONTEST:
            return attrs.evolve(wish, share=share / 2)
        case Kind.RISING:
            fields = {**fields, "priority": -number}
            return attrs.evolve(wish, share=share / 2, max_tokens=40, fields=fields)
        case Kind.TIGHT:
            # Those that come first decode for long, while those behind them are computed in pieces.
            share, fields = share / 4 if is_first else max(share, 0.7), {**fields, "priority": -number}
            return attrs.evolve(wish, share=share, max_tokens=40, fields=fields, params={})
        case Kind.FLOOD:
            # One outgrows the pool, and the other one is in its way.
            return attrs.evolve(wish, share=share / 4 if number % 2 else max(share, 0.9))
        case Kind.TALK:
            # Short answers to what comes first, and long ones to what comes behind it, ever later.
            max_tokens = 3 if wish.resumable and is_first else 40
            fields = {**fields, "priority": 0, "arrival_time": float(number)}
            return attrs.evolve(wish, share=share / 4, max_tokens=max_tokens, fields=fields, params={})
    return wish


_CONTEST = {
    "num_blocks": st.integers(5, 8),
    "block_size": st.sampled_from([2, 3, 4]),
    "max_num_batched_tokens": st.sampled_from([4, 5, 6, 8, 12]),
    "max_num_seqs": st.just(4),
    "max_num_active_seqs": st.none(),
    "enable_chunked_prefill": st.just(True),
    "long_prefill_token_threshold": st.just(0),
    "scheduler_reserve_full_isl": st.just(False),
    "watermark": st.just(0.0),
    "prefill_schedule_interval": st.just(1),
}

CONFIGS: Mapping[Kind, st.SearchStrategy[dict[str, Any]]] = {
    Kind.ANYTHING: st.just({}),
    Kind.CONTEST: st.fixed_dictionaries(_CONTEST),
    Kind.RISING: st.fixed_dictionaries(
        {
            **_CONTEST,
            "policy": st.just(SchedulingPolicy.PRIORITY),
            # So little that what a victim gives back is missed.
            "max_num_batched_tokens": st.sampled_from([3, 4, 6]),
        }
    ),
    Kind.TIGHT: st.fixed_dictionaries(
        {
            **_CONTEST,
            "policy": st.just(SchedulingPolicy.PRIORITY),
            "num_blocks": st.integers(8, 12),
            "block_size": st.sampled_from([2, 3]),
            "max_num_batched_tokens": st.sampled_from([4, 5]),
        }
    ),
    Kind.FLOOD: st.fixed_dictionaries(
        {
            **_CONTEST,
            "policy": st.just(SchedulingPolicy.FCFS),
            "num_blocks": st.integers(4, 6),
            "max_num_batched_tokens": st.integers(8, 16),
            "long_prefill_token_threshold": st.sampled_from([3, 4]),
            "long_prefill_token_threshold_adaptive": st.just(value=False),
        }
    ),
    Kind.TALK: st.fixed_dictionaries(
        {
            **_CONTEST,
            "policy": st.just(SchedulingPolicy.PRIORITY),
            "block_size": st.sampled_from([2, 3]),
            "max_num_batched_tokens": st.sampled_from([8, 6, 12]),
        }
    ),
    Kind.SHARING: st.fixed_dictionaries(
        {
            "num_blocks": st.integers(8, 12),
            "block_size": st.sampled_from([2, 3]),
            "enable_prefix_caching": st.just(True),
            "long_prefill_token_threshold": st.sampled_from([0, 2, 3]),
            "max_num_batched_tokens": st.integers(4, 16),
        }
    ),
    Kind.DOOR: st.fixed_dictionaries(
        {
            "max_num_seqs": st.just(4),
            "max_num_active_seqs": st.none(),
            "max_num_batched_tokens": st.integers(2, 6),
            "scheduler_reserve_full_isl": st.sampled_from([True, True, True, False]),
            "watermark": st.sampled_from([0.3, 0.0, 0.0]),
            "enable_chunked_prefill": st.booleans(),
            "long_prefill_token_threshold": st.just(0),
            "prefill_schedule_interval": st.sampled_from([1, 3]),
        }
    ),
}
"""What a kind of world says about its configuration; the rest is free."""
