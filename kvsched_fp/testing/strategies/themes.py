"""Strategies: what the engine of a world does besides, and settings under which every request still ends.

A world has one theme, so that what the theme is about happens often, and now and then something else with
it. Half of the worlds have none.
"""

import enum
from typing import Any

import attrs
from hypothesis import strategies as st

from kvsched_fp.config import RunnerType, SpecDecodeMetricsLevel
from kvsched_fp.testing.features import EVERYTHING, Feature, restrict


class Theme(enum.Enum):
    """What the engine does besides."""

    NOTHING = "nothing"
    """Nothing."""
    AHEAD = "ahead"
    """It plans steps while others run."""
    DRAFTS = "drafts"
    """It verifies drafts that come between the steps."""
    DRAFTS_AHEAD = "drafts ahead"
    """It does both: drafts are known to the worker only, or replaced in flight."""
    PIPELINE = "pipeline"
    """The model runs in stages."""
    PIPELINE_AHEAD = "pipeline ahead"
    """It does so, and steps are planned ahead."""
    SESSIONS = "sessions"
    """Input comes in chunks."""
    GRAMMARS = "grammars"
    """Output has to follow a grammar."""
    POOLING = "pooling"
    """Requests want one pooled output."""
    ENCODING = "encoding"
    """It only computes prompts."""
    DIFFUSION = "diffusion"
    """It denoises canvases."""
    DIFFUSION_AHEAD = "diffusion ahead"
    """It plans steps of canvases that are not back."""


_THEMES = (
    *(Theme.NOTHING,) * 7,
    *(Theme.DRAFTS, Theme.DRAFTS, Theme.DRAFTS, Theme.DRAFTS),
    *(Theme.DRAFTS_AHEAD, Theme.DRAFTS_AHEAD),
    *(Theme.AHEAD, Theme.PIPELINE, Theme.PIPELINE_AHEAD, Theme.PIPELINE_AHEAD),
    *(Theme.SESSIONS, Theme.SESSIONS, Theme.SESSIONS, Theme.GRAMMARS),
    *(Theme.POOLING, Theme.ENCODING, Theme.DIFFUSION, Theme.DIFFUSION_AHEAD),
)
"""The ones that need more luck come more often."""

_NEEDS: dict[Theme, frozenset[Feature]] = {
    Theme.NOTHING: frozenset(),
    Theme.AHEAD: frozenset({Feature.ASYNC}),
    Theme.DRAFTS: frozenset({Feature.DRAFTS}),
    Theme.DRAFTS_AHEAD: frozenset({Feature.DRAFTS, Feature.ASYNC}),
    Theme.PIPELINE: frozenset({Feature.PIPELINE}),
    Theme.PIPELINE_AHEAD: frozenset({Feature.PIPELINE, Feature.ASYNC}),
    Theme.SESSIONS: frozenset({Feature.SESSIONS}),
    Theme.GRAMMARS: frozenset({Feature.GRAMMARS}),
    Theme.POOLING: frozenset({Feature.POOLING}),
    Theme.ENCODING: frozenset({Feature.ENCODER_ONLY}),
    Theme.DIFFUSION: frozenset({Feature.DIFFUSION}),
    Theme.DIFFUSION_AHEAD: frozenset({Feature.DIFFUSION, Feature.ASYNC}),
}
"""What a scheduler has to support for a theme."""

_DRAFTING = {Theme.DRAFTS, Theme.DRAFTS_AHEAD}
_GOING_AHEAD = {Theme.AHEAD, Theme.DRAFTS_AHEAD, Theme.PIPELINE_AHEAD, Theme.DIFFUSION_AHEAD}
_IN_STAGES = {Theme.PIPELINE, Theme.PIPELINE_AHEAD}
_OTHER_MODELS = {
    Theme.POOLING: RunnerType.POOLING,
    Theme.ENCODING: RunnerType.ENCODER_ONLY,
    Theme.DIFFUSION: RunnerType.DIFFUSION,
    Theme.DIFFUSION_AHEAD: RunnerType.DIFFUSION,
}


@attrs.frozen
class Besides:
    """What the engine of a world does besides."""

    config: dict[str, Any]
    """Fields of the configuration."""
    grammars: bool
    """Whether some requests need a grammar."""
    sessions: bool
    """Whether some requests are sessions."""


@st.composite
def engines(draw: st.DrawFn, allowed: frozenset[Feature] = EVERYTHING) -> Besides:
    """Draw a theme, and now and then something that goes with it."""
    theme = draw(st.sampled_from([theme for theme in _THEMES if _NEEDS[theme] <= allowed]))
    besides = st.just(value=False) if theme is Theme.NOTHING else st.sampled_from([False] * 5 + [True])
    samples = theme not in _OTHER_MODELS
    config: dict[str, Any] = {
        "runner_type": _OTHER_MODELS.get(theme, RunnerType.GENERATE),
        "async_scheduling": theme in _GOING_AHEAD or (theme not in _IN_STAGES and draw(besides)),
        "log_request_events": draw(st.booleans()),
        "data_parallel_size": draw(st.sampled_from([1, 1, 2])),
        "max_loras": draw(st.sampled_from([None, None, None, 1, 2])),
    }
    if theme in _IN_STAGES or draw(besides):
        config["pipeline_parallel_size"] = draw(st.sampled_from([2, 3]))
    if theme in _DRAFTING or (samples and draw(besides)):
        config |= draw(_DRAFTERS)
    if config["runner_type"] is RunnerType.DIFFUSION:
        config["num_spec_tokens"] = draw(st.integers(1, 3))
    grammars = theme is Theme.GRAMMARS or (samples and draw(besides))
    sessions = theme is Theme.SESSIONS or (samples and draw(besides))
    restrict(config, allowed)
    return Besides(
        config=config,
        grammars=grammars and Feature.GRAMMARS in allowed,
        sessions=sessions and Feature.SESSIONS in allowed,
    )


_METRICS = st.sampled_from(SpecDecodeMetricsLevel)

_PLAIN = st.fixed_dictionaries(
    {
        "num_spec_tokens": st.integers(1, 3),
        "num_lookahead_tokens": st.sampled_from([0, 2]),
        "spec_decode_metrics": _METRICS,
    }
)

_READING_AHEAD = st.fixed_dictionaries(
    {
        "num_spec_tokens": st.integers(1, 3),
        "num_lookahead_tokens": st.sampled_from([2, 3]),
        "max_num_new_slots_for_drafting": st.sampled_from([0, 1, 2]),
        "num_prefill_lookahead_tokens": st.sampled_from([3, 2, 0]),
        "num_hash_lookahead_tokens": st.sampled_from([1, 2, 0]),
        # Pieces of prompt that come close to its end.
        "max_num_batched_tokens": st.integers(4, 7),
        "enable_chunked_prefill": st.just(value=True),
        "spec_decode_metrics": _METRICS,
    }
)

_BY_BATCH_SIZE = st.fixed_dictionaries(
    {
        "num_spec_tokens": st.integers(1, 3),
        "num_spec_tokens_per_batch_size": st.sampled_from([((1, 1, 2), (2, 9, 0)), ((1, 2, 1),)]),
        "num_lookahead_tokens": st.just(2),
        "drop_eagle_block": st.just(value=True),
        "enable_prefix_caching": st.just(value=True),
    }
)

_EAGLE = st.fixed_dictionaries(
    {
        "num_spec_tokens": st.integers(1, 2),
        "num_lookahead_tokens": st.just(2),
        "drop_eagle_block": st.just(value=True),
        "enable_prefix_caching": st.just(value=True),
        "num_prefill_lookahead_tokens": st.sampled_from([0, 1]),
    }
)

_DRAFTERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    _PLAIN, _READING_AHEAD, _READING_AHEAD, _BY_BATCH_SIZE, _EAGLE
)
"""The ones that need more luck come more often."""


def make_room(values: dict[str, Any], max_model_len: int) -> None:
    """Make the budgets so large that a request that is alone always gets on.

    A row costs positions for the drafter, a decode is padded to a uniform size, and a prompt does not end
    where the drafter reads: what is smaller than that waits for ever.
    """
    num_spec_tokens = values.get("num_spec_tokens", 0)
    num_slots = values.get("max_num_new_slots_for_drafting", 0)
    num_tokens = max(1 + num_spec_tokens, values.get("num_prefill_lookahead_tokens", 0))
    if not values["enable_chunked_prefill"]:
        num_tokens = max(num_tokens, max_model_len)
    values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], num_tokens + num_slots)
    if "max_num_scheduled_tokens" in values:
        values["max_num_scheduled_tokens"] = max(values["max_num_scheduled_tokens"], num_tokens)
    threshold = values["long_prefill_token_threshold"]
    if threshold:
        least = max(num_spec_tokens + 1, values.get("num_prefill_lookahead_tokens", 0))
        values["long_prefill_token_threshold"] = max(threshold, least) if least <= max_model_len else 0
