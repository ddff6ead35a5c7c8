"""The frozen configuration of a scheduler: fields, limits, cross-field checks and presets.

Upstream: `config/scheduler.py::SchedulerConfig`, `config/cache.py::CacheConfig`,
`config/speculative.py::SpeculativeConfig`, `config/parallel.py::ParallelConfig`,
`config/lora.py::LoRAConfig` and the arguments of `v1/core/kv_cache_manager.py::KVCacheManager`, flattened
to what decides a step.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, cast

import attrs

from kvsched_fp.errors import InvalidConfig
from kvsched_fp.kvcache.groups import GroupSpec
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.hashing import Blake2BlockHasher, BlockHasher

E = TypeVar("E", bound=enum.Enum)


class SchedulingPolicy(enum.Enum):
    """In which order requests are served."""

    FCFS = "fcfs"
    """In order of arrival at the scheduler; a preempted request goes to the front."""
    PRIORITY = "priority"
    """By (priority, arrival time, request id), smaller first."""


class RunnerType(enum.Enum):
    """What the model gives back."""

    GENERATE = "generate"
    """Sampled tokens."""
    POOLING = "pooling"
    """One pooled output per request, once its prompt is computed."""
    ENCODER_ONLY = "encoder_only"
    """Nothing: an encoder instance publishes its embeddings elsewhere; a request ends with its prompt."""
    DIFFUSION = "diffusion"
    """Canvases of tokens, each denoised over some steps; no token is sampled behind them."""


class SpecDecodeMetricsLevel(enum.Enum):
    """How much is kept about the drafts of each request."""

    NONE = "none"
    """Nothing."""
    SUMMARY = "summary"
    """How often how many were accepted."""
    DETAILED = "detailed"
    """That, and every verification in order."""


class Quirk(enum.Enum):
    """A place where the reference is wrong: a deviation of `specs/fidelity.md` that has a switch."""

    ALLOWS_TOO_SMALL_STEPS = "allows_too_small_steps"
    """D-04: steps may be too small for what a request computes at once, which then waits for ever. Without:
    such a configuration is refused."""
    CHARGES_REUSED_ID = "charges_reused_id"
    """D-05: an id may be used again while a step of its first request is in flight; the late result is then
    charged to the new request. Without: such a request is refused."""
    LEAVES_LAST_PROMPT_TOKEN = "leaves_last_prompt_token"
    """D-06: the last token of a prompt of `max_model_len` tokens that came in pieces is never computed.
    Without: it is, in a step of its own or with those that the drafter reads."""
    PREEMPTS_IN_VAIN = "preempts_in_vain"
    """D-07: victims are preempted before it is known whether all of them suffice. Without: where they do
    not, nobody is, and the request waits, unless one that waits with blocks in hand would wait for it."""
    OLDEST_OF_EQUALS_GIVES_WAY = "oldest_of_equals_gives_way"
    """D-10: of requests that are equal by priority and arrival, the one that has run longest is the victim.
    Without: the one that has run shortest."""
    OUTGROWS_MODEL_LEN = "outgrows_model_len"
    """D-11: a session may grow beyond `max_model_len`. Without: input is refused that may not fit when the
    session comes to it."""
    DRAFTS_BEHIND_UNKNOWN_TOKEN = "drafts_behind_unknown_token"
    """D-14: without asynchronous scheduling, drafts are taken for a request that has a step in flight, or
    waits. Without: they are thrown away."""
    KEEPS_BLOCKS_WHILE_WAITING = "keeps_blocks_while_waiting"
    """D-16: sessions that wait with blocks in hand keep them, and may lack each other's. Without: where
    nobody runs and the first of them in line does not fit, the last gives its blocks back."""


ALL_QUIRKS = tuple(Quirk)
"""Exactly as the reference."""


def _freeze_quirks(value: Iterable[Quirk | str]) -> tuple[Quirk, ...]:
    """Put quirks, or their values, in the order of the enumeration, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidConfig("quirks", value, f"a list of {_one_of(Quirk)}")
    chosen = {_as_member("quirks", Quirk, item) for item in value}
    return tuple(quirk for quirk in Quirk if quirk in chosen)


def _policy(value: object) -> SchedulingPolicy:
    return _as_member("policy", SchedulingPolicy, value)


def _runner_type(value: object) -> RunnerType:
    return _as_member("runner_type", RunnerType, value)


def _metrics_level(value: object) -> SpecDecodeMetricsLevel:
    return _as_member("spec_decode_metrics", SpecDecodeMetricsLevel, value)


def _as_member(name: str, kind: type[E], value: object) -> E:
    """Take a member of `kind`, or its value."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidConfig(name, value, _one_of(kind)) from None


def _freeze_groups(groups: Iterable[GroupSpec]) -> tuple[GroupSpec, ...]:
    frozen = tuple(groups) if isinstance(groups, Iterable) else (groups,)
    for index, group in enumerate(frozen):
        if not isinstance(group, GroupSpec):
            raise InvalidConfig(
                f"kv_cache_groups[{index}]", group, "a kind of group, like FullAttentionSpec"
            )
    return frozen


def _freeze_schedule(
    schedule: Iterable[Iterable[int]] | None,
) -> tuple[tuple[int, int, int], ...] | None:
    name = "num_spec_tokens_per_batch_size"
    allowed = "triples (first batch size, last batch size, drafts); the first from 1, none overlapping"
    if schedule is None:
        return None
    try:
        ranges = sorted(tuple(entry) for entry in schedule)
    except TypeError:
        raise InvalidConfig(name, schedule, allowed) from None
    if not ranges:
        raise InvalidConfig(name, schedule, allowed)
    previous_end = 0
    for entry in ranges:
        if len(entry) != 3 or not all(type(number) is int for number in entry):
            raise InvalidConfig(name, entry, allowed)
        first, last, num_drafts = entry
        if not previous_end < first <= last or num_drafts < 0 or (previous_end == 0 and first != 1):
            raise InvalidConfig(name, entry, allowed)
        previous_end = last
    return cast("tuple[tuple[int, int, int], ...]", tuple(ranges))


def _one_of(kind: type[enum.Enum]) -> str:
    return " or ".join(repr(member.value) for member in kind)


@attrs.frozen(kw_only=True)
class SchedulerConfig:
    """Everything about a scheduler that never changes. Shared by all its states."""

    # What the model runner can take.
    max_model_len: int = 8192
    """The most tokens of one request, prompt and output."""
    max_num_seqs: int = 128
    """The most running requests (the model runner's rows)."""
    max_num_active_seqs: int | None = None
    """The most requests admitted to run, at most `max_num_seqs`; None means `max_num_seqs`."""
    max_num_batched_tokens: int = 2048
    """The input budget of a step, in tokens; at least `max_num_seqs`."""
    max_num_scheduled_tokens: int | None = None
    """The token budget of a step; None means `max_num_batched_tokens`."""
    use_v2_model_runner: bool = True
    """Which shape the output has: V2 sends resumed requests as new ones, with their tokens."""

    # How requests share a step.
    policy: SchedulingPolicy = attrs.field(default=SchedulingPolicy.FCFS, converter=_policy)
    """The order of service."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be computed in pieces."""
    long_prefill_token_threshold: int = 0
    """The most tokens of one request in a step while others are there, at most `max_model_len`; 0 for no
    limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """Never let that threshold cut below an even share of the input budget."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only if all its known tokens fit, not only the first chunk."""
    watermark: float = 0.0
    """The share of all blocks to keep free when admitting while others run; 0.0 to below 1.0."""
    prefill_schedule_interval: int = 1
    """Compute prompts only every so many steps while something decodes."""

    # The KV cache.
    num_blocks: int = 1000
    """Blocks in the pool, the null block included."""
    block_size: int = 16
    """Tokens per block, for hashing and for every group."""
    kv_cache_groups: tuple[GroupSpec, ...] = attrs.field(
        default=attrs.Factory(
            lambda self: (FullAttentionSpec(block_size=self.block_size),), takes_self=True
        ),
        converter=_freeze_groups,
    )
    """The groups of layers, each with a block table per request."""
    enable_prefix_caching: bool = True
    """Whether full blocks are kept for later requests with the same prefix."""
    num_lookahead_tokens: int = 0
    """Slots behind the computed tokens that a drafter needs, in tokens."""
    needs_kv_cache_zeroing: bool = False
    """Whether the output lists new blocks for the worker to zero."""
    block_hasher: BlockHasher = Blake2BlockHasher()
    """How blocks are named."""
    enable_kv_cache_events: bool = False
    """Whether stored, removed and cleared blocks are reported."""
    allow_undersized_pool: bool = False
    """Accept a pool that cannot hold one request of `max_model_len`.

    The reference's engine refuses it at start; its scheduler class does not look.
    """

    # What is told to whom.
    include_finished_set: bool = False
    """Whether each client also gets the ids that finished (several engines behind one front end)."""
    log_stats: bool = True
    """Whether statistics are kept and emitted."""
    log_request_events: bool = False
    """Whether it is kept and told when a request was queued, scheduled and preempted. The reference does so
    with `log_stats`."""

    # What kind of model runs.
    runner_type: RunnerType = attrs.field(default=RunnerType.GENERATE, converter=_runner_type)
    """What it gives back."""
    max_loras: int | None = None
    """The most LoRA adapters among the running requests; None where there are no adapters."""

    # Steps that overlap.
    async_scheduling: bool = False
    """Whether a step is planned while the one before still runs: what that will sample is counted as
    placeholders."""
    pipeline_parallel_size: int = 1
    """Stages of the pipeline."""
    data_parallel_size: int = 1
    """Ranks that hold prompts back together; with more than one, each is told when
    (`throttle_prefills`)."""
    requires_kv_delivery: bool = False
    """Whether a connector has to hand on the blocks behind every output, so that none may come from a step
    that was preempted. Connectors themselves are not modelled."""

    # Speculative decoding.
    num_spec_tokens: int = 0
    """The most drafts per request and step; with `DIFFUSION`, the tokens of a canvas."""
    num_spec_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None = attrs.field(
        default=None, converter=_freeze_schedule
    )
    """Fewer drafts for larger batches: triples (first batch size, last batch size, drafts); None for no
    such limit."""
    max_num_new_slots_for_drafting: int = 0
    """Input positions that the drafter needs per request, beyond the scheduled tokens."""
    num_prefill_lookahead_tokens: int = 0
    """Known tokens behind a piece of prompt that the drafter reads."""
    num_hash_lookahead_tokens: int = 0
    """Tokens behind a block that its hash covers."""
    drop_eagle_block: bool = False
    """Whether a hit gives up its last block, because the drafter needs what was computed there."""
    spec_decode_metrics: SpecDecodeMetricsLevel = attrs.field(
        default=SpecDecodeMetricsLevel.NONE, converter=_metrics_level
    )
    """How much is kept about the drafts of each request."""

    # How exactly the reference is followed.
    quirks: tuple[Quirk, ...] = attrs.field(default=ALL_QUIRKS, converter=_freeze_quirks)
    """The set of the reference's quirks that are followed; by default all of them."""

    def __attrs_post_init__(self) -> None:
        _check_types(self)
        _check_limits(self)
        _check_cross_fields(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build a configuration from plain values, as read from a file.

        Raises `InvalidConfig` for a key that is not a field, or a value that is not allowed.
        """
        if not isinstance(values, Mapping):
            raise InvalidConfig("config", values, "a mapping from field to value")
        known = [field.name for field in attrs.fields(cls)]
        for key in values:
            if key not in known:
                raise InvalidConfig(f"config key {key!r}", values[key], f"one of {', '.join(known)}")
        return cls(**values)

    @property
    def token_budget(self) -> int:
        """Tokens that one step may compute."""
        if self.max_num_scheduled_tokens is None:
            return self.max_num_batched_tokens
        return self.max_num_scheduled_tokens

    @property
    def num_draft_slots(self) -> int:
        """Input positions that a row costs beyond its tokens."""
        return self.max_num_new_slots_for_drafting if self.num_spec_tokens else 0

    @property
    def max_num_active(self) -> int:
        """Requests that may be admitted to run."""
        return self.max_num_seqs if self.max_num_active_seqs is None else self.max_num_active_seqs

    @property
    def num_sampled_tokens_per_step(self) -> int:
        """Tokens that a finished prompt or a decode samples, drafts not counted."""
        return int(self.runner_type in (RunnerType.GENERATE, RunnerType.ENCODER_ONLY))

    @property
    def can_skip_drafts(self) -> bool:
        """Whether the runner may be told that nobody can use the next drafts."""
        return self.num_spec_tokens > 0 and self.num_lookahead_tokens > 0 and self.use_v2_model_runner

    @property
    def local_prefill_interval(self) -> int:
        """The cadence that this scheduler keeps by itself."""
        return self.prefill_schedule_interval if self.data_parallel_size == 1 else 1

    @property
    def num_reprefillable_tokens(self) -> int:
        """Tokens at the end that the drafter may compute again, so that they are not cached yet.

        With several groups, the reference only looks at those that give up a block.
        """
        if len(self.kv_cache_groups) > 1 and not self.drop_eagle_block:
            return 0
        return max(0, self.num_prefill_lookahead_tokens - 1)

    def num_drafts_for(self, batch_size: int) -> int:
        """Give the drafts per request after a step with `batch_size` requests."""
        schedule = self.num_spec_tokens_per_batch_size
        if schedule is None or batch_size == 0:
            return self.num_spec_tokens
        # Between two ranges, and behind the last one, the range before goes on.
        reached = [num_drafts for first, _, num_drafts in schedule if first <= batch_size]
        return min(reached[-1], self.num_spec_tokens)

    @property
    def watermark_blocks(self) -> int:
        """Blocks to keep free when admitting while others run."""
        return int(self.watermark * self.num_blocks)


_INTEGERS: dict[str, int] = {
    "max_model_len": 1,
    "max_num_seqs": 1,
    "max_num_active_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_num_scheduled_tokens": 1,
    "long_prefill_token_threshold": 0,
    "prefill_schedule_interval": 1,
    "num_blocks": 2,
    "block_size": 1,
    "num_lookahead_tokens": 0,
    "max_loras": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "num_spec_tokens": 0,
    "max_num_new_slots_for_drafting": 0,
    "num_prefill_lookahead_tokens": 0,
    "num_hash_lookahead_tokens": 0,
}
"""The integer fields and the least value of each."""

_MAY_BE_NONE = frozenset({"max_num_active_seqs", "max_num_scheduled_tokens", "max_loras"})

MAX_INTEGER = 2**40
"""More than any figure of a scheduler; a text of digits cannot make a larger one."""

MAX_NUM_GROUPS = 1024
"""More groups of layers than any model has."""

MAX_NUM_SPEC_TOKENS = 65_536
"""More drafts, or tokens of a canvas, than any model makes in a step."""

MAX_NUM_BLOCKS = 10_000_000
"""More blocks than any memory has; the pool's columns then take some 200 MB."""


def _check_types(config: SchedulerConfig) -> None:
    for field in attrs.fields(SchedulerConfig):
        value = getattr(config, field.name)
        if field.type is bool and type(value) is not bool:
            raise InvalidConfig(field.name, value, "true or false")
    if isinstance(config.block_hasher, type) or not isinstance(config.block_hasher, BlockHasher):
        raise InvalidConfig("block_hasher", config.block_hasher, "a value with hash_block()")


def _check_limits(config: SchedulerConfig) -> None:
    for name, least in _INTEGERS.items():
        value = getattr(config, name)
        if value is None and name in _MAY_BE_NONE:
            continue
        if type(value) is not int or not least <= value <= MAX_INTEGER:
            raise InvalidConfig(name, value, f"an integer >= {least}, at most {MAX_INTEGER}")
    if config.num_spec_tokens > MAX_NUM_SPEC_TOKENS:
        raise InvalidConfig("num_spec_tokens", config.num_spec_tokens, f"at most {MAX_NUM_SPEC_TOKENS}")
    if config.num_blocks > MAX_NUM_BLOCKS:
        raise InvalidConfig("num_blocks", config.num_blocks, f"at most {MAX_NUM_BLOCKS}")
    watermark = config.watermark
    if type(watermark) not in (int, float) or not 0.0 <= watermark < 1.0:
        raise InvalidConfig("watermark", watermark, "0.0 <= watermark < 1.0")


def _check_cross_fields(config: SchedulerConfig) -> None:
    _check_limits_of_a_step(config)
    _check_size_of_steps(config)
    _check_drafting(config)
    _check_kv_cache(config)


def _check_limits_of_a_step(config: SchedulerConfig) -> None:
    """Refuse what `SchedulerConfig.verify_max_model_len` of the reference refuses."""
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise InvalidConfig(
            "max_num_batched_tokens",
            config.max_num_batched_tokens,
            f"at least max_num_seqs = {config.max_num_seqs}",
        )
    if config.max_num_active > config.max_num_seqs:
        raise InvalidConfig(
            "max_num_active_seqs",
            config.max_num_active_seqs,
            f"at most max_num_seqs = {config.max_num_seqs}",
        )
    if config.long_prefill_token_threshold > config.max_model_len:
        raise InvalidConfig(
            "long_prefill_token_threshold",
            config.long_prefill_token_threshold,
            f"at most max_model_len = {config.max_model_len}",
        )
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < config.max_model_len:
        raise InvalidConfig(
            "max_num_batched_tokens",
            config.max_num_batched_tokens,
            f"at least max_model_len = {config.max_model_len} while enable_chunked_prefill is false",
        )


def _check_size_of_steps(config: SchedulerConfig) -> None:
    """Refuse steps in which a request has no room even alone, without the quirk that allows them (D-04)."""
    if Quirk.ALLOWS_TOO_SMALL_STEPS in config.quirks:
        return
    num_slots = config.num_draft_slots
    for num_tokens, why in _computed_at_once(config):
        if config.token_budget < num_tokens and config.max_num_scheduled_tokens is not None:
            allowed = f"at least {num_tokens}: {why}"
            raise InvalidConfig("max_num_scheduled_tokens", config.max_num_scheduled_tokens, allowed)
        if config.max_num_batched_tokens < num_tokens + num_slots:
            slots = f" + max_num_new_slots_for_drafting = {num_tokens + num_slots}" if num_slots else ""
            allowed = f"at least {num_tokens}{slots}: {why}"
            raise InvalidConfig("max_num_batched_tokens", config.max_num_batched_tokens, allowed)
    threshold, lookahead = config.long_prefill_token_threshold, config.num_prefill_lookahead_tokens
    if 0 < threshold < lookahead:
        allowed = f"0, or at least num_prefill_lookahead_tokens = {lookahead}"
        raise InvalidConfig("long_prefill_token_threshold", threshold, allowed)


def _computed_at_once(config: SchedulerConfig) -> Iterator[tuple[int, str]]:
    """Give how many tokens a request may have to compute in one step, and why."""
    if not config.enable_chunked_prefill and config.runner_type is not RunnerType.ENCODER_ONLY:
        yield config.max_model_len, "max_model_len, while enable_chunked_prefill is false"
    padded, num_sampled = 1 + config.num_spec_tokens, config.num_sampled_tokens_per_step
    # A request that is alone is padded behind at least one computed token [S-DRAFT-04].
    has_room = 1 + padded + num_sampled <= config.max_model_len
    if config.num_spec_tokens_per_batch_size is None and num_sampled > 0 and has_room:
        yield padded, "1 + num_spec_tokens, to which a decode is padded"
    lookahead = min(config.num_prefill_lookahead_tokens, config.max_model_len)
    yield lookahead, "num_prefill_lookahead_tokens, within which of its end no piece of a prompt may end"


def _check_drafting(config: SchedulerConfig) -> None:
    """Refuse what contradicts speculative decoding."""
    if config.num_spec_tokens_per_batch_size is not None and config.runner_type is RunnerType.DIFFUSION:
        raise InvalidConfig(
            "num_spec_tokens_per_batch_size",
            config.num_spec_tokens_per_batch_size,
            "none for a diffusion model, whose canvas has one size",
        )
    if 0 < config.long_prefill_token_threshold <= config.num_spec_tokens:
        raise InvalidConfig(
            "long_prefill_token_threshold",
            config.long_prefill_token_threshold,
            f"0, or more than num_spec_tokens = {config.num_spec_tokens}: a padded decode may not be cut",
        )
    if config.drop_eagle_block and config.num_hash_lookahead_tokens:
        raise InvalidConfig(
            "drop_eagle_block", True, "false with num_hash_lookahead_tokens: the hashes prove the block"
        )
    if (
        config.drop_eagle_block
        and config.enable_prefix_caching
        and config.num_prefill_lookahead_tokens > config.block_size
    ):
        raise InvalidConfig(
            "num_prefill_lookahead_tokens",
            config.num_prefill_lookahead_tokens,
            f"at most block_size = {config.block_size} with drop_eagle_block",
        )
    if config.max_num_new_slots_for_drafting >= config.max_num_batched_tokens:
        raise InvalidConfig(
            "max_num_new_slots_for_drafting",
            config.max_num_new_slots_for_drafting,
            f"less than max_num_batched_tokens = {config.max_num_batched_tokens}",
        )


def _check_kv_cache(config: SchedulerConfig) -> None:
    if not config.kv_cache_groups:
        raise InvalidConfig("kv_cache_groups", (), "at least one group")
    if len(config.kv_cache_groups) > MAX_NUM_GROUPS:
        num_groups = f"{len(config.kv_cache_groups)} groups"
        raise InvalidConfig("kv_cache_groups", num_groups, f"at most {MAX_NUM_GROUPS} groups")
    for index, group in enumerate(config.kv_cache_groups):
        if group.block_size != config.block_size:
            raise InvalidConfig(
                f"kv_cache_groups[{index}].block_size",
                group.block_size,
                f"block_size = {config.block_size}",
            )
    num_needed = sum(group.num_blocks_for(config.max_model_len) for group in config.kv_cache_groups)
    if num_needed > config.num_blocks - 1 and not config.allow_undersized_pool:
        raise InvalidConfig(
            "num_blocks",
            config.num_blocks,
            f"at least {num_needed + 1}: the null block, and {num_needed} for one request of "
            f"max_model_len = {config.max_model_len} tokens (or set allow_undersized_pool)",
        )


MINIMAL = SchedulerConfig(
    max_model_len=12,
    max_num_seqs=2,
    max_num_batched_tokens=4,
    num_blocks=7,
    block_size=2,
)
"""A world small enough to search: the same rules, tiny numbers."""

DEFAULT = SchedulerConfig()
"""The reference's defaults, with 1,000 blocks of 16 tokens."""
