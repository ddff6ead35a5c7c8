"""Strategies: some steps in a row, and what the model and the drafter say meanwhile."""

import functools
from operator import mul
from typing import TypeAlias

import attrs
from hypothesis import strategies as st

from kvsched_fp.testing.strategies.wishes import EOS, OTHER, PLAIN, STOP

Answers: TypeAlias = list[tuple[int, ...]]
"""What the model says, for the sampling rows of some steps in turn."""


@functools.cache
def answers() -> st.SearchStrategy[Answers]:
    """Draw what the model says: mostly one token that stops nothing."""
    token = st.sampled_from([PLAIN, OTHER, PLAIN, OTHER, PLAIN, STOP, EOS])
    return st.lists(
        st.one_of(
            st.sampled_from([(PLAIN,), (OTHER,)]),
            token.map(lambda token_id: (token_id,)),
            st.lists(token, min_size=2, max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=5,
    )


@attrs.frozen
class Play:
    """Some steps."""

    moves: str
    """What happens, in order: `S` plans a step, `R` brings the oldest one in flight back, `X` resets the
    prefix cache, with all that runs."""
    throttle: bool
    """Whether prompts are held back by the cadence, all the while."""
    say: Answers
    """What the model says; how long it is says how many drafts are accepted."""
    drafts: Answers
    """What is drafted, where there is a drafter."""
    obeys: bool
    """Whether the model keeps to the grammars."""
    knows: bool
    """Whether drafts of steps in flight become known."""


@functools.cache
def plays() -> st.SearchStrategy[Play]:
    """Draw some steps: one after the other, or with several in flight."""
    pattern = st.sampled_from(["SR", "SSR", "SSR", "SRSSR", "SRSSR", "SSRR", "SRR", "SSSS", "RRR", "S"])
    return st.builds(
        Play,
        moves=st.builds(mul, pattern, st.sampled_from([1, 2, 4])),
        throttle=st.sampled_from([False, False, False, True]),
        say=answers(),
        drafts=st.lists(DRAFTS, min_size=1, max_size=3),
        obeys=st.sampled_from([True, True, False]),
        knows=st.booleans(),
    )


@functools.cache
def ways_in() -> st.SearchStrategy[Play]:
    """Draw some steps in which a request that has just come gets in, and begins."""
    return st.builds(
        Play,
        moves=st.sampled_from(["SR", "SR", "SRSR"]),
        throttle=st.just(value=False),
        say=st.sampled_from([[(PLAIN,)], [(OTHER,), (PLAIN,)]]),
        drafts=st.lists(DRAFTS, min_size=1, max_size=2),
        obeys=st.just(value=True),
        knows=st.booleans(),
    )


@functools.cache
def floods() -> st.SearchStrategy[Play]:
    """Draw some steps that are in flight together, with a reset of what runs among them."""
    moves = st.builds(
        lambda before, behind: "S" * before + "X" + "S" * behind + "R" * (before + behind),
        st.sampled_from([1, 1, 2]),
        st.integers(2, 4),
    )
    return st.builds(
        Play,
        moves=moves,
        throttle=st.just(value=False),
        say=answers(),
        drafts=st.lists(DRAFTS, min_size=1, max_size=2),
        obeys=st.just(value=True),
        knows=st.booleans(),
    )


DRAFTS = st.sampled_from(
    [(PLAIN, OTHER, PLAIN), (OTHER,), (), (PLAIN, PLAIN), (EOS, OTHER), (PLAIN, -1, -1), (OTHER, STOP)]
)
"""What a drafter says for one request."""
