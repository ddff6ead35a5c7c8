"""The waiting phase: who is admitted, and with how many tokens."""

import pytest

from kvsched_fp import (
    AutomatonGrammar,
    LoRA,
    PauseState,
    SchedulerState,
    add_request,
    finish_requests,
    schedule,
    set_grammar,
    set_pause_state,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import PrefixCacheStats
from kvsched_fp.progress import PrefillStats
from tests.unit.worlds import (
    batch,
    blocks_of,
    drain,
    make_config,
    make_outgrown,
    make_request,
    make_state,
    run_step,
    run_steps,
    run_together,
)

A, B, C = map(RequestId, "abc")


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    """[S-WAIT-01] `c` would fit into what `b` gave back, and does in the next step."""
    state = run_steps(run_together(make_config(usable_blocks=4), make_request("a"), make_request("b")), 1)
    state = add_request(state, make_request("c", 1))
    state, first = run_step(state)

    assert ("b",) == first.preempted_request_ids
    assert [("a", 1)] == batch(first)
    assert 1 == state.kv.pool.num_free_blocks


def test_nobody_is_admitted_while_everything_is_paused() -> None:
    """[S-WAIT-01] There is no scan: no prefix is looked up, and capacity does not count as short."""
    state = set_pause_state(make_state(make_config(), make_request("a")), PauseState.PAUSED_ALL)
    after, output = schedule(state)

    assert [] == batch(output)
    assert state.waiting == after.waiting
    assert state.progress == after.progress
    assert not after.prefill_capacity_bound


def test_step_without_a_scan_leaves_short_capacity_as_it_was() -> None:
    """[S-WAIT-01, S-WAIT-11] `b` was left for want of a place, and nobody looked for one since."""
    state, _ = schedule(make_state(make_config(max_num_seqs=1), make_request("a"), make_request("b")))
    state, _ = schedule(set_pause_state(state, PauseState.PAUSED_ALL))

    assert state.prefill_capacity_bound


def test_running_requests_go_on_while_new_ones_are_paused() -> None:
    """[S-WAIT-02] A waiting request that holds no block is not admitted, preempted ones included."""
    state = run_steps(run_together(make_config(usable_blocks=4), make_request("a"), make_request("b")), 2)
    state = set_pause_state(add_request(state, make_request("c", 1)), PauseState.PAUSED_NEW)
    state, output = run_step(state)

    assert [("a", 1)] == batch(output)
    assert ["b", "c"] == list(state.waiting)


def test_request_that_holds_blocks_is_served_before_all_others() -> None:
    """[S-WAIT-02] Also while new requests are paused; it computes what its blocks do not hold yet."""
    state = holding_state()
    _, output = schedule(state)
    _, paused = schedule(set_pause_state(state, PauseState.PAUSED_NEW))

    assert [("b", 3), ("a", 7)] == batch(output)
    assert [("b", 3)] == batch(paused)


def holding_state() -> SchedulerState:
    """Make a state in which the session `b` waits with new input behind `a`, but holds its blocks."""
    session = make_request("b", 4, tokens=(1,) * 4, max_tokens=1, resumable=True)
    state, _ = run_step(make_state(make_config(), session))
    state = add_request(state, make_request("a", 7))
    return add_request(state, make_request("b", 3, tokens=(2,) * 3, resumable=True))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_num_scheduled_tokens": 10}, [("a", 7), ("b", 3)]),
        ({"max_num_scheduled_tokens": 7}, [("a", 7)]),
        ({"max_num_batched_tokens": 8}, [("a", 7), ("b", 1)]),
        ({"max_num_seqs": 1}, [("a", 7)]),
        ({"max_num_active_seqs": 2}, [("a", 7), ("b", 7)]),
        ({}, [("a", 7), ("b", 7), ("c", 7)]),
    ],
)
def test_phase_ends_when_something_is_used_up(
    changes: dict[str, int], expected: list[tuple[str, int]]
) -> None:
    """[S-WAIT-03] Either budget, or the number of active requests."""
    state = make_state(make_config(**changes), *[make_request(name) for name in "abc"])

    assert expected == batch(schedule(state)[1])


def test_running_requests_count_as_active() -> None:
    """[S-WAIT-03] With both places taken `c` waits; once `a` has been ended, the next step admits it."""
    state, output = run_step(
        make_state(make_config(max_num_seqs=2), *[make_request(name) for name in "abc"])
    )

    assert ("a", "b") == state.running

    state, output = run_step(finish_requests(state, [A]))

    assert [("b", 1), ("c", 7)] == batch(output)


def skipped_state(num_steps: int = 6) -> SchedulerState:
    """Make a state in which `b` is preempted with its first token in flight, and skipped in step 6."""
    return make_outgrown(18, 5, usable_blocks=6, num_steps=num_steps)


def test_request_with_stale_output_to_come_is_skipped() -> None:
    """[S-WAIT-04] It would sample again what the late output delivers; the one behind it is admitted.

    Later, `b` knows 6 tokens and finds 4 of them in the cache.
    """
    state = skipped_state(5)

    assert ["b"] == list(state.waiting)

    state = finish_requests(state, [A])
    state, output = schedule(add_request(state, make_request("c", 4)))

    assert [("c", 4)] == batch(output)
    assert ["b"] == list(state.waiting)

    state = finish_requests(drain(state), [C])

    assert [("b", 2)] == batch(schedule(state)[1])


def test_request_gets_what_its_prefix_hit_leaves() -> None:
    """[S-WAIT-05, K-HIT-01] Two of three blocks are found; the budgets cut the rest."""
    state = run_steps(make_state(make_config(), make_request("a", 12, tokens=(1,) * 8)), 1)
    state = add_request(state, make_request("b", 20, tokens=(1,) * 8))
    state, output = schedule(state)
    new = output.scheduled_new_requests[0]

    assert [("a", 1), ("b", 12)] == batch(output)
    assert 8 == new.num_computed_tokens
    assert blocks_of(state, "a")[:2] == new.block_ids[0][:2]


@pytest.mark.parametrize(
    ("changes", "num_tokens"),
    [
        ({"max_num_scheduled_tokens": 9}, 8),
        ({"max_num_batched_tokens": 6}, 5),
        ({"long_prefill_token_threshold": 7}, 7),
    ],
)
def test_first_piece_is_cut_by_each_limit(changes: dict[str, int], num_tokens: int) -> None:
    """[S-WAIT-05] Threshold and both budgets; the decoding `a` has used one token of them."""
    state = run_steps(make_state(make_config(**changes), make_request("a", 5)), 1)

    assert [("a", 1), ("b", num_tokens)] == batch(schedule(add_request(state, make_request("b", 20)))[1])


def test_whole_prompt_that_does_not_fit_ends_the_phase() -> None:
    """[S-WAIT-06] Without chunked prefill, `c` would fit beside `a` but may not overtake `b`."""
    config = make_config(enable_chunked_prefill=False, max_model_len=20, max_num_batched_tokens=20)
    state = make_state(config, make_request("a", 15), make_request("b", 6), make_request("c", 2))
    state, output = run_step(state)

    assert [("a", 15)] == batch(output)
    assert [("a", 1), ("b", 6), ("c", 2)] == batch(schedule(state)[1])


def test_threshold_makes_pieces_even_without_chunked_prefill() -> None:
    """[S-WAIT-06] The threshold is applied before it is asked whether the rest fits."""
    config = make_config(enable_chunked_prefill=False, long_prefill_token_threshold=4, max_model_len=20)
    state = make_state(config, make_request("a", 15), make_request("b", 6))

    assert [("a", 4), ("b", 4)] == batch(schedule(state)[1])


def test_request_whose_blocks_do_not_fit_ends_the_phase() -> None:
    """[S-WAIT-07] Nothing of it changes but what the look-up found; `c` behind it may not overtake."""
    state = make_state(
        make_config(usable_blocks=4), make_request("a", 8), make_request("b", 12), make_request("c", 1)
    )
    state, output = schedule(state)

    assert [("a", 8)] == batch(output)
    assert ["b", "c"] == list(state.waiting)
    assert 0 == len(state.deferred)
    assert PrefillStats(12, 12, 0) == state.progress[B].prefill_stats


@pytest.mark.parametrize(("first", "second", "expected"), [(40, 8, "ab"), (40, 12, "a"), (60, 1, "a")])
def test_watermark_counts_from_the_second_request_on(first: int, second: int, expected: str) -> None:
    """[K-FIT-03] A quarter of 17 blocks is 4. Nothing runs yet, so `a` need not leave 4; `b` must."""
    config = make_config(watermark=0.25)
    _, output = schedule(make_state(config, make_request("a", first), make_request("b", second)))

    assert expected == "".join(output.num_scheduled_tokens)


def test_prompt_is_not_admitted_while_prompts_are_held_back() -> None:
    """[S-WAIT-08] It ends the phase: `c` with one token behind it is not admitted either."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    state = add_request(add_request(state, make_request("b", 2)), make_request("c", 1))

    assert [("a", 1)] == batch(schedule(state, throttle_prefills=True)[1])


def test_single_token_is_admitted_while_prompts_are_held_back() -> None:
    """[S-WAIT-08] One token to compute is no more than decoding; it does not count as prompt either."""
    config = make_config(prefill_schedule_interval=3)
    state, _ = run_step(make_state(config, make_request("a", 5)))
    state, output = run_step(add_request(state, make_request("c", 1)))

    assert [("a", 1), ("c", 1)] == batch(output)
    assert 1 == state.last_prefill_step


def test_skipped_requests_go_back_in_their_order_as_deferred() -> None:
    """[S-WAIT-09] `b` and `c`, both waiting for late output, stay ahead of `d` behind them."""
    config = make_config(usable_blocks=7, long_prefill_token_threshold=4, scheduler_reserve_full_isl=False)
    requests = [make_request("a", 26), make_request("b", 4), make_request("c", 4)]
    state = make_state(config, *requests)
    for _ in range(7):
        state, _ = schedule(state)

    assert ["b", "c"] == list(state.waiting)

    state = add_request(finish_requests(state, [A]), make_request("d", 4))
    state, output = schedule(state)

    assert [("d", 4)] == batch(output)
    assert ["b", "c"] == list(state.waiting)
    assert {B, C} == set(state.deferred)


def test_admitted_request_is_not_deferred_any_more() -> None:
    """[S-WAIT-09] Being deferred ends with the admission."""
    state = skipped_state()

    assert {B} == set(state.deferred)

    state, output = schedule(finish_requests(drain(state), [A]))

    assert [("b", 2)] == batch(output)
    assert set() == set(state.deferred)


def test_look_up_counts_when_the_request_is_admitted() -> None:
    """[S-WAIT-10] A look-up that is repeated for want of blocks is counted once, at the end."""
    config = make_config(usable_blocks=5)
    state = make_state(
        config, make_request("a", 9, tokens=(1,) * 4), make_request("b", 17, tokens=(1,) * 4)
    )
    state = run_steps(state, 2)

    assert PrefixCacheStats() == state.kv.prefix_cache_stats

    state, output = schedule(finish_requests(state, [A]))

    assert [("b", 13)] == batch(output)
    assert PrefixCacheStats(requests=1, queries=17, hits=4) == state.kv.prefix_cache_stats


def test_look_up_of_a_preempted_request_counts_apart() -> None:
    """[S-WAIT-10] Its known tokens include its output; `a` has taken the block of its tail."""
    state = run_steps(run_together(make_config(usable_blocks=4), make_request("a"), make_request("b")), 2)
    state, _ = schedule(finish_requests(state, [A]))
    expected = PrefixCacheStats(preempted_requests=1, preempted_queries=9, preempted_hits=4)

    assert expected == state.kv.prefix_cache_stats


@pytest.mark.parametrize("how", ["skip", "off", "no stats"])
def test_look_up_that_is_not_made_does_not_count(how: str) -> None:
    """[S-WAIT-10] Skipped by the request, cache off, or no statistics: nothing is counted."""
    config = make_config(enable_prefix_caching=how != "off", log_stats=how != "no stats")
    request = make_request("a", skip_reading_prefix_cache=how == "skip")
    state, _ = schedule(make_state(config, request))

    assert PrefixCacheStats() == state.kv.prefix_cache_stats


def test_scan_that_left_requests_behind_means_short_capacity() -> None:
    """[S-WAIT-11] `b` was left for want of a place; when it is in, capacity is not short any more."""
    state = make_state(make_config(max_num_seqs=1), make_request("a"), make_request("b"))
    state, _ = run_step(state)

    assert state.prefill_capacity_bound
    assert not schedule(finish_requests(state, [A]))[0].prefill_capacity_bound


def test_skipped_requests_are_not_left_behind() -> None:
    """[S-WAIT-11] What waits for late output does not wait for capacity."""
    state, _ = schedule(finish_requests(skipped_state(5), [A]))

    assert ["b"] == list(state.waiting)
    assert not state.prefill_capacity_bound


def test_scan_that_held_prompts_back_notes_nothing() -> None:
    """[S-WAIT-11] It left `b` behind on purpose."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    state, _ = schedule(add_request(state, make_request("b")), throttle_prefills=True)

    assert ["b"] == list(state.waiting)
    assert not state.prefill_capacity_bound


def test_session_that_waits_for_input_takes_a_place() -> None:
    """[S-WAIT-03] Of two places one is left for `b`; `c` has to wait."""
    session = make_request("a", max_tokens=1, resumable=True)
    state = run_steps(make_state(make_config(max_num_seqs=2), session), 1)
    state = add_request(add_request(state, make_request("b")), make_request("c"))

    assert [("b", 7)] == batch(schedule(state)[1])


def test_encoder_instance_takes_pieces_anyway() -> None:
    """[S-WAIT-06] Without chunked prefill, a threshold is not the only way to pieces there."""
    config = make_config(
        runner_type="encoder_only",
        enable_chunked_prefill=False,
        max_model_len=20,
        max_num_batched_tokens=20,
    )
    state = make_state(config, make_request("a", 15), make_request("b", 6))

    assert [("a", 15), ("b", 5)] == batch(schedule(state)[1])


def test_request_without_its_grammar_is_skipped() -> None:
    """[S-WAIT-12] It stays ahead of those that are admitted before it, and is deferred."""
    state = make_state(make_config(), make_request("a", needs_grammar=True), make_request("b"))
    state, output = schedule(state)

    assert [("b", 7)] == batch(output)
    assert (["a"], {A}) == (list(state.waiting), set(state.deferred))
    assert not state.prefill_capacity_bound
    assert [("a", 7)] == batch(schedule(set_grammar(state, A, AutomatonGrammar([[]])))[1])


FIRST, SECOND = LoRA("first", 1), LoRA("second", 2)


def lora_state(max_loras: int, *loras: LoRA | None) -> SchedulerState:
    """Make a state of requests `a`, `b`, ... with these adapters."""
    requests = [make_request(name, lora=lora) for name, lora in zip("abcd", loras, strict=False)]
    return make_state(make_config(max_loras=max_loras), *requests)


@pytest.mark.parametrize(
    ("max_loras", "loras", "admitted"),
    [
        (1, (FIRST, SECOND, FIRST, None), "acd"),
        (2, (FIRST, SECOND, FIRST, None), "abcd"),
        (1, (None, SECOND, FIRST, SECOND), "abd"),
    ],
)
def test_request_with_one_adapter_too_many_is_skipped(
    max_loras: int, loras: tuple[LoRA | None, ...], admitted: str
) -> None:
    """[S-WAIT-13] Those behind it that need no other adapter are admitted."""
    state, output = schedule(lora_state(max_loras, *loras))

    assert admitted == "".join(output.num_scheduled_tokens)
    assert set("abcd") - set(admitted) == set(state.waiting) == set(state.deferred)


def test_adapters_of_all_running_requests_count() -> None:
    """[S-WAIT-13] Also of those that get nothing in this step; when the last one ends, there is room."""
    state, _ = schedule(lora_state(1, FIRST))
    state, output = schedule(add_request(state, make_request("b", lora=SECOND)))

    assert [] == batch(output)
    assert [("b", 7)] == batch(schedule(finish_requests(state, [A]))[1])


def test_skipped_request_does_not_mean_short_capacity() -> None:
    """[S-WAIT-11, S-WAIT-13] What waits for an adapter's place is deferred."""
    state, _ = schedule(lora_state(1, FIRST, SECOND))

    assert ["b"] == list(state.waiting)
    assert not state.prefill_capacity_bound
