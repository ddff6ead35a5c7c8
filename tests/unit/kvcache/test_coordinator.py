"""Block tables, prefix hits and the events of the prefix index."""

import itertools

import pytest

from kvsched_fp import LoRA, SchedulerState, add_request, finish_requests, reset_prefix_cache, schedule
from kvsched_fp.ids import BlockId, RequestId
from kvsched_fp.kvcache.coordinator import (
    OpenKVCache,
    count_reclaimable,
    find_longest_cache_hit,
    make_kv_cache,
    num_cached_tokens,
    release_blocks,
    take_blocks,
)
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.unit.worlds import (
    blocks_of,
    make_config,
    make_request,
    make_state,
    run_step,
    run_steps,
)

A, B = map(RequestId, "ab")
TWO_GROUPS = (FullAttentionSpec(block_size=4),) * 2


def test_tables_only_grow_until_all_is_given_back() -> None:
    """[K-TAB-01] In each step the table begins with that of the step before, with a block per 4 tokens."""
    state = make_state(make_config(max_num_batched_tokens=8), make_request("a", 18, max_tokens=5))
    tables = []
    for _ in range(7):
        state, _ = run_step(state)
        tables.append(blocks_of(state, "a"))

    assert [2, 4, 5, 5, 5, 6, 0] == [len(table) for table in tables]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(tables[:-1]))


def test_request_without_blocks_has_no_table() -> None:
    """[K-TAB-01] Before its admission and after its end there is nothing to look up."""
    state = make_state(make_config(), make_request("a"))

    assert state.kv.block_ids(A) is None
    assert ((1, 2),) == run_steps(state, 1).kv.block_ids(A)
    assert finish_requests(run_steps(state, 1), [A]).kv.block_ids(A) is None


def cached_counts(state: SchedulerState, request_id: RequestId) -> list[int]:
    """Give the number of cached blocks in each table of a request."""
    return [table.num_cached_blocks for table in state.kv.tables[request_id]]


def test_cached_blocks_are_counted_with_the_hits() -> None:
    """[K-TAB-02] `b` has two of `a`, and fills one itself; it counts when it is scheduled."""
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=33)
    state, _ = run_step(make_state(config, make_request("a", 9, tokens=(1,) * 8)))
    state, _ = run_step(add_request(state, make_request("b", 11, tokens=(1,) * 8)))

    assert [2, 2] == cached_counts(state, A)
    assert [2, 2] == cached_counts(state, B)
    assert [3, 3] == cached_counts(run_steps(state, 1), B)


def test_cached_blocks_are_entered_when_they_are_scheduled() -> None:
    """[K-CACHE-01] Before the step has come back, another request may hit them, in the same step even."""
    requests = [make_request(name, 9, tokens=(1,) * 8) for name in "ab"]
    state, output = schedule(make_state(make_config(), *requests))

    assert [9, 1] == list(output.num_scheduled_tokens.values())
    assert blocks_of(state, "a")[:2] == blocks_of(state, "b")[:2]


def test_block_that_is_only_begun_is_not_entered() -> None:
    """[K-CACHE-01] All three blocks are known from the start, but only what a piece fills can be found."""
    state = make_state(make_config(max_num_batched_tokens=6), make_request("a", 12))
    num_cached = []
    for _ in range(2):
        state, _ = schedule(state)
        num_cached.append(len(state.kv.pool.cached))

    assert [1, 3] == num_cached


@pytest.mark.parametrize(
    ("prompt", "shared", "num_hit"), [(9, 9, 8), (8, 8, 4), (12, 9, 8), (12, 7, 4), (12, 3, 0), (1, 1, 0)]
)
def test_hit_is_whole_blocks_and_leaves_one_token(prompt: int, shared: int, num_hit: int) -> None:
    """[K-HIT-01, K-HIT-02] Of the shared tokens full blocks count, and the last token is computed."""
    state, _ = run_step(make_state(make_config(), make_request("a", 20, tokens=(1,) * 12)))
    state = add_request(state, make_request("b", prompt, tokens=(1,) * shared))
    _, output = schedule(state)
    new = output.scheduled_new_requests[0]

    assert (num_hit, prompt - num_hit) == (new.num_computed_tokens, output.num_scheduled_tokens[B])


def test_hit_begins_with_the_first_token() -> None:
    """[K-HIT-01] Equal tokens behind different ones are not found."""
    state, _ = run_step(make_state(make_config(), make_request("a", 12, tokens=(1, 1, 1, 1, 2, 2, 2, 2))))
    _, output = schedule(add_request(state, make_request("b", 12, tokens=(2, 2, 2, 2, 2, 2, 2, 2))))

    assert 0 == output.scheduled_new_requests[0].num_computed_tokens


def test_hit_ends_where_one_group_has_lost_a_block() -> None:
    """[K-HIT-01] The tail of the first group is evicted first; the second group still has it."""
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=9, max_model_len=12)
    state, _ = run_step(make_state(config, make_request("a", 12, max_tokens=1)))
    kv = OpenKVCache(state.kv, config)
    hashes = make_state(config, make_request("a", 12)).progress[A].block_hashes
    hits = [find_longest_cache_hit(kv, hashes, 13)]
    take_blocks(kv, 0, 3)  # two that were never used, and block 3
    hits.append(find_longest_cache_hit(kv, hashes, 13))

    assert [((1, 2, 3), (4, 5, 6)), ((1, 2), (4, 5))] == hits


def test_blocks_are_given_back_tail_first_group_by_group() -> None:
    """The tail of a prefix is worth less than its head: it is evicted first."""
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=9, max_model_len=12)
    state, _ = run_step(make_state(config, make_request("a", 8)))
    kv = OpenKVCache(state.kv, config)
    release_blocks(kv, A)

    assert [5, 6, 7, 8, 2, 1, 4, 3] == kv.close().pool.free_blocks()


def test_giving_back_nothing_is_fine() -> None:
    """A request that waits holds no block."""
    config = make_config()
    kv = OpenKVCache(make_kv_cache(config), config)
    release_blocks(kv, A)

    assert make_kv_cache(config) == kv.close()


def test_whoever_holds_no_block_would_make_none_free() -> None:
    """Of the requests that would give theirs back, one may wait without any."""
    config = make_config()
    kv = OpenKVCache(run_steps(make_state(config, make_request("a", 6)), 1).kv, config)

    assert 2 == count_reclaimable(kv, [A, B])
    assert 0 == count_reclaimable(kv, [B])


def test_events_name_blocks_as_they_are_stored_and_lost() -> None:
    """[K-CACHE-02] What is lost comes before what is stored in its place; all is told in order."""
    config = make_config(usable_blocks=4, enable_kv_cache_events=True)
    first, second = make_request("a", 10, max_tokens=1, cache_salt="s"), make_request("b", 14, max_tokens=1)
    state, _ = run_step(make_state(config, first))
    hashes = {A: make_state(config, first).progress[A].block_hashes}
    stored = state.emitted.kv_events
    state = add_request(state, second)
    hashes[B] = state.progress[B].block_hashes
    state, _ = run_step(state)

    assert (BlockStored(hashes[A], None, first.prompt_token_ids[:8], 4, (("s",), None), 0),) == stored
    assert (
        BlockRemoved(hashes[A][1:], 0),
        BlockRemoved(hashes[A][:1], 0),
        BlockStored(hashes[B], None, second.prompt_token_ids[:12], 4, (None, None, None), 0),
    ) == state.emitted.kv_events


def test_event_of_a_later_block_names_its_parent() -> None:
    """[K-CACHE-02] The second block of `a` has one token of output in it."""
    config = make_config(enable_kv_cache_events=True)
    state, _ = run_step(make_state(config, make_request("a", 7, cache_salt="s")), a=(5,))
    state, _ = run_step(state)
    hashes = state.progress[A].block_hashes
    tokens = (*state.requests[A].prompt_token_ids[4:], 5)

    assert (BlockStored(hashes[1:], hashes[0], tokens, 4, (None,), 0),) == state.emitted.kv_events


def test_events_are_told_per_group() -> None:
    """[K-CACHE-02] The same blocks are stored once for each group."""
    config = make_config(enable_kv_cache_events=True, kv_cache_groups=TWO_GROUPS, num_blocks=33)
    state, _ = run_step(make_state(config, make_request("a", 4)))

    assert [0, 1] == [event.group_index for event in state.emitted.kv_events]


def test_replaying_the_events_gives_the_index() -> None:
    """[K-CACHE-02] Stored and removed hashes, counted, are the keys of the prefix index."""
    config = make_config(usable_blocks=6, enable_kv_cache_events=True)
    state = make_state(config)
    counts: dict[bytes, int] = {}
    for index, name in enumerate("abcabcdd"):
        request = make_request(f"{name}{index}", 9, tokens=tuple([ord(name)] * 8), max_tokens=2)
        state, _ = run_step(add_request(state, request))
        for event in state.emitted.kv_events:
            assert not isinstance(event, AllBlocksCleared)
            for block_hash in event.block_hashes:
                change = 1 if isinstance(event, BlockStored) else -1
                counts[block_hash] = counts.get(block_hash, 0) + change

    assert {key[:-4] for key in state.kv.pool.cached} == {key for key, count in counts.items() if count}
    assert 0 == min(counts.values())


def test_reset_is_told_behind_what_came_before() -> None:
    """[K-RESET-01, K-CACHE-02] Events that were not told yet stay in their place."""
    config = make_config(enable_kv_cache_events=True)
    state, _ = schedule(make_state(config, make_request("a", 4)))
    state, done = reset_prefix_cache(finish_requests(state, [A]))

    assert done
    assert [BlockStored, AllBlocksCleared] == [type(event) for event in state.kv.pending_events]


def test_cached_tokens_of_a_request_are_those_that_all_groups_hold() -> None:
    """Two full blocks of 9 tokens are cached; a request without blocks has none."""
    config = make_config(kv_cache_groups=TWO_GROUPS, num_blocks=33)
    state, _ = run_step(make_state(config, make_request("a", 9)))
    kv = OpenKVCache(state.kv, config)

    assert (8, 0) == (num_cached_tokens(kv, A), num_cached_tokens(kv, B))


def test_closed_cache_is_not_changed_by_what_was_opened_from_it() -> None:
    """[M-STATE-01] Taking and releasing in a transient leaves the value alone."""
    config = make_config()
    state, _ = run_step(make_state(config, make_request("a")))
    before = hash(state.kv)
    kv = OpenKVCache(state.kv, config)
    take_blocks(kv, 0, 3)
    release_blocks(kv, A)

    assert before == hash(state.kv)
    assert [BlockId(1), BlockId(2)] == list(blocks_of(state, "a"))
    assert kv.close() != state.kv


@pytest.mark.parametrize(("prompt", "num_hit"), [(13, 8), (12, 4), (9, 4), (8, 0)])
def test_hit_gives_up_its_last_block_for_the_drafter(prompt: int, num_hit: int) -> None:
    """[K-HIT-03] Three blocks are cached; one of those found is computed once more."""
    config = make_config(drop_eagle_block=True)
    state, _ = run_step(make_state(config, make_request("a", 12, tokens=(1,) * 12)))
    _, output = schedule(add_request(state, make_request("b", prompt, tokens=(1,) * prompt)))

    assert num_hit == output.scheduled_new_requests[0].num_computed_tokens


@pytest.mark.parametrize(("prompt", "num_hit"), [(13, 8), (12, 8), (9, 4), (8, 4)])
def test_several_groups_give_up_a_block_of_a_longer_run(prompt: int, num_hit: int) -> None:
    """[K-HIT-03] The run that a block is taken from may reach to the prompt's end."""
    config = make_config(drop_eagle_block=True, kv_cache_groups=TWO_GROUPS, num_blocks=33)
    state, _ = run_step(make_state(config, make_request("a", 12, tokens=(1,) * 12)))
    _, output = schedule(add_request(state, make_request("b", prompt, tokens=(1,) * prompt)))

    assert num_hit == output.scheduled_new_requests[0].num_computed_tokens


@pytest.mark.parametrize(("num_lookahead", "num_cached"), [(0, 2), (1, 2), (2, 1), (4, 1)])
def test_blocks_that_the_drafter_may_compute_again_are_not_cached_yet(
    num_lookahead: int, num_cached: int
) -> None:
    """[K-CACHE-03] The prompt ends with its second block, and the last n - 1 tokens are not settled."""
    config = make_config(num_spec_tokens=4, num_prefill_lookahead_tokens=num_lookahead)
    state, _ = schedule(make_state(config, make_request("a", 8)))

    assert num_cached == len(state.kv.pool.cached)


@pytest.mark.parametrize(("drops", "num_cached"), [(False, 4), (True, 2)])
def test_several_groups_wait_only_where_a_block_is_given_up(drops: bool, num_cached: int) -> None:
    """[K-CACHE-03] The reference looks only at the groups that do."""
    config = make_config(
        num_spec_tokens=4,
        num_prefill_lookahead_tokens=4,
        drop_eagle_block=drops,
        kv_cache_groups=TWO_GROUPS,
        num_blocks=33,
    )
    state, _ = schedule(make_state(config, make_request("a", 8)))

    assert num_cached == len(state.kv.pool.cached)


def test_event_names_the_adapter_of_a_block() -> None:
    """[K-CACHE-02] By name and number; the extra keys of its block have the name, too."""
    config = make_config(enable_kv_cache_events=True, max_loras=1)
    state, _ = run_step(make_state(config, make_request("a", 4, lora=LoRA("fine", 7, "/fine"))))
    [stored] = state.emitted.kv_events

    assert isinstance(stored, BlockStored)
    assert (7, "fine", (("fine",),)) == (stored.lora_id, stored.lora_name, stored.extra_keys)


def test_event_names_the_tokens_that_a_hash_covers_behind_its_block() -> None:
    """[K-CACHE-02, K-HASH-04] Two blocks of 10 tokens are stored, each with the two tokens behind it."""
    config = make_config(enable_kv_cache_events=True, num_hash_lookahead_tokens=2)
    state, _ = run_step(make_state(config, make_request("a", 10)))
    prompt = state.requests[A].prompt_token_ids
    [stored] = state.emitted.kv_events

    assert isinstance(stored, BlockStored)
    assert 2 == len(stored.block_hashes)
    assert (prompt[4:6], prompt[8:10]) == stored.lookahead_token_ids


def test_event_names_sampled_tokens_behind_its_block() -> None:
    """[K-CACHE-02, K-HASH-04] The prompt ends with the block, and two tokens were sampled."""
    config = make_config(enable_kv_cache_events=True, num_hash_lookahead_tokens=2)
    state, _ = run_step(make_state(config, make_request("a", 4)), a=(5,))
    state, _ = run_step(state, a=(6,))
    state, _ = run_step(state)
    [stored] = state.emitted.kv_events

    assert isinstance(stored, BlockStored)
    assert ((5, 6),) == stored.lookahead_token_ids


def test_block_is_found_only_with_the_tokens_behind_it() -> None:
    """[K-HASH-04, K-HIT-01] `b` has the first block of `a` and another token behind it."""
    config = make_config(num_hash_lookahead_tokens=1)
    state, _ = run_step(make_state(config, make_request("a", 12, tokens=(1,) * 12)))
    hits = []
    for name, num_shared in [("b", 4), ("c", 5), ("d", 9)]:
        state = add_request(state, make_request(name, 12, tokens=(1,) * num_shared))
        state, output = schedule(state)
        hits.append(output.scheduled_new_requests[0].num_computed_tokens)

    assert [0, 4, 8] == hits


def test_requests_share_blocks_only_with_the_same_adapter() -> None:
    """[K-HASH-02, K-HIT-01] `b` has no adapter and `c` that of `a`."""
    config = make_config(max_loras=1)
    lora = LoRA("fine", 7)
    state, _ = run_step(make_state(config, make_request("a", 9, tokens=(1,) * 8, lora=lora)))
    state = add_request(state, make_request("b", 9, tokens=(1,) * 8))
    _, output = schedule(add_request(state, make_request("c", 9, tokens=(1,) * 8, lora=lora)))

    assert [0, 8] == [new.num_computed_tokens for new in output.scheduled_new_requests]
