"""Slots for tokens: does it fit, and which blocks does it get."""

import pytest
from pyrsistent import pvector

from kvsched_fp import Progress, SchedulerConfig, add_request, finish_requests, schedule
from kvsched_fp.ids import BlockId, RequestId
from kvsched_fp.kvcache.allocation import admit_slots, append_slots
from kvsched_fp.kvcache.coordinator import OpenKVCache, make_kv_cache
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.hashing import make_block_keys
from tests.unit.worlds import (
    batch,
    make_config,
    make_request,
    make_state,
    run_step,
    run_steps,
)

A, B = map(RequestId, "ab")
TWO_GROUPS = (FullAttentionSpec(block_size=4),) * 2


def admit(
    kv: OpenKVCache, prompt: int, num_new_tokens: int, *, others_run: bool = False
) -> tuple[tuple[BlockId, ...], ...] | None:
    """Admit a request without a hit."""
    hit: tuple[tuple[BlockId, ...], ...] = ((),) * len(kv.config.kv_cache_groups)
    request = make_request("a", prompt)
    return admit_slots(kv, request, Progress(), hit, 0, num_new_tokens, others_run=others_run)


def open_kv(config: SchedulerConfig) -> OpenKVCache:
    """Open an empty cache."""
    return OpenKVCache(make_kv_cache(config), config)


@pytest.mark.parametrize(
    ("num_new_tokens", "lookahead", "max_model_len", "num_blocks"),
    [(4, 0, 64, 1), (5, 0, 64, 2), (4, 1, 64, 2), (3, 1, 64, 1), (8, 3, 64, 3), (8, 3, 8, 2), (8, 3, 9, 3)],
)
def test_need_is_computed_new_and_lookahead_tokens(
    num_new_tokens: int, lookahead: int, max_model_len: int, num_blocks: int
) -> None:
    """[K-FIT-01] Slots are cut at `max_model_len`, and rounded up to blocks."""
    kv = open_kv(make_config(num_lookahead_tokens=lookahead, max_model_len=max_model_len))

    assert (tuple(range(1, num_blocks + 1)),) == admit(kv, 8, num_new_tokens)


def test_running_request_takes_what_its_table_lacks() -> None:
    """[K-FIT-01] With 7 tokens in two blocks, the eighth needs none, the ninth one; lookahead another."""
    new_blocks = {}
    for lookahead in (0, 4):
        config = make_config(num_lookahead_tokens=lookahead)
        state, _ = run_step(make_state(config, make_request("a")))
        kv = OpenKVCache(state.kv, config)
        request, progress = state.requests[A], state.progress[A]
        new_blocks[lookahead] = [append_slots(kv, request, progress, count) for count in (1, 2)]

    assert {0: [((),), ((3,),)], 4: [((),), ((4,),)]} == new_blocks


def test_hit_on_an_idle_block_counts_as_needed() -> None:
    """[K-FIT-02] `late` hits 2 of the 6 free blocks and needs 5 new ones: 7 are more than 6.

    When `a` gives its two blocks back, it fits.
    """
    config = make_config(usable_blocks=8)
    state, _ = run_step(make_state(config, make_request("x", 9, tokens=(1,) * 8, max_tokens=1)))
    state, _ = run_step(add_request(state, make_request("a", 7)))
    state = add_request(state, make_request("late", 28, tokens=(1,) * 8))
    _, output = schedule(state)

    assert 6 == state.kv.pool.num_free_blocks
    assert [("a", 1)] == batch(output)
    assert [("late", 20)] == batch(schedule(finish_requests(state, [A]))[1])


def test_hit_on_a_block_in_use_does_not_count_as_needed() -> None:
    """[K-FIT-02] `b` hits two blocks that `a` holds, and the one that is free is enough."""
    config = make_config(usable_blocks=4, max_model_len=16)
    state, _ = run_step(make_state(config, make_request("a", 11, tokens=(1,) * 8)))
    _, output = schedule(add_request(state, make_request("b", 9, tokens=(1,) * 8)))

    assert [("a", 1), ("b", 1)] == batch(output)


@pytest.mark.parametrize(
    ("others_run", "prompt", "fits"), [(True, 48, True), (True, 49, False), (False, 64, True)]
)
def test_watermark_is_kept_free_while_anything_runs(others_run: bool, prompt: int, fits: bool) -> None:
    """[K-FIT-03] A quarter of 17 blocks is 4: at most 12 of 16 can be taken then."""
    kv = open_kv(make_config(watermark=0.25))

    assert fits == (admit(kv, prompt, prompt, others_run=others_run) is not None)


def test_running_request_may_use_the_headroom() -> None:
    """[K-FIT-03] The watermark is for admission only: `a` grows to 61 tokens, and to the last block."""
    state, _ = run_step(make_state(make_config(watermark=0.25), make_request("a", 48)))
    state = run_steps(state, 13)

    assert 0 == state.kv.pool.num_free_blocks


@pytest.mark.parametrize(
    ("reserve", "prompt", "fits"),
    [(True, 16, True), (True, 17, False), (False, 17, True), (False, 64, True)],
)
def test_all_known_tokens_must_fit_at_admission(reserve: bool, prompt: int, fits: bool) -> None:
    """[K-FIT-04] A piece is admitted if the whole prompt fits into 4 blocks, or without reserve."""
    kv = open_kv(make_config(num_blocks=5, scheduler_reserve_full_isl=reserve, allow_undersized_pool=True))
    blocks = admit(kv, prompt, 4)

    assert fits == (blocks is not None)
    assert (3 if fits else 4) == kv.pool.num_free_blocks


def test_output_counts_as_known_at_admission() -> None:
    """[K-FIT-04] A preempted request needs room for prompt and output."""
    fits = []
    for num_output in (0, 1):
        kv = open_kv(make_config(num_blocks=3, allow_undersized_pool=True))
        progress = Progress(output_token_ids=pvector([5] * num_output))
        request = make_request("a", 8)
        fits.append(admit_slots(kv, request, progress, ((),), 0, 4, others_run=False) is not None)

    assert [True, False] == fits


def test_lookahead_does_not_count_for_the_whole_sequence() -> None:
    """[K-FIT-04] 16 known tokens fit into 4 blocks, though 4 of lookahead behind them would not."""
    config = make_config(num_blocks=5, num_lookahead_tokens=4, allow_undersized_pool=True)

    assert ((1, 2),) == admit(open_kv(config), 16, 4)
    assert admit(open_kv(config), 16, 16) is None


def test_what_does_not_fit_changes_nothing() -> None:
    """[K-FIT-05] Neither a refused admission nor a refused growth leaves a trace."""
    config = make_config(usable_blocks=3, max_model_len=16, allow_undersized_pool=True)
    state, _ = run_step(make_state(config, make_request("a", 7, tokens=(1,) * 4)))
    kv = OpenKVCache(state.kv, config)
    running = append_slots(kv, state.requests[A], state.progress[A], 10)
    waiting = make_request("b", 14, tokens=(1,) * 4)
    admitted = admit_slots(kv, waiting, Progress(), ((BlockId(1),),), 4, 10, others_run=True)

    assert (None, None) == (running, admitted)
    assert state.kv == kv.close()


def test_hits_are_pinned_in_all_groups_before_any_block_is_taken() -> None:
    """[K-FIT-06] The next block to be taken is the hit of the second group; the first must not get it.

    Blocks 1 and 2 hold the first block of the prompt, for the groups 0 and 1. Block 2 is at the front of
    the free list.
    """
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=7, allow_undersized_pool=True)
    request = make_request("a", 8)
    progress = make_state(config, request).progress[A]
    kv = open_kv(config)
    kv.pool.take(6)
    for group_index, block_id in enumerate((1, 2)):
        kv.pool.cache([BlockId(block_id)], list(make_block_keys(progress.block_hashes[:1], group_index)))
    for block_id in (1, 6, 5, 4, 3, 2):
        kv.pool.release([BlockId(block_id)], enable_caching=False)
    blocks = admit_slots(kv, request, progress, ((BlockId(1),), (BlockId(2),)), 4, 4, others_run=False)
    pool = kv.close().pool

    assert ((1, 3), (2, 4)) == blocks
    assert [5, 6] == pool.free_blocks()
    assert [1] * 4 == [pool.ref_counts[block_id] for block_id in (1, 2, 3, 4)]


def test_groups_take_their_blocks_one_after_the_other() -> None:
    """Each group takes all that it lacks before the next one."""
    kv = open_kv(make_config(kv_cache_groups=TWO_GROUPS, num_blocks=33, needs_kv_cache_zeroing=True))

    assert ((1, 2), (3, 4)) == admit(kv, 8, 8)
    assert [[1, 2], [3, 4]] == [list(ids) for ids in kv.new_block_ids]


def test_growth_must_fit_for_all_groups_together() -> None:
    """[K-FIT-01] One free block is not enough for two groups that need one each, two are."""
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=6, max_model_len=8)
    state, _ = run_step(make_state(config, make_request("a", 4)))
    grown = []
    for num_taken in (2, 1):
        kv = OpenKVCache(state.kv, config)
        kv.pool.take(num_taken)
        grown.append(append_slots(kv, state.requests[A], state.progress[A], 1))

    assert [None, ((4,), (5,))] == grown
