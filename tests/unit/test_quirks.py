"""What the machine does without the reference's quirks; with them, it does what all other tests say."""

from typing import Any

import pytest

from kvsched_fp import (
    InvalidConfig,
    InvalidEvent,
    SchedulerConfig,
    SchedulerState,
    add_request,
    finish_requests,
    schedule,
    update,
    update_drafts,
)
from kvsched_fp.config import ALL_QUIRKS, Quirk
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants import check_full
from kvsched_fp.progress import num_known_tokens
from kvsched_fp.request import RequestStatus
from kvsched_fp.trace import decode_config, encode_config
from tests.unit.refusal import refused
from tests.unit.worlds import (
    batch,
    make_config,
    make_request,
    make_result,
    make_state,
    make_waiting_for_a_session,
    run_step,
    run_steps,
    run_together,
)

A, B = map(RequestId, "ab")


def _without(quirk: Quirk) -> list[Quirk]:
    return [other for other in Quirk if other is not quirk]


def test_all_quirks_are_on() -> None:
    """A configuration follows the reference exactly unless it says otherwise; a trace tells only then."""
    config = SchedulerConfig()

    assert ALL_QUIRKS == config.quirks
    assert "quirks" not in encode_config(config)


def test_quirks_are_a_set() -> None:
    """Quirks are given in any order, by name or as members; a trace has their names."""
    config = SchedulerConfig(quirks=["preempts_in_vain", Quirk.CHARGES_REUSED_ID, "preempts_in_vain"])

    assert (Quirk.CHARGES_REUSED_ID, Quirk.PREEMPTS_IN_VAIN) == config.quirks
    assert ["charges_reused_id", "preempts_in_vain"] == encode_config(config)["quirks"]
    assert config == decode_config(encode_config(config))


@pytest.mark.parametrize("quirks", ["preempts_in_vain", ["haste"], 3, None])
def test_unknown_quirks_are_refused(quirks: Any) -> None:
    """What is no list of quirks is refused, and the error says which there are."""
    value = quirks[0] if isinstance(quirks, list) else quirks
    with refused(InvalidConfig, "quirks", value, "'preempts_in_vain'"):
        SchedulerConfig(quirks=quirks)


@pytest.mark.parametrize("follows", [True, False])
def test_last_token_of_a_full_prompt(follows: bool) -> None:
    """[S-RUN-10] A prompt of max_model_len in pieces: the last token is left, or computed alone."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.LEAVES_LAST_PROMPT_TOKEN)
    config = make_config(max_model_len=16, max_num_batched_tokens=8, quirks=quirks)
    state = run_steps(make_state(config, make_request("a", 16)), 2)

    assert ([] if follows else [("a", 1)]) == batch(schedule(state)[1])


@pytest.mark.parametrize("follows", [True, False])
def test_victims_that_do_not_suffice(follows: bool) -> None:
    """[S-PRE-07, S-WAIT-01] `a` needs more than all have: everybody is thrown out, or `a` waits for `b`."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.PREEMPTS_IN_VAIN)
    config = make_config(
        usable_blocks=3,
        max_model_len=40,
        allow_undersized_pool=True,
        scheduler_reserve_full_isl=False,
        long_prefill_token_threshold=8,
        quirks=quirks,
    )
    state = run_steps(make_state(config, make_request("a", 20), make_request("b", 2)), 1)
    state = add_request(state, make_request("c", 2))
    state, output = schedule(state)

    assert ([] if follows else [("b", 1)]) == batch(output)
    assert (("b", "a") if follows else ()) == output.preempted_request_ids


def test_slots_for_drafts_are_lacking_too() -> None:
    """[S-PRE-07] The next token of `a` has room, but not the two slots of the drafter behind it."""
    config = make_config(
        usable_blocks=3,
        max_model_len=16,
        allow_undersized_pool=True,
        num_spec_tokens=2,
        num_lookahead_tokens=2,
        quirks=_without(Quirk.PREEMPTS_IN_VAIN),
    )
    state = run_steps(make_state(config, make_request("a", 9)), 2)
    state, output = schedule(state)

    assert ([], ()) == (batch(output), output.preempted_request_ids)
    assert (A,) == state.running


def test_who_lacks_blocks_gives_way_to_a_session_with_input() -> None:
    """[S-PRE-08] `a` waits for the session's blocks for as long as that waits for input, and no longer."""
    idle, output = schedule(make_waiting_for_a_session(has_input=False))
    assert ([], (), (A,)) == (batch(output), output.preempted_request_ids, idle.running)
    state, output = schedule(make_waiting_for_a_session(has_input=True))
    assert ([], (A,), ()) == (batch(output), output.preempted_request_ids, state.running)
    state = update(state, make_result(state, output))

    assert [("s", 1)] == batch(schedule(state)[1])


def test_nobody_gives_way_while_somebody_goes_on() -> None:
    """[S-PRE-08] `b` decodes before `a`, in a block of its own; it has a row, then it is in flight."""
    config = make_config(usable_blocks=5, scheduler_reserve_full_isl=False, quirks=())
    session = make_request("s", 4, resumable=True, max_tokens=2)
    state = make_state(config, session, make_request("b", 1, max_tokens=4), make_request("a", 7))
    state = add_request(run_steps(state, 2), make_request("s", 1, resumable=True))
    state, output = schedule(state)
    assert ([("b", 1)], ()) == (batch(output), output.preempted_request_ids)
    state, output = schedule(state)

    assert ([], ()) == (batch(output), output.preempted_request_ids)


def test_no_prompt_is_held_back_for_who_lacks_blocks() -> None:
    """[S-PRE-07, S-HOLD-01] `b` lacks a block that a session keeps; then the prompt of `a` goes on."""
    config = make_config(
        usable_blocks=3,
        long_prefill_token_threshold=4,
        scheduler_reserve_full_isl=False,
        prefill_schedule_interval=9,
        quirks=_without(Quirk.PREEMPTS_IN_VAIN),
    )
    session = make_request("s", 4, resumable=True, max_tokens=1)
    state = run_steps(make_state(config, session, make_request("a", 8), make_request("b", 3)), 2)
    state, output = run_step(state)
    assert ([], (A, B)) == (batch(output), state.running)

    assert [("a", 4)] == batch(schedule(state)[1])


def test_shared_blocks_are_reclaimed_once() -> None:
    """[S-PRE-07] A block that a victim shares with somebody who stays is no room."""
    config = make_config(usable_blocks=4, quirks=_without(Quirk.PREEMPTS_IN_VAIN))
    first = make_request("a", 8)
    state, _ = run_step(make_state(config, first))
    state = add_request(state, make_request("b", 9, tokens=first.prompt_token_ids))
    state = run_steps(state, 1)

    assert (A, B) == state.running
    assert 0 == state.kv.pool.num_free_blocks
    assert () == schedule(state)[1].preempted_request_ids


@pytest.mark.parametrize("follows", [True, False])
def test_of_equals(follows: bool) -> None:
    """[S-PRE-02] Of two equals, the one that has run longer gives way, or the other."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.OLDEST_OF_EQUALS_GIVES_WAY)
    config = make_config(usable_blocks=4, policy="priority", quirks=quirks)
    requests = [make_request(name, 7, arrival_time=1.0) for name in "ab"]
    state = run_steps(run_together(config, *requests), 1)

    assert (A if follows else B,) == schedule(state)[1].preempted_request_ids


@pytest.mark.parametrize("victim", "abc")
def test_least_important_gives_way_wherever_it_runs(victim: str) -> None:
    """[S-PRE-02] Without the quirk the running requests are gone through from behind, all of them."""
    quirks = _without(Quirk.OLDEST_OF_EQUALS_GIVES_WAY)
    config = make_config(usable_blocks=6, policy="priority", quirks=quirks)
    requests = [make_request(name, 7, priority=int(name == victim)) for name in "abc"]
    state = run_steps(run_together(config, *requests), 1)

    assert (victim,) == schedule(state)[1].preempted_request_ids


@pytest.mark.parametrize("follows", [True, False])
def test_reused_id(follows: bool) -> None:
    """[M-LIFE-05] An id with a step in flight is taken, or refused until the step has come back."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.CHARGES_REUSED_ID)
    state, output = schedule(make_state(make_config(quirks=quirks), make_request("a")))
    state = finish_requests(state, [A])
    if follows:
        assert A in add_request(state, make_request("a")).requests
        return
    with refused(InvalidEvent, "request_id", A, "an id of which no step is in flight"):
        add_request(state, make_request("a"))
    state = update(state, make_result(state, output))

    assert A in add_request(state, make_request("a")).requests


@pytest.mark.parametrize("follows", [True, False])
def test_input_beyond_the_longest_length(follows: bool) -> None:
    """[M-SESS-09] A session that waits for input with 7 tokens kept has room for 9 more, or takes any."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.OUTGROWS_MODEL_LEN)
    config = make_config(max_model_len=16, quirks=quirks)
    state, _ = run_step(make_state(config, make_request("a", 7, resumable=True, max_tokens=1)))
    fitting, longer = (make_request("a", length, resumable=True) for length in (9, 10))

    assert 16 == add_request(state, fitting).requests[A].num_prompt_tokens
    if follows:
        assert 17 == add_request(state, longer).requests[A].num_prompt_tokens
        return
    allowed = "at most 9 tokens for session 'a', which may keep 7 until then: max_model_len = 16"
    with refused(InvalidEvent, "prompt_token_ids", "10 tokens", allowed, state=state):
        add_request(state, longer)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "stored", "num_room"),
    [
        (7, 1, [], 9),
        (7, 3, [], 7),
        (7, 100, [], 1),  # the answer stops with token 16, which is not kept
        (15, 100, [], 1),  # with token 16, too
        (16, 100, [], 0),  # and here with token 17
        (7, 3, [(2, 2)], 4),
        (3, 1, [(2, 1), (4, 3)], 5),
        (3, 1, [(2, 100), (1, 1)], 0),
    ],
)
def test_room_behind_answers_that_are_to_come(
    prompt: int, max_tokens: int, stored: list[tuple[int, int]], num_room: int
) -> None:
    """[M-SESS-09] Input for a busy session has to fit behind the longest answers until then."""
    config = make_config(max_model_len=16, quirks=_without(Quirk.OUTGROWS_MODEL_LEN))
    request = make_request("a", prompt, resumable=True, max_tokens=max_tokens)
    state, _ = schedule(make_state(config, request))
    for length, most in stored:
        state = add_request(state, make_request("a", length, resumable=True, max_tokens=most))
    too_long = make_request("a", num_room + 1, resumable=True)
    with refused(InvalidEvent, "prompt_token_ids", f"{num_room + 1} tokens", f"at most {num_room} tokens"):
        add_request(state, too_long)
    if num_room:
        state = add_request(state, make_request("a", num_room, resumable=True))

    assert len(stored) + bool(num_room) == len(state.progress[A].chunks)
    assert None is add_request(state, make_request("a")).progress[A].chunks[-1]  # the end always fits


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_session_that_uses_all_its_room(async_scheduling: bool) -> None:
    """[M-SESS-09] Input that just fits behind the longest answer is computed to its end."""
    config = make_config(
        max_model_len=16, quirks=_without(Quirk.OUTGROWS_MODEL_LEN), async_scheduling=async_scheduling
    )
    state = make_state(config, make_request("a", 7, resumable=True, max_tokens=3))
    state = add_request(state, make_request("a", 7, resumable=True))
    for _ in range(5):
        state, _ = run_step(state)
        check_full(state)

    assert 16 == state.requests[A].num_prompt_tokens
    assert 17 == num_known_tokens(state.requests[A], state.progress[A])
    assert RequestStatus.WAITING_FOR_INPUT is state.progress[A].status


@pytest.mark.parametrize("follows", [True, False])
def test_drafts_behind_a_token_in_flight(follows: bool) -> None:
    """[D-NEXT-01] Drafts that come while a step is in flight are kept, or thrown away."""
    quirks = ALL_QUIRKS if follows else _without(Quirk.DRAFTS_BEHIND_UNKNOWN_TOKEN)
    state, _ = run_step(make_state(make_config(num_spec_tokens=2, quirks=quirks), make_request("a")))
    settled, ahead = update_drafts(state, {A: (1, 2)}), update_drafts(schedule(state)[0], {A: (1, 2)})

    assert (1, 2) == settled.progress[A].spec_token_ids
    assert ((1, 2) if follows else ()) == ahead.progress[A].spec_token_ids


def _two_sessions_with_input(*quirks: Quirk, **changes: Any) -> SchedulerState:
    """Make a state in which sessions `a` and `b` wait with a block each, and each needs three."""
    fields: dict[str, Any] = {"usable_blocks": 3, "max_model_len": 12, "quirks": quirks}
    config = make_config(**fields | changes)
    sessions = [
        make_request(name, 4, resumable=True, max_tokens=1, priority=-i) for i, name in enumerate("ab")
    ]
    state = run_steps(make_state(config, *sessions), 1)
    for name in "ab":
        state = add_request(state, make_request(name, 5, resumable=True, max_tokens=1))
    return state


@pytest.mark.parametrize(("policy", "expected"), [("fcfs", ("a", "b")), ("priority", ("b", "a"))])
def test_last_in_line_gives_its_blocks_back(policy: str, expected: tuple[str, str]) -> None:
    """[S-PRE-09, M-REL-06] The first goes on; the last waits with nothing, and the model runner is told."""
    first, last = expected
    state, output = schedule(_two_sessions_with_input(policy=policy))

    assert [(first, 5)] == batch(output)
    assert ((first,), [last], (last,)) == (state.running, list(state.waiting), output.preempted_request_ids)
    assert RequestId(last) not in state.kv.tables
    assert 0 == state.progress[RequestId(last)].num_computed_tokens
    assert RequestStatus.WAITING is state.progress[RequestId(last)].status
    assert last not in state.deferred
    check_full(state)


def test_with_the_quirk_both_keep_their_blocks() -> None:
    """Deviation D-16: nobody is in the step, nor in any after it."""
    state, output = schedule(_two_sessions_with_input(*ALL_QUIRKS))

    assert [] == batch(output)
    assert ["a", "b"] == list(state.kv_holding_waiting)


def test_nobody_gives_blocks_back_to_who_fits() -> None:
    """[S-PRE-09] The two blocks that are free are enough for `a`; `b` keeps its own."""
    state, output = schedule(_two_sessions_with_input(usable_blocks=4))

    assert ([("a", 5)], ()) == (batch(output), output.preempted_request_ids)
    assert ["b"] == list(state.kv_holding_waiting)


def test_nobody_gives_blocks_back_while_somebody_runs() -> None:
    """[S-PRE-09] Who runs will end, and make room."""
    config = make_config(usable_blocks=4, quirks=())
    sessions = [make_request(name, 4, resumable=True, max_tokens=1) for name in "ab"]
    state = run_steps(make_state(config, *sessions, make_request("c", 2, max_tokens=3)), 1)
    for name in "ab":
        state = add_request(state, make_request(name, 5, resumable=True, max_tokens=1))
    state, output = schedule(state)

    assert [("c", 1)] == batch(output)
    assert ["a", "b"] == list(state.kv_holding_waiting)


def test_nobody_gives_blocks_back_in_vain() -> None:
    """[S-PRE-09] An idle session keeps three of six blocks; what `b` has is too little for `a`."""
    config = make_config(usable_blocks=6, max_model_len=24, quirks=())
    sessions = [
        make_request(name, length, resumable=True, max_tokens=1) for name, length in SESSION_LENGTHS
    ]
    state = run_steps(make_state(config, *sessions), 1)
    state = add_request(state, make_request("a", 15, resumable=True, max_tokens=1))
    state = add_request(state, make_request("b", 1, resumable=True, max_tokens=1))
    state, output = schedule(state)

    assert ([], ()) == (batch(output), output.preempted_request_ids)
    assert ["idle", "a", "b"] == list(state.kv_holding_waiting)


SESSION_LENGTHS = (("idle", 12), ("a", 4), ("b", 4))


def test_nobody_gives_way_in_vain() -> None:
    """[S-PRE-08] An idle session keeps three of six blocks; what `b` has, which runs, is too little."""
    config = make_config(usable_blocks=6, max_model_len=24, scheduler_reserve_full_isl=False, quirks=())
    sessions = [
        make_request(name, length, resumable=True, max_tokens=1) for name, length in SESSION_LENGTHS[:2]
    ]
    state = run_steps(make_state(config, *sessions, make_request("b", 7, max_tokens=9)), 5)
    state = add_request(state, make_request("a", 19, resumable=True, max_tokens=1))
    state, output = schedule(state)

    assert ([], ()) == (batch(output), output.preempted_request_ids)
    assert (B,) == state.running


def test_who_gives_back_stands_behind_the_preempted() -> None:
    """[S-PRE-08, M-REL-06] `c` gives way, then `b` gives its block back to `a`; `c` stays in front."""
    config = make_config(usable_blocks=6, max_model_len=24, scheduler_reserve_full_isl=False, quirks=())
    sessions = [make_request(name, 4, resumable=True, max_tokens=1) for name in "ab"]
    state = run_steps(make_state(config, *sessions, make_request("c", 15, max_tokens=9)), 4)
    state = add_request(state, make_request("a", 19, resumable=True, max_tokens=1))
    state = add_request(state, make_request("b", 1, resumable=True, max_tokens=1))
    state = run_steps(state, 1)
    state, output = schedule(state)

    assert [("a", 19)] == batch(output)
    assert ["c", "b"] == list(state.waiting)
    check_full(state)
