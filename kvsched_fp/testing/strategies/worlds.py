"""Strategies: small worlds in which much happens.

A pool has 3 to 15 usable blocks of 1 to 4 tokens per group, so that a handful of requests fight for it.
Most worlds are of a kind (`kinds`) in which one sort of thing happens often.
"""

from collections.abc import Collection
from typing import Any

import attrs
from hypothesis import strategies as st

from kvsched_fp.config import RunnerType, SchedulerConfig, SchedulingPolicy
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.request import LoRA, Request, SamplingParams
from kvsched_fp.testing.features import EVERYTHING, Feature, features_named, restrict
from kvsched_fp.testing.strategies.kinds import (
    CONFIGS,
    MOST_IN_FLIGHT,
    Kind,
    fit_besides,
    fit_config,
    fit_wish,
    kinds,
)
from kvsched_fp.testing.strategies.themes import Besides, engines, make_room
from kvsched_fp.testing.strategies.wishes import TEXTS, GrammarWish, Wish


@attrs.frozen
class World:
    """What stays the same in one run."""

    kind: Kind
    """What happens often."""
    config: SchedulerConfig
    """Of the scheduler."""
    longest_prompt: int
    """The longest prompt that always ends, in tokens."""
    besides: Besides
    """What the engine does besides."""
    allowed: frozenset[Feature] = EVERYTHING
    """What the scheduler supports."""
    max_in_flight: int = 4
    """The most steps in flight."""

    def make_request(self, number: int, wish: Wish) -> Request:
        """Make the how many-th request of a wish."""
        wish = fit_wish(self.kind, number, wish)
        fields, params = self._restrict_fields(wish.fields), self._restrict_params(wish.params)
        max_tokens = max(wish.max_tokens, params.get("min_tokens", 0))
        if self.config.runner_type is RunnerType.POOLING:
            max_tokens, params = 1, {}
        elif self._goes_on_often(wish, params):
            max_tokens = min(max_tokens, 3)
        num_tokens = int(wish.share * self.longest_prompt)
        if wish.whole_blocks or self.kind is Kind.SHARING:
            num_tokens -= num_tokens % self.config.block_size
            # Where decodes are padded, so is a prompt of which all but one token can be cached.
            num_tokens += num_tokens < self.longest_prompt and self.config.num_spec_tokens > 0
        return Request(
            request_id=RequestId(f"r{number}"),
            prompt_token_ids=TEXTS[wish.text][: max(num_tokens, 1)],
            sampling_params=SamplingParams(max_tokens=max_tokens, **params),
            **self._extras(wish),
            **fields,
        )

    def _goes_on_often(self, wish: Wish, params: dict[str, Any]) -> bool:
        """Tell whether a request is a session that is to answer shortly each time."""
        is_session = self.besides.sessions and wish.resumable
        return is_session and "min_tokens" not in params and self.kind is not Kind.TALK

    def _restrict_fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Leave out what the scheduler does not support; the policy FCFS ignores priorities."""
        left_out = {
            "client_index": Feature.SEVERAL_CLIENTS,
            "cache_salt": Feature.PREFIX_CACHING,
            "priority": Feature.PRIORITY,
        }
        return {
            name: value for name, value in fields.items() if left_out.get(name) in {None, *self.allowed}
        }

    def _restrict_params(self, params: dict[str, Any]) -> dict[str, Any]:
        needed = Feature.PREFIX_CACHING if "skip_reading_prefix_cache" in params else Feature.STOPPING
        return params if needed in self.allowed else {}

    def _extras(self, wish: Wish) -> dict[str, Any]:
        """Give the fields that only an engine with features looks at."""
        extras: dict[str, Any] = {"pooling": self.config.runner_type is RunnerType.POOLING}
        if self.config.max_loras is not None and wish.adapter:
            extras["lora"] = LoRA(f"adapter {wish.adapter}", wish.adapter, f"adapters/{wish.adapter}")
        if self.besides.sessions:
            extras["resumable"] = wish.resumable
        if self.besides.grammars:
            extras["needs_grammar"] = wish.grammar is not GrammarWish.NONE
        if self.config.runner_type is RunnerType.DIFFUSION:
            extras |= wish.canvas
        return extras


def worlds(allowed: Collection[Feature | str] = EVERYTHING) -> st.SearchStrategy[World]:
    """Draw a world under which every request ends, if the scheduler goes on for long enough.

    It keeps to the features that are allowed. The pool holds one request of max_model_len. And a prompt of
    exactly max_model_len is drawn only where nothing can cut it: the reference keeps a position for the
    sampled token of every running request, and never computes the last token of such a prompt once a chunk
    of it has run. Raises `InvalidConfig` for features that are none.
    """
    return _worlds(features_named(allowed))


@st.composite
def _worlds(draw: st.DrawFn, allowed: frozenset[Feature], *, is_opened: bool = False) -> World:
    besides = draw(engines(allowed))
    kind = draw(kinds(besides, allowed, is_opened=is_opened))
    besides = fit_besides(kind, besides)
    values: dict[str, Any] = {**draw(_FREE), **draw(CONFIGS[kind]), **besides.config}
    fit_config(kind, values)
    restrict(values, allowed)
    max_model_len = (values["num_blocks"] - 1) * values["block_size"]
    if not values["enable_chunked_prefill"]:
        # Half a pool, so that the budget, which is as long, is used up before the pool is.
        max_model_len = max(min(max_model_len // 2, 16), 2)
        values["max_num_batched_tokens"] = max_model_len
    elif values["max_num_batched_tokens"] < values["max_num_seqs"]:
        values["max_num_scheduled_tokens"] = values["max_num_batched_tokens"]
    # Rows need a position each.
    values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], values["max_num_seqs"])
    values["long_prefill_token_threshold"] = min(values["long_prefill_token_threshold"], max_model_len)
    make_room(values, max_model_len)
    can_be_cut = (
        values["enable_chunked_prefill"]
        or values["long_prefill_token_threshold"] > 0
        or values["runner_type"] is RunnerType.ENCODER_ONLY
    )
    needs_room = values["runner_type"] is RunnerType.DIFFUSION  # for a canvas
    if Feature.SEVERAL_GROUPS in allowed:
        _split_into_groups(values, draw(st.sampled_from([1, 1, 1, 2])))
    restrict(values, allowed)
    return World(
        kind=kind,
        config=SchedulerConfig(max_model_len=max_model_len, **values),
        longest_prompt=max_model_len - (can_be_cut or needs_room),
        besides=besides,
        allowed=allowed,
    )


def rough_worlds(allowed: Collection[Feature | str] = EVERYTHING) -> st.SearchStrategy[World]:
    """Draw a world in which some requests may never end, and the number of steps in flight differs.

    It is for the kit's machine, which plays how a world of its kind opens.
    Raises `InvalidConfig` for features that are none.
    """
    return _rough_worlds(features_named(allowed))


@st.composite
def _rough_worlds(draw: st.DrawFn, allowed: frozenset[Feature]) -> World:
    world = draw(_worlds(allowed, is_opened=True))
    config = world.config
    num_stages = config.pipeline_parallel_size + int(config.async_scheduling)
    more = st.sampled_from([1, 1, 2, 4]) if Feature.STEPS_IN_FLIGHT in allowed else st.just(1)
    if world.kind is Kind.FLOOD:
        more = st.just(MOST_IN_FLIGHT)
    is_long = draw(st.sampled_from([False, False, False, True]))
    needs_room = config.runner_type is RunnerType.DIFFUSION
    return attrs.evolve(
        world,
        max_in_flight=max(num_stages, draw(more)),
        longest_prompt=config.max_model_len if is_long and not needs_room else world.longest_prompt,
    )


def configs(allowed: Collection[Feature | str] = EVERYTHING) -> st.SearchStrategy[SchedulerConfig]:
    """Draw the configuration of a world. Raises `InvalidConfig` for features that are none."""
    return worlds(allowed).map(lambda world: world.config)


def _split_into_groups(values: dict[str, Any], num_groups: int) -> None:
    """Have several groups, each with a pool's worth of blocks."""
    if num_groups > 1:
        values["kv_cache_groups"] = (FullAttentionSpec(block_size=values["block_size"]),) * num_groups
        values["num_blocks"] = 1 + (values["num_blocks"] - 1) * num_groups


_FREE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(4, 12),
        "block_size": st.integers(1, 4),
        "max_num_batched_tokens": st.integers(2, 16),
        "max_num_seqs": st.sampled_from([4, 4, 3, 2]),
        "max_num_active_seqs": st.sampled_from([None, None, 1, 2]),
        "policy": st.sampled_from(SchedulingPolicy),
        "enable_chunked_prefill": st.sampled_from([True, True, False]),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 2, 3]),
        "long_prefill_token_threshold_adaptive": st.booleans(),
        "enable_prefix_caching": st.sampled_from([True, True, False]),
        "scheduler_reserve_full_isl": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.0, 0.1, 0.3]),
        "prefill_schedule_interval": st.sampled_from([1, 1, 2, 3]),
        "use_v2_model_runner": st.booleans(),
        "num_lookahead_tokens": st.sampled_from([0, 0, 0, 1]),
        "needs_kv_cache_zeroing": st.booleans(),
        "enable_kv_cache_events": st.booleans(),
        "include_finished_set": st.booleans(),
        "log_stats": st.booleans(),
    }
)
