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
    """Some steps: a string of `S` (plan a step) and `R` (the oldest step in flight comes back)."""

    moves: str
    """What happens, in order."""
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


DRAFTS = st.sampled_from(
    [(PLAIN, OTHER, PLAIN), (OTHER,), (), (PLAIN, PLAIN), (EOS, OTHER), (PLAIN, -1, -1), (OTHER, STOP)]
)
"""What a drafter says for one request."""
