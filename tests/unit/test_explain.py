"""`explain` tells what `schedule` does, and why."""

import random
from typing import Any

import attrs
import pytest

from kvsched_fp import (
    LoRA,
    PauseState,
    Request,
    SamplingParams,
    SchedulerConfig,
    SchedulerState,
    StepResult,
    add_request,
    explain,
    fail_grammar,
    initial_state,
    schedule,
    set_pause_state,
    update,
    update_drafts,
)
from kvsched_fp.ids import RequestId, StepId
from tests.meta.rules import read_rules
from tests.unit.invariants.good import deferred_state
from tests.unit.worlds import make_config, make_request, make_state, plan_steps, run_steps

A = RequestId("a")

BASE = {
    "block_size": 2,
    "num_blocks": 9,
    "max_model_len": 16,
    "max_num_batched_tokens": 6,
    "max_num_seqs": 3,
}


def random_states(seed: int, **changes: object) -> list[SchedulerState]:
    """Play a small crowded history, and give the states that a step is planned from."""
    chance = random.Random(seed)
    config = SchedulerConfig.from_mapping({**BASE, **changes})
    max_in_flight = 2 if config.async_scheduling else 1
    state = initial_state(config)
    states = []
    samples: dict[StepId, list[RequestId]] = {}
    for number in range(25):
        if chance.random() < 0.5:
            state = _add(chance, state, RequestId(f"r{number}"))
        states.append(state)
        state, output = schedule(state)
        rows = output.num_scheduled_tokens
        samples[output.step_id] = [row for row in rows if not state.progress[row].is_prefill_chunk]
        if len(state.in_flight) == max_in_flight:
            state = _answer(chance, state, samples)
        if config.num_spec_tokens and not config.async_scheduling:
            state = update_drafts(state, _propose(chance, state))
    return states


def _add(chance: random.Random, state: SchedulerState, request_id: RequestId) -> SchedulerState:
    """Add a request; where there are adapters, some have one, are sessions, or wait for a grammar."""
    prompt = [chance.randrange(2) for _ in range(chance.randrange(1, 11))]
    fields: dict[str, Any] = {}
    if state.config.max_loras is not None:
        kind = chance.randrange(6)
        fields["resumable"] = kind == 0
        fields["needs_grammar"] = kind == 1
        fields["lora"] = LoRA(f"l{kind}", kind) if kind > 3 else None
    request = Request(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=chance.randrange(1, 9)),
        priority=chance.randrange(3),
        **fields,
    )
    return add_request(state, request)


def _answer(
    chance: random.Random, state: SchedulerState, samples: dict[StepId, list[RequestId]]
) -> SchedulerState:
    """Answer the oldest step: each row that samples gets a token, and accepts some of its drafts."""
    output = state.in_flight[0]
    sampled = {}
    for request_id in samples[output.step_id]:
        num_drafts = len(output.scheduled_spec_token_ids.get(request_id, ()))
        sampled[request_id] = [chance.randrange(2) for _ in range(1 + chance.randrange(num_drafts + 1))]
    return update(state, StepResult(step_id=output.step_id, sampled_token_ids=sampled))


def _propose(chance: random.Random, state: SchedulerState) -> dict[RequestId, tuple[int, ...]]:
    return {
        request_id: tuple(chance.randrange(2) for _ in range(chance.randrange(3)))
        for request_id in state.running
    }


CONFIGS = [
    {},
    {"policy": "priority"},
    {"long_prefill_token_threshold": 2},
    {"prefill_schedule_interval": 3},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 16},
    {"max_num_scheduled_tokens": 3},
    {"watermark": 0.3},
    {"async_scheduling": True},
    {"async_scheduling": True, "num_spec_tokens": 2, "num_prefill_lookahead_tokens": 2},
    {"async_scheduling": True, "pipeline_parallel_size": 2},
    {"num_spec_tokens": 2, "max_num_new_slots_for_drafting": 1, "num_prefill_lookahead_tokens": 2},
    {"num_spec_tokens": 2, "max_num_seqs": 6},
    {"max_loras": 1, "max_num_seqs": 4},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_explain_gives_what_schedule_gives(seed: int, changes: dict[str, object]) -> None:
    """The tokens in the reasons are the batch, for every state of a history."""
    for state in random_states(seed, **changes):
        _, output = schedule(state)
        explained = {reason.request_id: reason.num_tokens for reason in explain(state) if reason.num_tokens}

        assert dict(output.num_scheduled_tokens) == explained


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_every_live_request_has_one_reason(changes: dict[str, object]) -> None:
    """Nobody is left without a reason, and nobody has two."""
    for state in random_states(7, **changes):
        named = [reason.request_id for reason in explain(state)]

        assert sorted(state.requests) == sorted(named)


def test_reasons_name_rules_that_are_stated() -> None:
    """Each rule that a reason names stands in the specification, and many different ones come up."""
    named = {
        reason.rule_id
        for changes in CONFIGS
        for seed in range(6)
        for state in random_states(seed, **changes)
        for reason in explain(state)
    }

    assert sorted(named - {rule.rule_id for rule in read_rules()}) == []
    assert {"S-RUN-02", "S-WAIT-05", "S-WAIT-07", "S-PRE-02", "S-PRE-05", "S-LONG-01", "S-BUD-01"} <= named
    assert {"S-RUN-04", "S-WAIT-01", "S-WAIT-03", "S-WAIT-06", "S-WAIT-08"} <= named
    assert {"S-RUN-07", "S-RUN-08", "S-WAIT-12", "S-WAIT-13", "S-DRAFT-03", "S-DRAFT-04"} <= named


def test_a_self_preemption_gives_its_numbers() -> None:
    """The text of a preemption says how many blocks were needed and how many were free."""
    texts = [
        reason.text
        for seed in range(6)
        for state in random_states(seed)
        for reason in explain(state)
        if reason.rule_id == "S-PRE-05"
    ]

    assert any("preempted itself: r" in text and "needed 1 blocks, 0 free" in text for text in texts)


def test_pauses_are_reasons() -> None:
    """While everything is paused nobody is reached; while new requests are, the waiting ones are not."""
    state = random_states(3)[-1]
    paused = set_pause_state(state, PauseState.PAUSED_ALL)
    named = {reason.rule_id for reason in explain(paused)}

    assert {"S-BUD-01"} == named

    state = add_request(run_steps(make_state(make_config(), make_request("x")), 1), make_request("y"))
    paused = set_pause_state(state, PauseState.PAUSED_NEW)
    by_request = {reason.request_id: reason.rule_id for reason in explain(paused)}

    assert {"x": "S-RUN-02", "y": "S-WAIT-02"} == by_request


def test_explaining_changes_nothing() -> None:
    """A state is the same after it was explained, and gives the same step."""
    for state in random_states(5):
        before = schedule(state)
        explain(state)

        assert before == schedule(state)


def reasons(state: SchedulerState, **options: bool) -> dict[str, tuple[int, str, str]]:
    """Give tokens, rule and text of each request."""
    return {
        reason.request_id: (reason.num_tokens, reason.rule_id, reason.text)
        for reason in explain(state, **options)
    }


def test_drafts_and_placeholders_are_tokens_that_a_request_lacks() -> None:
    """[S-RUN-02] The text says how many of them are drafts."""
    config = make_config(num_spec_tokens=3)
    state = update_drafts(run_steps(make_state(config, make_request("a")), 1), {A: (50, 51)})
    short = update_drafts(
        run_steps(make_state(make_config(num_spec_tokens=3, max_model_len=9), make_request("a")), 1),
        {A: (50, 51)},
    )
    in_flight = plan_steps(make_state(make_config(async_scheduling=True), make_request("a")), 1)

    assert {"a": (3, "S-RUN-02", "gets all 3 tokens that it lacks, 2 of them drafts")} == reasons(state)
    assert {
        "a": (
            1,
            "S-RUN-02",
            "gets 1 of the 3 tokens that it lacks, 2 of them drafts: max_model_len is 9",
        )
    } == reasons(short)
    assert {"a": (1, "S-RUN-02", "gets all 1 tokens that it lacks")} == reasons(in_flight)


def test_drafting_slots_are_part_of_the_limit() -> None:
    """[S-BUD-02] The limit is what the slots leave of the input budget."""
    config = make_config(
        num_spec_tokens=2, max_num_batched_tokens=8, max_num_new_slots_for_drafting=2, max_num_seqs=2
    )
    expected = "gets 6 of the 9 tokens that it lacks, after 0 found or computed: " + (
        "what was left of the input budget is 6"
    )

    assert {"a": (6, "S-BUD-02", expected)} == reasons(make_state(config, make_request("a", 9)))


def test_request_that_is_sure_to_end_says_so() -> None:
    """[S-RUN-07] With the number of tokens that it may have."""
    state = plan_steps(make_state(make_config(async_scheduling=True), make_request("a", max_tokens=1)), 1)

    assert {"a": (0, "S-RUN-07", "its steps in flight are sure to reach max_tokens = 1")} == reasons(state)


def test_request_in_the_pipeline_says_when_it_goes_on() -> None:
    """[S-RUN-08] With both steps."""
    config = make_config(async_scheduling=True, pipeline_parallel_size=3)
    state = plan_steps(make_state(config, make_request("a")), 1)

    assert {"a": (0, "S-RUN-08", "may be decoded again from step 4 on, this is step 2")} == reasons(state)


def test_canvas_in_flight_is_a_reason() -> None:
    """[S-CANVAS-02] Not that it had to wait for a step."""
    config = make_config(async_scheduling=True, runner_type="diffusion", num_spec_tokens=4)
    state = plan_steps(make_state(config, make_request("a", max_denoise_steps=1)), 2)

    assert {"a": (0, "S-CANVAS-02", "all 1 steps of its only canvas are in flight")} == reasons(state)


def test_gap_for_the_drafter_is_a_reason() -> None:
    """[S-DRAFT-03] It cuts `a`, and leaves nothing for `b`, which is skipped; `c` goes on."""
    config = make_config(max_num_batched_tokens=8, num_prefill_lookahead_tokens=3, num_spec_tokens=3)
    requests = [make_request("a", 6), make_request("b", 3), make_request("c", 1)]
    long = make_state(config, make_request("a", 9))

    assert (6, "S-DRAFT-03") == reasons(long)["a"][:2]
    assert reasons(long)["a"][2].endswith(": the drafter reads 3 known tokens ahead")
    assert [("a", 6), ("b", 0), ("c", 1)] == [
        (name, tokens) for name, (tokens, _, _) in reasons(make_state(config, *requests)).items()
    ]
    assert reasons(make_state(config, *requests))["b"][1:] == (
        "S-DRAFT-03",
        "skipped: no piece of its prompt that fits leaves the drafter enough to read ahead",
    )


def test_padding_is_a_reason() -> None:
    """[S-DRAFT-04] Where it fits; where it does not, it ends the phase."""
    state = run_steps(make_state(make_config(num_spec_tokens=3), make_request("a")), 1)
    state = add_request(state, make_request("b", 1))
    tight = attrs.evolve(state, config=attrs.evolve(state.config, max_num_scheduled_tokens=4))
    tight = add_request(tight, make_request("c", 1))

    assert (
        4,
        "S-DRAFT-04",
        "gets its last token, after 0 found or computed, padded with 3 placeholders",
    ) == reasons(state)["b"]
    assert (
        0,
        "S-DRAFT-04",
        "ends the phase: padded to the rows of the decodes, it does not fit into what is left",
    ) == reasons(tight)["b"]
    assert (0, "S-DRAFT-04") == reasons(tight)["c"][:2]
    assert reasons(tight)["c"][2].startswith("not reached: the phase ended at a request ahead of it")


def test_what_a_request_waits_for_is_a_reason() -> None:
    """[S-WAIT-12] Its grammar, the update that ends it for want of one, or the next input; others go on."""
    session = make_request("s", max_tokens=1, resumable=True)
    state = run_steps(make_state(make_config(), session), 1)
    for name in ("g", "f"):
        state = add_request(state, make_request(name, needs_grammar=True))
    state = fail_grammar(add_request(state, make_request("b")), RequestId("f"), "no")

    assert {
        "s": (0, "S-WAIT-12", "skipped: it waits for the next input of its session"),
        "g": (0, "S-WAIT-12", "skipped: it waits for its grammar"),
        "f": (0, "S-WAIT-12", "skipped: there is no grammar for it, and the next update ends it"),
        "b": (7, "S-WAIT-05", "gets all 7 tokens that it lacks, after 0 found or computed"),
    } == reasons(state)


def test_output_that_is_still_to_come_is_a_reason() -> None:
    """[S-WAIT-04] `b` was preempted while it sampled, and still gets that token."""
    expected = (0, "S-WAIT-04", "skipped: its stale output is still in flight and will be delivered")

    assert expected == reasons(deferred_state())["b"]


def test_adapter_that_is_one_too_many_is_a_reason() -> None:
    """[S-WAIT-13] It is skipped; the phase goes on."""
    requests = [make_request(name, lora=LoRA(name, ord(name))) for name in "ab"]
    state = make_state(make_config(max_loras=1), *requests, make_request("c"))

    assert (
        0,
        "S-WAIT-13",
        "skipped: its adapter would be one too many among the running requests",
    ) == reasons(state)["b"]
    assert 7 == reasons(state)["c"][0]


def test_session_that_waits_for_input_is_counted_as_active() -> None:
    """[S-WAIT-03] With one place, `b` is not reached for want of one; nobody paused anything."""
    session = make_request("a", max_tokens=1, resumable=True)
    state = run_steps(make_state(make_config(max_num_seqs=1), session), 1)
    state = add_request(state, make_request("b"))

    assert (0, "S-WAIT-03", "not reached: a budget or the active limit is used up") == reasons(state)["b"]


def test_request_behind_a_skipped_one_did_not_find_the_phase_ended() -> None:
    """[S-WAIT-03, S-WAIT-12] `g` is skipped and `a` takes the budget: that is why `b` is not reached."""
    config = make_config(max_num_scheduled_tokens=7)
    state = make_state(config, make_request("g", needs_grammar=True), make_request("a"), make_request("b"))

    assert (0, "S-WAIT-03") == reasons(state)["b"][:2]
