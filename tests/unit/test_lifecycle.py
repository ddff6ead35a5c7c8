"""What comes from outside between the steps."""

from typing import Any

import attrs
import pytest

from kvsched_fp import (
    AutomatonGrammar,
    FinishRequests,
    InvalidEvent,
    LoRA,
    PauseState,
    RequestStatus,
    add_request,
    fail_grammar,
    finish_requests,
    reset_prefix_cache,
    schedule,
    set_grammar,
    set_pause_state,
    update,
)
from kvsched_fp.grammar import GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.hashing import extend_block_hashes
from kvsched_fp.progress import RequestSpecDecodeMetrics
from kvsched_fp.state import live_request_ids
from tests.unit.refusal import refused
from tests.unit.worlds import (
    batch,
    blocks_of,
    make_config,
    make_outgrown,
    make_request,
    make_result,
    make_state,
    run_steps,
    tokens_told,
)

A, B, C = map(RequestId, "abc")


def test_new_request_waits_behind_the_others() -> None:
    """[M-LIFE-01] First come, first served: a new request is the last to be served."""
    state = make_state(make_config(), make_request("b"), make_request("a"))

    assert ["b", "a"] == list(state.waiting)
    assert RequestStatus.WAITING is state.progress[A].status


def test_new_request_waits_in_its_place() -> None:
    """[M-LIFE-01] By priority, a new request may be the first to be served."""
    state = make_state(
        make_config(policy="priority"), make_request("b", priority=2), make_request("a", priority=1)
    )

    assert ["a", "b"] == list(state.waiting)


def test_full_blocks_are_hashed_at_once() -> None:
    """[M-LIFE-01] A prompt of 11 tokens has the hashes of its two full blocks before it is scheduled."""
    config = make_config()
    request = make_request("a", 11, cache_salt="s")
    expected = extend_block_hashes(config.block_hasher, (), request.prompt_token_ids, 0, 4, "s")

    assert list(expected) == list(make_state(config, request).progress[A].block_hashes)
    assert 2 == len(expected)


def test_nothing_is_hashed_without_prefix_caching() -> None:
    """Hashes serve the prefix cache only."""
    state = make_state(make_config(enable_prefix_caching=False), make_request("a", 11))

    assert 0 == len(state.progress[A].block_hashes)


def test_id_that_is_live_is_refused() -> None:
    """[M-LIFE-01] An id can be used again only when its request has left."""
    state = make_state(make_config(), make_request("a"))
    with refused(InvalidEvent, "request_id", "a", "not live", state=state):
        add_request(state, make_request("a", 3))
    again = add_request(finish_requests(state, [A]), make_request("a", 3))

    assert 3 == again.requests[A].num_prompt_tokens


def test_prompt_that_is_too_long_is_refused() -> None:
    """[M-LIFE-01] A prompt of `max_model_len` tokens fits, and one more does not."""
    state = make_state(make_config(max_model_len=8))
    with refused(InvalidEvent, "prompt_token_ids", "9 tokens", "at most max_model_len = 8", state=state):
        add_request(state, make_request("a", 9))

    assert 8 == add_request(state, make_request("a", 8)).requests[A].num_prompt_tokens


@pytest.mark.parametrize("runner_type", ["generate", "encoder_only", "diffusion"])
def test_pooling_needs_a_model_that_pools(runner_type: str) -> None:
    """[M-LIFE-01] A model does the one or the other for all of its requests."""
    pooling = make_request("a", pooling=True, max_tokens=1)
    state = make_state(make_config(runner_type=runner_type))
    with refused(InvalidEvent, "pooling", True, f"False, for a {runner_type} model", state=state):
        add_request(state, pooling)
    state = make_state(make_config(runner_type="pooling"))
    with refused(InvalidEvent, "pooling", False, "True, for a pooling model", state=state):
        add_request(state, make_request("a"))

    assert ["a"] == list(add_request(state, pooling).waiting)

    constrained = attrs.evolve(pooling, needs_grammar=True)
    with refused(InvalidEvent, "needs_grammar", True, "False for a pooling model", state=state):
        add_request(state, constrained)


@pytest.mark.parametrize("runner_type", ["pooling", "encoder_only"])
def test_session_needs_a_model_that_samples(runner_type: str) -> None:
    """[M-LIFE-01] Nothing is sampled that a session could go on from."""
    state = make_state(make_config(runner_type=runner_type))
    session = make_request("a", pooling=runner_type == "pooling", resumable=True, max_tokens=1)
    with refused(InvalidEvent, "resumable", True, f"False for a {runner_type} model", state=state):
        add_request(state, session)


def test_adapter_needs_a_configuration_with_adapters() -> None:
    """[M-LIFE-01] Where there are none, nobody counts them."""
    lora = LoRA("fine", 1)
    state = make_state(make_config())
    with refused(InvalidEvent, "lora", lora, "max_loras is not configured", state=state):
        add_request(state, make_request("a", lora=lora))

    assert ["a"] == list(make_state(make_config(max_loras=1), make_request("a", lora=lora)).waiting)


NO_DRAFTS_YET = RequestSpecDecodeMetrics(2, (0, 0, 0))


@pytest.mark.parametrize(
    ("level", "metrics"), [("none", None), ("summary", NO_DRAFTS_YET), ("detailed", NO_DRAFTS_YET)]
)
def test_drafts_of_a_request_are_counted_from_its_arrival_on(
    level: str, metrics: RequestSpecDecodeMetrics | None
) -> None:
    """There is a place for each number of drafts that may be accepted, none included."""
    config = make_config(num_spec_tokens=2, spec_decode_metrics=level)

    assert metrics == make_state(config, make_request("a")).progress[A].spec_decode_metrics


def test_request_with_a_grammar_waits_for_it() -> None:
    """[M-GRAM-01] It stands in its place in the queue, deferred; the grammar is handed to it."""
    grammar = AutomatonGrammar([[(7, 0)]])
    state = make_state(make_config(), make_request("a", needs_grammar=True), make_request("b"))

    assert RequestStatus.WAITING_FOR_GRAMMAR is state.progress[A].status
    assert (["a", "b"], {A}) == (list(state.waiting), set(state.deferred))

    state = set_grammar(state, A, grammar)

    assert grammar == state.progress[A].grammar
    assert RequestStatus.WAITING_FOR_GRAMMAR is state.progress[A].status
    assert [("a", 7), ("b", 7)] == batch(schedule(state)[1])


def test_request_may_be_told_that_there_is_no_grammar() -> None:
    """[M-GRAM-01] It keeps the reason until an update ends it [S-BLOCK-01, U-STEP-05]."""
    state = fail_grammar(
        make_state(make_config(), make_request("a", needs_grammar=True)), A, "no such rule"
    )

    assert GrammarError("no such rule") == state.progress[A].grammar
    assert ["a"] == list(state.waiting)


@pytest.mark.parametrize("request_id", ["b", "c", "z"])
def test_grammar_for_a_request_that_does_not_wait_for_one_is_refused(request_id: str) -> None:
    """[M-GRAM-01] `b` needs none, `c` runs with its own, and `z` is not there."""
    state = make_state(make_config(), make_request("c", needs_grammar=True), make_request("b"))
    state, _ = schedule(set_grammar(state, C, AutomatonGrammar([[]])))
    allowed = "a request that waits for its grammar"
    with refused(InvalidEvent, "request_id", request_id, allowed, state=state):
        set_grammar(state, RequestId(request_id), AutomatonGrammar([[]]))
    with refused(InvalidEvent, "request_id", request_id, allowed, state=state):
        fail_grammar(state, RequestId(request_id), "no")


@pytest.mark.parametrize("first", ["ready", "failed"])
def test_grammar_is_told_once(first: str) -> None:
    """[M-GRAM-01] Neither another grammar nor a failure may follow."""
    state = make_state(make_config(), make_request("a", needs_grammar=True))
    grammar = AutomatonGrammar([[]])
    state = set_grammar(state, A, grammar) if first == "ready" else fail_grammar(state, A, "no")
    allowed = "a request that waits for its grammar"
    with refused(InvalidEvent, "request_id", "a", allowed, state=state):
        set_grammar(state, A, grammar)
    with refused(InvalidEvent, "request_id", "a", allowed, state=state):
        fail_grammar(state, A, "no")


@pytest.mark.parametrize("ended", ["a", "b", "c", "d"])
def test_ended_request_leaves_at_once(ended: str) -> None:
    """[M-LIFE-02] Whatever a request was doing, it is in no queue, in no map and holds no block."""
    config = make_config(max_num_seqs=2)
    state = make_state(config, make_request("a"), make_request("b"), make_request("c"))
    state = add_request(run_steps(state, 1), make_request("d"))
    state, _ = schedule(state)
    after = finish_requests(state, [RequestId(ended)])

    assert ended not in [*after.running, *after.waiting, *after.kv_holding_waiting, *after.deferred]
    assert ended not in after.requests
    assert ended not in after.progress
    assert () == blocks_of(after, ended)
    assert (ended,) == after.finished_request_ids
    assert 3 == len(live_request_ids(after))


def test_late_result_of_an_ended_request_is_ignored() -> None:
    """[M-LIFE-02, U-TOK-02] Its tokens are delivered to nobody."""
    state, output = schedule(make_state(make_config(), make_request("a"), make_request("b")))
    state = update(finish_requests(state, [A]), make_result(state, output, {"a": (1,), "b": (2,)}))

    assert {"b": (2,)} == tokens_told(state)


def test_skipped_request_that_is_ended_is_not_deferred_any_more() -> None:
    """[M-LIFE-02] The set of deferred requests holds live ones only."""
    state = make_outgrown(num_steps=6)

    assert {B} == set(state.deferred)
    assert set() == set(finish_requests(state, [B]).deferred)


def test_requests_end_in_the_order_given() -> None:
    """[M-LIFE-02] The order of the ids is the order in which blocks are freed and ends are told."""
    state = run_steps(make_state(make_config(), *[make_request(name, 3) for name in "abc"]), 1)
    after = finish_requests(state, [C, A, B])

    assert ("c", "a", "b") == after.finished_request_ids
    assert [2, 1, 3] == after.kv.pool.free_blocks()[:3]


def test_all_end_in_the_order_of_their_arrival() -> None:
    """[M-LIFE-02] Without ids everything ends, the first added first, whoever runs or waits."""
    config = make_config(policy="priority", max_num_seqs=1)
    state = make_state(config, *[make_request(name, priority=-ord(name)) for name in "cadb"])
    after = finish_requests(run_steps(state, 1), None)

    assert ("c", "a", "d", "b") == after.finished_request_ids
    assert 16 == after.kv.pool.num_free_blocks
    assert 0 == len(after.requests)


def test_one_id_may_stand_for_itself() -> None:
    """A string is one id, not its letters."""
    state = make_state(make_config(), make_request("ab"), make_request("a"))

    assert ["a"] == list(finish_requests(state, "ab").waiting)


def test_id_that_ends_twice_between_two_steps_is_told_once() -> None:
    """[M-REL-05] `a` was used again and ended again; the first end gives it its place."""
    state = make_state(make_config(include_finished_set=True), make_request("a"), make_request("b"))
    state = add_request(finish_requests(state, [A, B]), make_request("a"))
    state = finish_requests(state, [A])

    assert ("a", "b") == state.finished_request_ids
    assert [(0, ("a", "b"))] == list(state.finished_by_client.items())


@pytest.mark.parametrize("ids", [["a", "z"], ["z", "a"], ["z"]])
def test_unknown_id_ends_nobody(ids: list[str]) -> None:
    """An id that is not live is refused before anything is ended."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    with refused(InvalidEvent, "request_ids", "z", "ids of live requests", state=state):
        finish_requests(state, map(RequestId, ids))


@pytest.mark.parametrize("status", [RequestStatus.RUNNING, RequestStatus.PREEMPTED, "finished", None])
def test_status_that_is_not_final_ends_nobody(status: Any) -> None:
    """A request ends with a final status only."""
    state = make_state(make_config(), make_request("a"))
    with refused(InvalidEvent, "status", status, "a final status", state=state):
        finish_requests(state, [A], status)


def test_ids_are_used_up_by_the_event_only_once() -> None:
    """An iterator of ids is as good as a list, and a doubled id counts once."""
    state = make_state(make_config(), make_request("a"), make_request("b"))

    assert ("b",) == finish_requests(state, iter([B, B])).finished_request_ids
    assert ("b", "a") == FinishRequests(iter([B, A, B])).request_ids


@pytest.mark.parametrize("pause_state", list(PauseState))
def test_pausing_changes_the_pause_state_only(pause_state: PauseState) -> None:
    """[M-LIFE-03] Two pauses later the state is what it was."""
    state = run_steps(make_state(make_config(), make_request("a")), 1)
    paused = set_pause_state(state, pause_state)

    assert pause_state is paused.pause_state
    assert state == set_pause_state(paused, PauseState.UNPAUSED)


def test_reset_is_not_done_while_a_block_is_held() -> None:
    """[K-RESET-01] The prefix index stays as it is, and so does everything else."""
    state = run_steps(make_state(make_config(), make_request("a", 8)), 1)
    after, done = reset_prefix_cache(state)

    assert not done
    assert state == after


def test_reset_forgets_the_prefix_index() -> None:
    """[K-RESET-01] With no block held every key is forgotten, the free order stays, and it is counted."""
    state = run_steps(make_state(make_config(), make_request("a", 8, max_tokens=1)), 1)
    after, done = reset_prefix_cache(state)

    assert done
    assert 2 == len(state.kv.pool.cached)
    assert 0 == len(after.kv.pool.cached)
    assert state.kv.pool.free_blocks() == after.kv.pool.free_blocks()
    assert after.kv.prefix_cache_stats.reset
    assert [("b", 8)] == batch(schedule(add_request(after, make_request("b", 8)))[1])


def test_reset_without_statistics_counts_nothing() -> None:
    """With `log_stats` off, nothing is noted."""
    after, done = reset_prefix_cache(make_state(make_config(log_stats=False)))

    assert done
    assert not after.kv.prefix_cache_stats.reset


def test_reset_with_running_requests_preempts_them_in_their_order() -> None:
    """[K-RESET-02] The last one is preempted first, so that they wait in the order in which they ran."""
    state = run_steps(make_state(make_config(), *[make_request(name) for name in "abc"]), 1)
    state = add_request(state, make_request("d"))
    after, done = reset_prefix_cache(state, reset_running_requests=True)

    assert done
    assert () == after.running
    assert ["a", "b", "c", "d"] == list(after.waiting)
    assert ("c", "b", "a") == after.preempted_request_ids
    assert 16 == after.kv.pool.num_free_blocks


def test_reset_makes_the_tokens_in_flight_worthless() -> None:
    """[K-RESET-02, M-REL-03] What comes back is dropped, though the requests are admitted at once."""
    state, first = schedule(make_state(make_config(), make_request("a")))
    late = make_result(state, first, {"a": (5,)})
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    state, second = schedule(state)
    state = update(state, late)

    assert [("a", 7)] == batch(second)
    assert {} == tokens_told(state)
    assert {"a": (7,)} == tokens_told(update(state, make_result(state, second)))


def test_reset_makes_v1_send_all_tokens_again() -> None:
    """[K-RESET-02] For the V1 output, requests of a reset count as not scheduled in the step before."""
    state = run_steps(make_state(make_config(use_v2_model_runner=False), make_request("a")), 2)
    state, _ = reset_prefix_cache(state, reset_running_requests=True)
    _, output = schedule(state)

    assert {"a": 9} == {
        request_id: len(tokens)
        for request_id, tokens in output.scheduled_cached_requests.all_token_ids.items()
    }


def test_reset_that_preempts_is_done_though_nothing_runs() -> None:
    """[K-RESET-02] With nothing to preempt it is a plain reset."""
    state = make_state(make_config(), make_request("a"))
    after, done = reset_prefix_cache(state, reset_running_requests=True)

    assert done
    assert ["a"] == list(after.waiting)
    assert () == after.preempted_request_ids


def test_reset_is_not_done_while_a_session_holds_blocks() -> None:
    """[K-RESET-02] What ran stays preempted all the same (deviation D-12)."""
    config = make_config()
    state = make_state(config, make_request("a", resumable=True, max_tokens=1), make_request("b"))
    state = run_steps(state, 1)
    after, done = reset_prefix_cache(state, reset_running_requests=True)

    assert not done
    assert ((), ["b"]) == (after.running, list(after.waiting))
    assert len(state.kv.pool.cached) == len(after.kv.pool.cached)
    assert (1, 2) == blocks_of(after, "a")
