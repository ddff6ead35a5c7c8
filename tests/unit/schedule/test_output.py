"""The shape of an output, for the V1 and for the V2 model runner."""

import attrs
import pytest

from kvsched_fp import (
    LoRA,
    PauseState,
    SchedulerOutput,
    SchedulerState,
    add_request,
    finish_requests,
    schedule,
    set_pause_state,
    update_drafts,
)
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.outputs import CachedRequestData, NewRequestData
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_request,
    make_state,
    run_step,
    run_steps,
    run_together,
)

A, B, C, X = map(RequestId, "abcx")


def resuming_step(*, use_v2_model_runner: bool) -> tuple[SchedulerState, SchedulerOutput]:
    """Plan a step in which `a` runs, `b` resumes behind 4 cached tokens, and `c` is new."""
    config = make_config(usable_blocks=7, max_num_seqs=3, use_v2_model_runner=use_v2_model_runner)
    state = run_together(config, make_request("x"), make_request("a"), make_request("b"))
    state = finish_requests(run_steps(state, 2), [X])
    state, output = schedule(add_request(state, make_request("c", 3)))

    assert [("a", 1), ("b", 5), ("c", 3)] == batch(output)
    return state, output


def test_v2_sends_everything_that_is_admitted_whole() -> None:
    """[S-OUT-01] New ones come before resumed ones, both with all known tokens and all blocks."""
    state, output = resuming_step(use_v2_model_runner=True)
    prompts = {request_id: state.requests[request_id].prompt_token_ids for request_id in (B, C)}
    new = NewRequestData(C, prompts[C], (blocks_of(state, "c"),), 0, prompts[C])
    resumed = NewRequestData(B, prompts[B], (blocks_of(state, "b"),), 4, (*prompts[B], 7, 8))

    assert (new, resumed) == output.scheduled_new_requests
    assert CachedRequestData(
        (A,), (), new_block_ids=(None,), num_computed_tokens=(9,), num_output_tokens=(3,)
    ) == (output.scheduled_cached_requests)


def test_v1_sends_only_new_requests_whole() -> None:
    """[S-OUT-02] A resumed one is a row behind the running ones, marked, with all its blocks."""
    state, output = resuming_step(use_v2_model_runner=False)
    rows = output.scheduled_cached_requests
    prompt = state.requests[C].prompt_token_ids

    assert (NewRequestData(C, prompt, (blocks_of(state, "c"),), 0, None),) == output.scheduled_new_requests
    assert (rows.request_ids, rows.resumed_request_ids) == ((A, B), (B,))
    assert (None, (blocks_of(state, "b"),)) == rows.new_block_ids
    assert ((9, 4), (3, 2)) == (rows.num_computed_tokens, rows.num_output_tokens)


def test_v1_sends_all_tokens_of_rows_that_were_not_in_the_step_before() -> None:
    """[S-OUT-03] The resumed `b` brings its 9 tokens; `a` was there, and brings none."""
    state, output = resuming_step(use_v2_model_runner=False)

    assert {B: (*state.requests[B].prompt_token_ids, 7, 8)} == dict(
        output.scheduled_cached_requests.all_token_ids
    )


@pytest.mark.parametrize(("use_v2_model_runner", "expected"), [(False, {A: 10, B: 10}), (True, {})])
def test_row_that_was_left_out_of_a_step_brings_its_tokens(
    use_v2_model_runner: bool, expected: dict[str, int]
) -> None:
    """[S-OUT-03] After a step in which everything was paused, V1 rows are sent with all they know."""
    config = make_config(use_v2_model_runner=use_v2_model_runner)
    state = run_steps(make_state(config, make_request("a"), make_request("b")), 2)
    _, there = schedule(state)
    state, _ = run_step(set_pause_state(state, PauseState.PAUSED_ALL))
    state = set_pause_state(state, PauseState.UNPAUSED)
    state, back = run_step(state)
    _, again = schedule(state)

    assert expected == {key: len(ids) + 1 for key, ids in tokens_of(back).items()}
    assert {} == tokens_of(there) == tokens_of(again)


def tokens_of(output: SchedulerOutput) -> dict[RequestId, tuple[int, ...]]:
    """Give the tokens that the rows of a difference bring."""
    return dict(output.scheduled_cached_requests.all_token_ids)


def test_row_without_new_blocks_says_none() -> None:
    """[S-OUT-04] The eighth token of `a` fits its second block, the fifth of `b` opens one."""
    state, _ = run_step(make_state(make_config(), make_request("a", 7), make_request("b", 4)))
    _, output = schedule(state)

    assert (None, ((4,),)) == output.scheduled_cached_requests.new_block_ids


def test_blocks_are_listed_per_group() -> None:
    """[S-OUT-04] With two groups, a row has one tuple of blocks per group, or None for both."""
    groups = (FullAttentionSpec(block_size=4),) * 2
    state, first = run_step(
        make_state(make_config(num_blocks=33, kv_cache_groups=groups), make_request("a", 4))
    )
    state, second = run_step(state)
    _, third = schedule(state)

    assert ((1,), (2,)) == first.scheduled_new_requests[0].block_ids
    assert (((3,), (4,)),) == second.scheduled_cached_requests.new_block_ids
    assert (None,) == third.scheduled_cached_requests.new_block_ids


@pytest.mark.parametrize(("needed", "expected"), [(True, [(1, 2, 3), (4,), None]), (False, [None] * 3)])
def test_new_blocks_are_listed_for_clearing_if_needed(
    needed: bool, expected: list[tuple[int, ...] | None]
) -> None:
    """Blocks that are hit are not new; a step without new blocks says None."""
    config = make_config(needs_kv_cache_zeroing=needed)
    state, first = run_step(make_state(config, make_request("a", 9, tokens=(1,) * 8)))
    state, second = run_step(add_request(state, make_request("b", 9, tokens=(1,) * 8)))
    _, third = schedule(state)

    assert expected == [output.new_block_ids_to_zero for output in (first, second, third)]


def test_output_tells_ends_and_preemptions_since_the_step_before() -> None:
    """Ids are told once, in the order in which it happened, also with an empty batch."""
    state = run_steps(run_together(make_config(usable_blocks=4), make_request("a"), make_request("b")), 1)
    state, output = run_step(state)

    assert output.preempted_request_ids == (B,)

    state, output = run_step(finish_requests(state, [B, A]))

    assert (
        output.total_num_scheduled_tokens,
        output.preempted_request_ids,
        output.finished_request_ids,
    ) == (0, (), (B, A))
    assert () == schedule(state)[1].finished_request_ids


@pytest.mark.parametrize("use_v2_model_runner", [False, True])
def test_adapter_and_pooling_are_told_with_a_new_request(use_v2_model_runner: bool) -> None:
    """[S-OUT-01, S-OUT-02] The model runner keeps them."""
    lora = LoRA("fine", 1)
    config = make_config(use_v2_model_runner=use_v2_model_runner, max_loras=1, runner_type="pooling")
    request = make_request("a", lora=lora, pooling=True, max_tokens=1)
    [new] = schedule(make_state(config, request))[1].scheduled_new_requests

    assert (lora, True) == (new.lora, new.pooling)


def pipelined_state(**changes: object) -> SchedulerState:
    """Make a state of a decoding `a` and a `b` of two pieces, in a pipeline of two stages."""
    config = make_config(pipeline_parallel_size=2, max_num_batched_tokens=8, num_spec_tokens=2, **changes)
    state = run_steps(make_state(config, make_request("a", 4), make_request("b", 10)), 1)
    return update_drafts(state, {A: (50, 51)})


def test_pipeline_is_sent_the_tokens_of_each_row() -> None:
    """[S-OUT-05] What the last stage sampled for `a`, without its drafts, and the next piece of `b`."""
    state = pipelined_state()
    _, output = schedule(state)

    assert [("a", 3), ("b", 5)] == batch(output)
    assert (
        (4,),
        state.requests[B].prompt_token_ids[4:9],
    ) == output.scheduled_cached_requests.new_token_ids


def test_pipeline_is_sent_tokens_from_the_end_behind_a_late_result() -> None:
    """[S-OUT-05] Of `a`, less than nothing is computed: it is counted from the end (deviation D-05)."""
    state = run_steps(make_state(make_config(pipeline_parallel_size=2), make_request("a", 4)), 1)
    progress = attrs.evolve(state.progress[A], num_computed_tokens=-2)
    state = attrs.evolve(state, progress=state.progress.set(A, progress))
    _, output = schedule(state)

    assert [("a", 7)] == batch(output)
    assert ((state.requests[A].prompt_token_ids[3], 4),) == output.scheduled_cached_requests.new_token_ids


@pytest.mark.parametrize("changes", [{"async_scheduling": True}, {"pipeline_parallel_size": 1}], ids=str)
def test_tokens_are_not_sent_where_every_stage_has_them(changes: dict[str, object]) -> None:
    """[S-OUT-05] With one stage, or where the stages pass them on."""
    config = make_config(**{"pipeline_parallel_size": 2} | changes)
    state = run_steps(make_state(config, make_request("a")), 2)

    assert () == schedule(state)[1].scheduled_cached_requests.new_token_ids


def test_step_says_how_many_drafts_to_propose() -> None:
    """[S-OUT-06] Fewer for more rows; the step itself is not touched by it."""
    config = make_config(num_spec_tokens=3, num_spec_tokens_per_batch_size=[(1, 1, 3), (2, 8, 1)])
    state, first = run_step(make_state(config, make_request("a")))
    state, second = run_step(add_request(state, make_request("b")))

    assert [3, 1] == [output.num_spec_tokens_to_schedule for output in (first, second)]
    assert 3 == schedule(make_state(make_config(num_spec_tokens=3)))[1].num_spec_tokens_to_schedule


def test_step_without_grammars_says_so() -> None:
    """Nobody has to wait for a mask, whatever is in flight."""
    _, output = schedule(make_state(make_config(async_scheduling=True), make_request("a")))

    assert (False, False) == (
        output.has_structured_output_requests,
        output.pending_structured_output_tokens,
    )
