"""The configuration refuses what no scheduler can run with, and says which field is wrong."""

from typing import Any

import attrs
import pytest

from kvsched_fp import DEFAULT, MINIMAL, InvalidConfig, SchedulerConfig, SchedulingPolicy
from kvsched_fp.config import MAX_NUM_BLOCKS, MAX_NUM_SPEC_TOKENS, Quirk
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from tests.unit.refusal import refused
from tests.unit.worlds import SMALL

TWO_GROUPS = (FullAttentionSpec(block_size=4), FullAttentionSpec(block_size=4))

BAD = [
    # (changes to SMALL, the field that is named, its value, a part of what is allowed)
    ({"block_size": 0}, "block_size", 0, ">= 1"),
    ({"block_size": -4}, "block_size", -4, ">= 1"),
    ({"num_blocks": 1}, "num_blocks", 1, ">= 2"),
    ({"num_blocks": 16}, "num_blocks", 16, "at least 17"),
    ({"kv_cache_groups": TWO_GROUPS, "num_blocks": 32}, "num_blocks", 32, "at least 33"),
    ({"max_model_len": 0}, "max_model_len", 0, ">= 1"),
    ({"max_num_seqs": 0}, "max_num_seqs", 0, ">= 1"),
    ({"max_num_seqs": 1.0}, "max_num_seqs", 1.0, "an integer"),
    ({"max_num_seqs": "2"}, "max_num_seqs", "2", "an integer"),
    ({"max_num_seqs": True}, "max_num_seqs", True, "an integer"),
    ({"max_num_seqs": None}, "max_num_seqs", None, "an integer"),
    ({"max_num_active_seqs": 0}, "max_num_active_seqs", 0, ">= 1"),
    ({"max_num_active_seqs": 9}, "max_num_active_seqs", 9, "at most max_num_seqs = 8"),
    ({"max_num_batched_tokens": 0}, "max_num_batched_tokens", 0, ">= 1"),
    ({"max_num_batched_tokens": 7}, "max_num_batched_tokens", 7, "at least max_num_seqs = 8"),
    ({"max_num_scheduled_tokens": 0}, "max_num_scheduled_tokens", 0, ">= 1"),
    ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold", -1, ">= 0"),
    (
        {"long_prefill_token_threshold": 65},
        "long_prefill_token_threshold",
        65,
        "at most max_model_len = 64",
    ),
    ({"prefill_schedule_interval": 0}, "prefill_schedule_interval", 0, ">= 1"),
    ({"num_lookahead_tokens": -1}, "num_lookahead_tokens", -1, ">= 0"),
    ({"watermark": 1.0}, "watermark", 1.0, "< 1.0"),
    ({"watermark": -0.1}, "watermark", -0.1, "0.0 <="),
    ({"watermark": "0.1"}, "watermark", "0.1", "< 1.0"),
    ({"watermark": True}, "watermark", True, "< 1.0"),
    ({"policy": "random"}, "policy", "random", "'fcfs' or 'priority'"),
    ({"policy": None}, "policy", None, "'fcfs' or 'priority'"),
    ({"enable_prefix_caching": 1}, "enable_prefix_caching", 1, "true or false"),
    ({"use_v2_model_runner": "yes"}, "use_v2_model_runner", "yes", "true or false"),
    ({"block_hasher": None}, "block_hasher", None, "hash_block"),
    ({"num_blocks": MAX_NUM_BLOCKS + 1}, "num_blocks", MAX_NUM_BLOCKS + 1, "at most"),
    ({"kv_cache_groups": ()}, "kv_cache_groups", (), "at least one"),
    ({"kv_cache_groups": TWO_GROUPS * 513}, "kv_cache_groups", "1026 groups", "at most 1024 groups"),
    ({"kv_cache_groups": 4}, "kv_cache_groups[0]", 4, "a kind of group"),
    ({"kv_cache_groups": [*TWO_GROUPS, "full"]}, "kv_cache_groups[2]", "full", "a kind of group"),
    (
        {"kv_cache_groups": (*TWO_GROUPS, FullAttentionSpec(block_size=8))},
        "kv_cache_groups[2].block_size",
        8,
        "block_size = 4",
    ),
    (
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 63},
        "max_num_batched_tokens",
        63,
        "at least max_model_len = 64",
    ),
    ({"runner_type": "sing"}, "runner_type", "sing", "'generate' or 'pooling' or 'encoder_only'"),
    ({"spec_decode_metrics": "all"}, "spec_decode_metrics", "all", "'none' or 'summary' or 'detailed'"),
    ({"max_loras": 0}, "max_loras", 0, ">= 1"),
    ({"max_loras": 1.0}, "max_loras", 1.0, "an integer"),
    ({"async_scheduling": 1}, "async_scheduling", 1, "true or false"),
    ({"log_request_events": None}, "log_request_events", None, "true or false"),
    ({"pipeline_parallel_size": 0}, "pipeline_parallel_size", 0, ">= 1"),
    ({"data_parallel_size": 0}, "data_parallel_size", 0, ">= 1"),
    ({"num_spec_tokens": -1}, "num_spec_tokens", -1, ">= 0"),
    ({"num_spec_tokens": MAX_NUM_SPEC_TOKENS + 1}, "num_spec_tokens", MAX_NUM_SPEC_TOKENS + 1, "at most"),
    ({"num_spec_tokens": None}, "num_spec_tokens", None, "an integer"),
    ({"num_prefill_lookahead_tokens": -1}, "num_prefill_lookahead_tokens", -1, ">= 0"),
    ({"num_hash_lookahead_tokens": -1}, "num_hash_lookahead_tokens", -1, ">= 0"),
    ({"max_num_new_slots_for_drafting": -1}, "max_num_new_slots_for_drafting", -1, ">= 0"),
    (
        {"max_num_new_slots_for_drafting": 64},
        "max_num_new_slots_for_drafting",
        64,
        "less than max_num_batched_tokens = 64",
    ),
    (
        {"num_spec_tokens": 4, "long_prefill_token_threshold": 4},
        "long_prefill_token_threshold",
        4,
        "more than num_spec_tokens = 4",
    ),
    (
        {"drop_eagle_block": True, "num_hash_lookahead_tokens": 1},
        "drop_eagle_block",
        True,
        "false with num_hash_lookahead_tokens",
    ),
    (
        {"drop_eagle_block": True, "num_prefill_lookahead_tokens": 5},
        "num_prefill_lookahead_tokens",
        5,
        "at most block_size = 4",
    ),
    *[
        ({"num_spec_tokens_per_batch_size": schedule}, "num_spec_tokens_per_batch_size", value, "triples")
        for schedule, value in [
            ([], []),
            (7, 7),
            ([7], [7]),
            ([(1, 4)], (1, 4)),
            ([(2, 4, 1)], (2, 4, 1)),
            ([(1, 4, -1)], (1, 4, -1)),
            ([(4, 1, 1)], (4, 1, 1)),
            ([(1, 4, True)], (1, 4, True)),
            ([(1, 4, 2), (4, 8, 1)], (4, 8, 1)),
            ([(1, 4, 2), ("5", 8, 1)], [(1, 4, 2), ("5", 8, 1)]),
        ]
    ],
]

TOO_SMALL_STEPS: list[dict[str, Any]] = [
    {"enable_chunked_prefill": False, "max_num_scheduled_tokens": 63},
    {
        "enable_chunked_prefill": False,
        "num_spec_tokens": 1,
        "max_num_new_slots_for_drafting": 3,
        "max_num_batched_tokens": 66,
    },
    {"num_spec_tokens": 9, "max_num_scheduled_tokens": 9},
    {"num_spec_tokens": 9, "max_num_new_slots_for_drafting": 2, "max_num_batched_tokens": 11},
    {"num_prefill_lookahead_tokens": 4, "max_num_scheduled_tokens": 3},
    {"num_prefill_lookahead_tokens": 4, "long_prefill_token_threshold": 3},
]
"""In each, the last field is one too small."""


def small(**changes: Any) -> SchedulerConfig:
    """Make a configuration from plain values: `SMALL` with `changes`."""
    values = {field.name: getattr(SMALL, field.name) for field in attrs.fields(SchedulerConfig)}
    del values["kv_cache_groups"]
    return SchedulerConfig.from_mapping(values | changes)


@pytest.mark.parametrize(("changes", "field", "value", "allowed"), BAD, ids=lambda part: str(part)[:40])
def test_bad_value_is_refused(changes: dict[str, Any], field: str, value: object, allowed: str) -> None:
    """A value that is not allowed raises InvalidConfig with the field, the value and what is allowed."""
    with refused(InvalidConfig, field, value, allowed):
        small(**changes)


def test_watermark_that_is_not_a_number_is_refused() -> None:
    """NaN is in no range."""
    with pytest.raises(InvalidConfig, match="watermark: got nan"):
        small(watermark=float("nan"))


def test_unknown_key_is_refused() -> None:
    """A key that is no field is named, and the error lists the fields."""
    with refused(InvalidConfig, "config key 'speed'", 9, "max_model_len, max_num_seqs"):
        SchedulerConfig.from_mapping({"speed": 9})


@pytest.mark.parametrize("values", [None, 5, [("block_size", 4)]])
def test_what_is_no_mapping_is_refused(values: Any) -> None:
    """A file may hold anything."""
    with refused(InvalidConfig, "config", values, "a mapping from field to value"):
        SchedulerConfig.from_mapping(values)


def test_mapping_gives_the_same_as_the_constructor() -> None:
    """`from_mapping` takes the values that a file holds: a policy by its name, a group list as a list."""
    config = SchedulerConfig.from_mapping(
        {"policy": "priority", "block_size": 32, "kv_cache_groups": [FullAttentionSpec(block_size=32)]}
    )

    assert SchedulerConfig(policy=SchedulingPolicy.PRIORITY, block_size=32) == config


def test_configuration_never_changes() -> None:
    """A configuration is shared by all states, so it is frozen and has a hash."""
    config = small()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.num_blocks = 5

    assert hash(small()) == hash(config)


def test_pool_of_just_the_right_size_is_accepted() -> None:
    """The null block and the blocks of one request of `max_model_len` are enough, for all groups."""
    assert 17 == small(num_blocks=17).num_blocks
    assert 33 == small(num_blocks=33, kv_cache_groups=TWO_GROUPS).num_blocks
    assert 18 == small(num_blocks=18, max_model_len=65).num_blocks


def test_undersized_pool_is_accepted_on_demand() -> None:
    """`allow_undersized_pool` accepts a pool that the reference's engine refuses."""
    assert 2 == small(num_blocks=2, allow_undersized_pool=True).num_blocks


def test_budgets_of_a_whole_prompt_need_no_chunks() -> None:
    """Without chunked prefill, a budget of `max_model_len` is enough."""
    config = small(enable_chunked_prefill=False, max_num_scheduled_tokens=64, quirks=())

    assert 64 == config.token_budget


@pytest.mark.parametrize("values", TOO_SMALL_STEPS)
def test_steps_may_be_too_small_as_in_the_reference(values: dict[str, Any]) -> None:
    """With the quirk of D-04, which is the default, none of them is refused."""
    assert small(**values) == small(**values, quirks=Quirk)


@pytest.mark.parametrize("values", TOO_SMALL_STEPS)
def test_steps_that_are_too_small_are_refused_without_the_quirk(values: dict[str, Any]) -> None:
    """One token more is enough; the last field is the one that is named."""
    name = list(values)[-1]
    with refused(InvalidConfig, name, values[name], f"{values[name] + 1}"):
        small(**values, quirks=())

    assert small(**{**values, name: values[name] + 1}, quirks=()).quirks == ()


def test_a_decode_that_has_no_room_is_not_padded() -> None:
    """So a step may be smaller than its padding would be."""
    config = small(num_spec_tokens=6, max_num_scheduled_tokens=4, max_model_len=8, quirks=())

    assert 6 == config.num_spec_tokens


def test_a_drafter_reads_no_further_than_a_request_goes() -> None:
    """So a step of `max_model_len` tokens is enough, however far it would read."""
    config = small(num_prefill_lookahead_tokens=9, max_num_scheduled_tokens=8, max_model_len=8, quirks=())

    assert 8 == config.token_budget


def test_an_encoder_instance_takes_pieces_anyway() -> None:
    """So its steps may be smaller than its prompts, with chunked prefill or without."""
    config = small(
        enable_chunked_prefill=False, max_num_scheduled_tokens=8, runner_type="encoder_only", quirks=()
    )

    assert 8 == config.token_budget


def test_limits_of_a_step_may_just_be_reached() -> None:
    """As many tokens as rows are enough, and a threshold of `max_model_len` is not too long."""
    assert 8 == small(max_num_batched_tokens=8).max_num_seqs
    assert 64 == small(long_prefill_token_threshold=64).max_model_len


def test_token_budget_defaults_to_the_input_budget() -> None:
    """`token_budget` is `max_num_scheduled_tokens`, or `max_num_batched_tokens`."""
    assert 64 == small().token_budget
    assert 9 == small(max_num_scheduled_tokens=9).token_budget


def test_active_requests_default_to_the_rows() -> None:
    """`max_num_active` is `max_num_active_seqs`, or `max_num_seqs`."""
    assert 8 == small().max_num_active
    assert 3 == small(max_num_active_seqs=3).max_num_active


@pytest.mark.parametrize(("watermark", "num_blocks"), [(0.0, 0), (0.05, 0), (0.06, 1), (0.5, 8), (0, 0)])
def test_watermark_is_a_share_of_the_whole_pool_rounded_down(watermark: float, num_blocks: int) -> None:
    """The share is taken of all 17 blocks, the null block included, and rounded down."""
    assert num_blocks == small(watermark=watermark).watermark_blocks


def test_group_defaults_to_one_of_the_same_block_size() -> None:
    """Without groups there is one full-attention group."""
    assert (FullAttentionSpec(block_size=4),) == small().kv_cache_groups


@pytest.mark.parametrize(
    ("batch_size", "num_drafts"), [(0, 5), (1, 5), (2, 5), (3, 5), (4, 2), (7, 2), (8, 0), (99, 0)]
)
def test_drafts_go_by_the_size_of_the_batch(batch_size: int, num_drafts: int) -> None:
    """[S-OUT-06] Between two ranges, and behind the last one, the range before goes on.

    There are never more than `num_spec_tokens`. A step without rows says what it says without ranges.
    """
    ranges = [(8, 9, 0), (1, 2, 9), (4, 6, 2)]
    config = small(num_spec_tokens=5, num_spec_tokens_per_batch_size=ranges)

    assert ((1, 2, 9), (4, 6, 2), (8, 9, 0)) == config.num_spec_tokens_per_batch_size
    assert num_drafts == config.num_drafts_for(batch_size)
    assert 5 == small(num_spec_tokens=5).num_drafts_for(batch_size)


@pytest.mark.parametrize(
    ("runner_type", "num_sampled"), [("generate", 1), ("encoder_only", 1), ("pooling", 0), ("diffusion", 0)]
)
def test_kind_of_model_tells_what_a_row_samples(runner_type: str, num_sampled: int) -> None:
    """An encoder instance keeps the room for a token, though none comes."""
    assert num_sampled == small(runner_type=runner_type).num_sampled_tokens_per_step


def test_limits_of_drafting_may_just_be_reached() -> None:
    """One token of a prompt beside the drafts, one position for a token of its own, a whole block ahead."""
    assert 5 == small(num_spec_tokens=4, long_prefill_token_threshold=5).long_prefill_token_threshold
    assert 63 == small(max_num_new_slots_for_drafting=63).max_num_new_slots_for_drafting
    assert 4 == small(drop_eagle_block=True, num_prefill_lookahead_tokens=4).num_prefill_lookahead_tokens
    assert small(drop_eagle_block=True, num_prefill_lookahead_tokens=5, enable_prefix_caching=False)


@pytest.mark.parametrize(("ranks", "interval"), [(1, 3), (2, 1)])
def test_cadence_is_local_on_a_single_rank_only(ranks: int, interval: int) -> None:
    """[S-HOLD-02] Several ranks are told when to hold prompts back."""
    config = small(prefill_schedule_interval=3, data_parallel_size=ranks)

    assert interval == config.local_prefill_interval


def test_presets_can_be_run() -> None:
    """The presets pass their own checks; the minimal one holds one longest request."""
    assert 6 == sum(group.num_blocks_for(MINIMAL.max_model_len) for group in MINIMAL.kv_cache_groups)
    assert 2048 == DEFAULT.token_budget
