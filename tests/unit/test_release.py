"""Giving back what one request holds."""

import attrs
import pytest

from kvsched_fp import (
    AutomatonGrammar,
    RequestStatus,
    SchedulerState,
    StepResult,
    add_request,
    finish_requests,
    reset_prefix_cache,
    schedule,
    set_grammar,
    update,
)
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.progress import PrefillStats, RequestEvent, RequestEventType
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_outgrown,
    make_request,
    make_result,
    make_state,
    plan_steps,
    run_step,
    run_steps,
    tokens_told,
)

A, B = map(RequestId, "ab")


def crowded_state(**changes: object) -> SchedulerState:
    """Make a state of 5 blocks in which `a` and `b` run with two each, and the next step needs two more."""
    config = make_config(usable_blocks=5, **changes)
    state = make_state(
        config, make_request("a", 7, arrival_time=1.0), make_request("b", 7, arrival_time=2.0)
    )
    return run_steps(state, 2)


def test_preempted_request_starts_again_from_nothing() -> None:
    """[M-REL-01] Its blocks are free and nothing of it is computed, but its output stays known."""
    state, output = run_step(crowded_state())
    progress = state.progress[B]

    assert ("b",) == output.preempted_request_ids
    assert () == blocks_of(state, "b")
    assert RequestStatus.PREEMPTED is progress.status
    assert 0 == progress.num_computed_tokens
    assert [7, 8] == list(progress.output_token_ids)
    assert 1 == progress.num_preemptions
    assert 2 == len(progress.block_hashes)


def test_preempted_request_computes_prompt_and_output_as_one_prompt() -> None:
    """[M-REL-01] After `a` has left, `b` computes its 9 known tokens, 8 of which it finds in the cache."""
    state, _ = run_step(crowded_state())
    state, output = run_step(finish_requests(state, [A]))
    new = output.scheduled_new_requests[0]

    assert [("b", 1)] == batch(output)
    assert (8, 9) == (new.num_computed_tokens, len(new.prefill_token_ids or ()))
    assert [7, 8, 9] == list(state.progress[B].output_token_ids)


def test_preempted_request_loses_its_drafts_and_placeholders() -> None:
    """[M-REL-01] They continue what will be computed anew; the tokens in flight are still to come."""
    config = make_config(
        usable_blocks=5, num_spec_tokens=2, async_scheduling=True, scheduler_reserve_full_isl=False
    )
    state = plan_steps(make_state(config, make_request("a", 8), make_request("b", 8)), 1)
    before = state.progress[B]
    state, output = schedule(state)
    progress = state.progress[B]

    assert ("b",) == output.preempted_request_ids
    assert (1, (-1, -1)) == (before.num_output_placeholders, before.spec_token_ids)
    assert (0, ()) == (progress.num_output_placeholders, progress.spec_token_ids)
    assert (8, 8) == (progress.num_in_flight_tokens, progress.num_stale_output_tokens)


def test_preempted_request_is_still_in_the_middle_of_its_prompt() -> None:
    """[M-REL-01] Whether its last step left prompt to compute is not forgotten."""
    config = make_config(max_num_batched_tokens=4)
    state, _ = run_step(make_state(config, make_request("a", 9)))
    after, _ = reset_prefix_cache(state, reset_running_requests=True)

    assert RequestStatus.PREEMPTED is after.progress[A].status
    assert (True, True) == (state.progress[A].is_prefill_chunk, after.progress[A].is_prefill_chunk)


def test_preempted_request_keeps_everything_else() -> None:
    """[M-REL-01] Its grammar stands behind its output, and what was counted of it stays."""
    config = make_config(
        usable_blocks=5, num_spec_tokens=2, spec_decode_metrics="summary", log_request_events=True
    )
    requests = [make_request("a"), make_request("b", needs_grammar=True, resumable=True)]
    grammar = AutomatonGrammar([[(7, 1)], [(8, 1), (9, 1)]])
    state = run_steps(set_grammar(make_state(config, *requests), B, grammar), 2)
    before = add_request(state, make_request("b", 2, resumable=True))
    after, output = schedule(before, time=5.0)
    old, new = before.progress[B], after.progress[B]
    changes = {
        "status": RequestStatus.PREEMPTED,
        "num_computed_tokens": 0,
        "num_preemptions": 1,
        "drop_stale_output": False,
        "events": (*old.events, RequestEvent(RequestEventType.PREEMPTED, 5.0)),
    }

    assert (B,) == output.preempted_request_ids
    assert (AutomatonGrammar(grammar.moves, 1), 1) == (old.grammar, len(old.chunks))
    assert attrs.evolve(old, **changes) == new


@pytest.mark.parametrize(("policy", "order"), [("fcfs", ["b", "c"]), ("priority", ["c", "b"])])
def test_preempted_request_goes_to_the_front_or_to_its_place(policy: str, order: list[str]) -> None:
    """[M-REL-02] First come, first served puts it before `c`; by priority `c` arrived before it."""
    config = make_config(usable_blocks=5, policy=policy, max_num_seqs=2)
    requests = [
        make_request("a", 7, arrival_time=1.0, priority=-1),
        make_request("b", 7, arrival_time=3.0, priority=-1),
        make_request("c", 7, arrival_time=2.0, priority=-1),
    ]
    state = run_steps(make_state(config, *requests[:2]), 2)
    state, output = run_step(add_request(state, requests[2]))

    assert ("b",) == output.preempted_request_ids
    assert order == list(state.waiting)


def test_tokens_in_flight_become_stale_and_are_delivered() -> None:
    """[M-REL-03] The late token counts, and only then may the request be admitted again."""
    state = make_outgrown(num_steps=5)

    assert 4 == state.progress[B].num_stale_output_tokens == state.progress[B].num_in_flight_tokens
    assert not state.progress[B].drop_stale_output

    state, output = schedule(finish_requests(state, [A]))

    assert [] == batch(output)

    state = update(state, StepResult(step_id=StepId(1), sampled_token_ids={"b": (9,)}))

    assert {"b": (9,)} == tokens_told(state)
    assert 0 == state.progress[B].num_stale_output_tokens
    assert [("b", 5)] == batch(schedule(state)[1])


def test_tokens_in_flight_are_dropped_where_blocks_have_to_be_delivered() -> None:
    """[M-REL-03] The request is admitted at once, and its late token is nobody's."""
    state = finish_requests(make_outgrown(num_steps=5, requires_kv_delivery=True), [A])
    dropped = state.progress[B].drop_stale_output
    state, output = schedule(state)
    state = update(state, StepResult(step_id=StepId(1), sampled_token_ids={"b": (9,)}))

    assert dropped
    assert [("b", 4)] == batch(output)
    assert {} == tokens_told(state)
    assert [] == list(state.progress[B].output_token_ids)


def test_dropped_share_stays_dropped_in_a_second_preemption() -> None:
    """[M-REL-04] What was dropped by a reset was computed again; a later preemption does not revive it.

    Step 1 is in flight when everything is reset; `b` is admitted again, and preempted for want of blocks
    while steps 1 and 2 are in flight. Both shares are dropped, since they cannot be told apart.
    """
    state, first = schedule(make_outgrown())
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state = plan_steps(state, 5)
    progress = state.progress[B]

    assert (2, 8, 8) == (
        progress.num_preemptions,
        progress.num_in_flight_tokens,
        progress.num_stale_output_tokens,
    )
    assert progress.drop_stale_output

    state = update(state, make_result(state, first, {"b": (9,)}))

    assert {} == tokens_told(state)
    assert 4 == state.progress[B].num_stale_output_tokens


def test_share_that_was_drained_is_forgotten() -> None:
    """[M-REL-04] Once the dropped share is back, a later preemption delivers what is in flight then."""
    state, first = schedule(make_outgrown())
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state, second = schedule(state)
    late = make_result(state, second, {"b": (9,)})
    state = plan_steps(update(state, make_result(state, first, {"b": (8,)})), 4)

    assert 2 == state.progress[B].num_preemptions
    assert not state.progress[B].drop_stale_output
    assert {"b": (9,)} == tokens_told(update(state, late))


def test_statistics_of_the_prefill_are_those_of_the_first_admission() -> None:
    """`b` is preempted in the middle of its prompt, and finds what it computed: that is no hit."""
    state = run_steps(make_outgrown(22, 20, usable_blocks=8), 5)

    assert 1 == state.progress[B].num_preemptions

    state, output = schedule(finish_requests(state, [A]))

    assert 12 == output.scheduled_new_requests[0].num_computed_tokens
    assert PrefillStats(20, 20, 0) == state.progress[B].prefill_stats


def test_preempted_request_keeps_to_its_turn_in_the_pipeline() -> None:
    """[M-REL-01, S-RUN-08] Step 2 was to sample; the second piece computed again waits for its round."""
    config = make_config(async_scheduling=True, pipeline_parallel_size=4, max_num_batched_tokens=8)
    state = plan_steps(make_state(config, make_request("a", 16)), 2)
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state = plan_steps(state, 4)

    assert [8, 8, 8, 0, 0, 8] == [output.total_num_scheduled_tokens for output in state.in_flight]


def test_request_that_ends_leaves_nothing_behind() -> None:
    """[M-REL-05] Its blocks are free, it is in no map, and its id goes out with the next step, once."""
    state, _ = run_step(make_state(make_config(), make_request("a", max_tokens=1), make_request("b")))

    assert 14 == state.kv.pool.num_free_blocks
    assert [{"b"}] * 3 == [set(state.requests), set(state.progress), set(state.add_numbers)]
    assert {"b"} == set(state.kv.tables)

    state, output = run_step(state)

    assert ("a",) == output.finished_request_ids
    assert () == schedule(state)[1].finished_request_ids


@pytest.mark.parametrize("asked", [False, True])
def test_client_is_told_of_an_end_if_it_asked(asked: bool) -> None:
    """[M-REL-05] With `include_finished_set`, the ids are kept per client until the next update."""
    config = make_config(include_finished_set=asked)
    state = make_state(
        config, *[make_request(name, client_index=index) for index, name in [(1, "a"), (0, "b"), (1, "c")]]
    )
    state = finish_requests(state, map(RequestId, "cba"))
    expected = [(1, ("c", "a")), (0, ("b",))] if asked else []

    assert expected == list(state.finished_by_client.items())
