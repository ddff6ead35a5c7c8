"""Strategies: the requests of a small world, as far as they do not depend on it.

Prompts are cut from two texts, so that many share a prefix; there are few different tokens, so that outputs
stop in every way.
"""

import enum
import functools
from typing import Any

import attrs
from hypothesis import strategies as st

from kvsched_fp.request import RepetitionDetection

EOS, STOP, PLAIN, OTHER = 3, 2, 0, 1
"""The tokens of every world. The two plain ones stop nothing, unless they repeat."""

TEXTS = ((0, 1, 1, 0, 0, 0, 1, 0) * 6, (1, 0, 0, 1, 1, 1, 0, 1) * 6)
"""Prompts are prefixes of these."""


class GrammarWish(enum.Enum):
    """What becomes of the grammar of a request."""

    NONE = "none"
    """It needs none."""
    AT_ONCE = "at once"
    """It is there at once."""
    LATE = "late"
    """It comes some time."""
    FAILS = "fails"
    """It cannot be compiled, as is known at once."""


@attrs.frozen
class Wish:
    """A request, as far as it does not depend on the world."""

    text: int
    """Which of `TEXTS`."""
    share: float
    """The length of the prompt, as a share of the longest."""
    whole_blocks: bool
    """Cut the prompt to full blocks, so that all of it can be cached."""
    fields: dict[str, Any]
    """The other fields of the `Request`."""
    max_tokens: int
    """The longest output."""
    params: dict[str, Any]
    """The other fields of its `SamplingParams`."""
    old_id: bool
    """Use the id of a request that has ended."""
    adapter: int
    """The adapter that it needs, if there are any; 0 for none."""
    resumable: bool
    """Whether it is a session, if there are any."""
    canvas: dict[str, Any]
    """Its canvas, if the model has one."""
    grammar: GrammarWish
    """The grammar that it needs, if there are any."""


_WAYS_TO_STOP: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {},
        {"eos_token_id": OTHER},
        {"eos_token_id": EOS, "stop_token_ids": (STOP,)},
        {"stop_token_ids": (STOP, EOS, OTHER)},
        {"repetition_detection": RepetitionDetection(max_pattern_size=2, min_count=2)},
        {"repetition_detection": RepetitionDetection(max_pattern_size=1, min_count=3)},
        {"repetition_detection": RepetitionDetection(max_pattern_size=3, min_pattern_size=2)},
        # A tail that repeats before there are so many tokens; an end that does not wait for them.
        {"repetition_detection": RepetitionDetection(max_pattern_size=2), "min_tokens": 4},
        {"eos_token_id": OTHER, "stop_token_ids": (EOS,), "min_tokens": 3},
        {"skip_reading_prefix_cache": True},
    ]
)


@functools.cache
def wishes() -> st.SearchStrategy[Wish]:
    """Draw a request, as far as it does not depend on the world."""
    return st.builds(
        Wish,
        text=st.sampled_from([0, 0, 0, 1]),
        share=st.sampled_from([0.35, 0.2, 0.5, 0.7, 1.0, 0.0]),
        whole_blocks=st.booleans(),
        fields=st.fixed_dictionaries(
            {
                "priority": st.integers(0, 2),
                "arrival_time": st.sampled_from([0.0, 1.0]),
                "client_index": st.sampled_from([0, 0, 1]),
                "cache_salt": st.sampled_from([None, None, None, "salt"]),
            }
        ),
        max_tokens=st.sampled_from([20, 6, 40, 3, 1]),
        params=_WAYS_TO_STOP,
        old_id=st.sampled_from([False, False, True]),
        adapter=st.sampled_from([1, 2, 3, 0]),
        resumable=st.sampled_from([True, True, False]),
        canvas=st.fixed_dictionaries(
            {
                "canvas_length": st.sampled_from([None, 1, 2]),
                "max_denoise_steps": st.sampled_from([None, 1, 2, 3]),
            }
        ),
        grammar=st.sampled_from(GrammarWish),
    )


@functools.cache
def asked() -> st.SearchStrategy[list[Wish]]:
    """Draw some requests that come together."""
    return st.lists(wishes(), min_size=1, max_size=3)
