"""`explain` tells what `schedule` does, and why."""

import random

import pytest

from kvsched_fp import (
    PauseState,
    Request,
    SamplingParams,
    SchedulerConfig,
    SchedulerState,
    StepResult,
    add_request,
    explain,
    initial_state,
    schedule,
    set_pause_state,
    update,
)
from tests.meta.rules import read_rules
from tests.unit.worlds import make_config, make_request, make_state, run_steps

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
    state = initial_state(SchedulerConfig.from_mapping({**BASE, **changes}))
    states = []
    for number in range(25):
        if chance.random() < 0.5:
            prompt = [chance.randrange(2) for _ in range(chance.randrange(1, 11))]
            params = SamplingParams(max_tokens=chance.randrange(1, 9))
            request = Request(
                request_id=f"r{number}",
                prompt_token_ids=prompt,
                sampling_params=params,
                priority=chance.randrange(3),
            )
            state = add_request(state, request)
        states.append(state)
        state, output = schedule(state)
        sampled = {
            request_id: [chance.randrange(2)]
            for request_id in output.num_scheduled_tokens
            if not state.progress[request_id].is_prefill_chunk
        }
        state = update(state, StepResult(step_id=output.step_id, sampled_token_ids=sampled))
    return states


CONFIGS = [
    {},
    {"policy": "priority"},
    {"long_prefill_token_threshold": 2},
    {"prefill_schedule_interval": 3},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 16},
    {"max_num_scheduled_tokens": 3},
    {"watermark": 0.3},
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
