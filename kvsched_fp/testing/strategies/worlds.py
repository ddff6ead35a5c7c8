"""Strategies: small worlds in which much happens, and the requests and results that come into them.

A pool has 3 to 11 usable blocks of 1 to 4 tokens, so that a handful of requests fight for it; prompts are
cut from two texts, so that many share a prefix; results have few different tokens, so that outputs stop in
every way. Most worlds are of a kind in which one sort of thing happens often, since chance alone reaches
some situations in one run of a hundred.
"""

import enum
from operator import mul
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from kvsched_fp import RepetitionDetection, Request, SamplingParams, SchedulerConfig, SchedulingPolicy
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.request import LoRA

from .features import Features, features, make_room

EOS, STOP, PLAIN, OTHER = 3, 2, 0, 1
"""The tokens of every world. The two plain ones stop nothing, unless they repeat."""

TEXTS = ((0, 1, 1, 0, 0, 0, 1, 0) * 6, (1, 0, 0, 1, 1, 1, 0, 1) * 6)
"""Prompts are prefixes of these."""


class Kind(enum.Enum):
    """What happens often in a world."""

    ANYTHING = "anything"
    """Nothing in particular."""
    CONTEST = "contest"
    """Easy to get in: the running requests outgrow the pool."""
    RISING = "rising"
    """A contest with long outputs, in which each request is more important than the ones before it."""
    SHARING = "sharing"
    """All prompts are of one text, in whole blocks."""
    DOOR = "door"
    """It is hard to get in: reserve, watermark, whole prompts."""


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


@attrs.frozen
class World:
    """What stays the same in one run."""

    kind: Kind
    """What happens often."""
    config: SchedulerConfig
    """Of the scheduler."""
    longest_prompt: int
    """The longest prompt that always ends, in tokens."""
    features: Features
    """What the engine does besides."""

    def make_request(self, number: int, wish: Wish) -> Request:
        """Make the how many-th request of a wish."""
        share, max_tokens, fields = wish.share, wish.max_tokens, wish.fields
        if self.kind is Kind.CONTEST:
            share /= 2
        if self.kind is Kind.RISING:
            share, max_tokens, fields = share / 2, 40, {**fields, "priority": -number}
        max_tokens = max(max_tokens, wish.params.get("min_tokens", 0))
        params = wish.params
        if self.config.runner_type is RunnerType.POOLING:
            max_tokens, params = 1, {}
        if self.features.sessions and wish.resumable and "min_tokens" not in params:
            max_tokens = min(max_tokens, 3)  # so that it goes on often
        num_tokens = int(share * self.longest_prompt)
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

    def _extras(self, wish: Wish) -> dict[str, Any]:
        """Give the fields that only an engine with features looks at."""
        extras: dict[str, Any] = {"pooling": self.config.runner_type is RunnerType.POOLING}
        if self.config.max_loras is not None and wish.adapter:
            extras["lora"] = LoRA(f"adapter {wish.adapter}", wish.adapter)
        if self.features.sessions:
            extras["resumable"] = wish.resumable
        if self.features.grammars:
            extras["needs_grammar"] = wish.grammar is not GrammarWish.NONE
        if self.config.runner_type is RunnerType.DIFFUSION:
            extras |= wish.canvas
        return extras


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a configuration under which every request ends, if the scheduler goes on for long enough.

    So the pool holds one request of max_model_len. And a prompt of exactly max_model_len is drawn only
    where nothing can cut it: the reference keeps a position for the sampled token of every running request,
    and never computes the last token of such a prompt once a chunk of it has run.
    """
    besides = draw(features())
    kind = draw(st.sampled_from(_KINDS_WITH_DRAFTS if "num_spec_tokens" in besides.config else _KINDS))
    values: dict[str, Any] = {**draw(_FREE), **draw(_OF_KIND[kind]), **besides.config}
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
    return World(
        kind=kind,
        config=SchedulerConfig(max_model_len=max_model_len, **values),
        longest_prompt=max_model_len - (can_be_cut or needs_room),
        features=besides,
    )


_KINDS = (
    *(Kind.ANYTHING, Kind.CONTEST, Kind.CONTEST, Kind.RISING, Kind.RISING, Kind.RISING),
    *(Kind.SHARING, Kind.SHARING, Kind.DOOR, Kind.DOOR, Kind.DOOR),
)
"""The ones that need more luck come more often."""

_KINDS_WITH_DRAFTS = (Kind.ANYTHING, Kind.CONTEST, Kind.CONTEST, Kind.RISING, Kind.SHARING, Kind.SHARING)
"""Those in which decodes are preempted, and padded."""

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

_OF_KIND: dict[Kind, st.SearchStrategy[dict[str, Any]]] = {
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


_WAYS_TO_STOP: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {},
        {"eos_token_id": OTHER},
        {"eos_token_id": EOS, "stop_token_ids": (STOP,)},
        {"stop_token_ids": (STOP, EOS, OTHER)},
        {"repetition_detection": RepetitionDetection(max_pattern_size=2, min_count=2)},
        {"repetition_detection": RepetitionDetection(max_pattern_size=1, min_count=3), "min_tokens": 3},
        {"skip_reading_prefix_cache": True},
    ]
)


def asked() -> st.SearchStrategy[list[Wish]]:
    """Draw some requests that come together."""
    wish = st.builds(
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
    return st.lists(wish, min_size=1, max_size=3)


Answers: TypeAlias = list[tuple[int, ...]]
"""What the model says, for the sampling rows of some steps in turn."""


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


def plays() -> st.SearchStrategy[Play]:
    """Draw some steps: one after the other, or with several in flight."""
    pattern = st.sampled_from(["SR", "SSR", "SSR", "SRSSR", "SRSSR", "SSRR", "SRR", "SSSS", "RRR", "S"])
    return st.builds(
        Play,
        moves=st.builds(mul, pattern, st.sampled_from([1, 2, 4])),
        throttle=st.sampled_from([False, False, False, True]),
        say=answers(),
        drafts=st.lists(_DRAFTS, min_size=1, max_size=3),
        obeys=st.sampled_from([True, True, False]),
        knows=st.booleans(),
    )


_DRAFTS = st.sampled_from(
    [(PLAIN, OTHER, PLAIN), (OTHER,), (), (PLAIN, PLAIN), (EOS, OTHER), (PLAIN, -1, -1), (OTHER, STOP)]
)
