"""Sound states in which the engine does more: drafts, overlapping steps, sessions, grammars, adapters."""

from typing import Any

from kvsched_fp import (
    AddRequest,
    Event,
    GrammarFailed,
    GrammarReady,
    Schedule,
    SchedulerState,
    UpdateDrafts,
    step,
)
from kvsched_fp.config import RunnerType, SpecDecodeMetricsLevel
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId
from kvsched_fp.request import LoRA
from tests.unit.worlds import make_request, make_state, plan_steps, run_step, run_together

from .good import A, answer, busy_config

ONLY_ONES = AutomatonGrammar((((1, 0),),))
"""Allows the token 1, as often as you like."""


def apply(state: SchedulerState, *events: Event) -> SchedulerState:
    """Send events."""
    for event in events:
        state, _ = step(state, event)
    return state


def drafting_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a` runs with two drafts, `b` without, and nothing is in flight."""
    fields: dict[str, Any] = {
        "num_spec_tokens": 2,
        "num_lookahead_tokens": 2,
        "log_request_events": True,
        "spec_decode_metrics": SpecDecodeMetricsLevel.DETAILED,
    }
    config = busy_config(**fields | changes)
    state = run_together(config, make_request("a", 6), make_request("b", 5, max_tokens=2))
    return apply(state, UpdateDrafts({A: (1, 2)}))


def verifying_state(**changes: Any) -> SchedulerState:
    """Make a state in which the drafts of `a` are in flight, and a token of `b`."""
    return apply(drafting_state(**changes), Schedule(time=2.0))


def ahead_state(num_steps: int = 2, **changes: Any) -> SchedulerState:
    """Make a state in which `a` has so many steps in flight, each but the first with two drafts."""
    fields: dict[str, Any] = {"num_spec_tokens": 2, "num_lookahead_tokens": 2, "async_scheduling": True}
    config = busy_config(**fields | changes)
    return plan_steps(make_state(config, make_request("a", 6, max_tokens=8)), num_steps)


def answered(state: SchedulerState) -> SchedulerState:
    """Let the oldest step in flight come back."""
    return apply(state, answer(state))


def diffusing_state() -> SchedulerState:
    """Make a state in which one of two steps of the only canvas of `a` is in flight."""
    request = make_request("a", 6, canvas_length=2, max_denoise_steps=2)
    config = busy_config(runner_type=RunnerType.DIFFUSION, num_spec_tokens=3, async_scheduling=True)
    return plan_steps(make_state(config, request), 2)


def parked_state(**changes: Any) -> SchedulerState:
    """Make a state in which the session `a` waits for input, and `b` runs and is in flight."""
    config = busy_config(**{"log_request_events": True} | changes)
    state = make_state(
        config, make_request("a", 6, resumable=True, max_tokens=1), make_request("b", 5, max_tokens=9)
    )
    state, _ = run_step(state)
    return apply(state, Schedule())


def stopping_state(**changes: Any) -> SchedulerState:
    """Make a state in which the sessions `a` (with input in store) and `b` stop with the step in flight."""
    config = busy_config(**{"log_request_events": True} | changes)
    requests = [make_request(name, 6, resumable=True, max_tokens=1) for name in "ab"]
    return apply(make_state(config, *requests), more_input(), Schedule())


def more_input(request_id: RequestId = A, *, is_end: bool = False) -> AddRequest:
    """Make the next input of a session, or its end."""
    chunk = make_request(request_id, 3, resumable=not is_end, arrival_time=7.0, max_tokens=2)
    return AddRequest(chunk, time=3.0)


def constrained_state(**changes: Any) -> SchedulerState:
    """Make a state in which `a` runs under a grammar, with a step in flight, and `b` waits for its own."""
    config = busy_config(**changes)
    state = make_state(config, *(make_request(name, 6, needs_grammar=True) for name in "ab"))
    state = apply(state, GrammarReady(A, ONLY_ONES), Schedule())
    return apply(state, answer(state, a=(1,)), Schedule())


def failing_state() -> SchedulerState:
    """Make a state in which the next update ends `b`, which cannot have its grammar."""
    return apply(constrained_state(), GrammarFailed(RequestId("b"), "no such grammar"), Schedule())


def adapted_state() -> SchedulerState:
    """Make a state in which `a` and `b` run with an adapter each."""
    requests = [
        make_request(name, 6, lora=LoRA(f"of {name}", number)) for number, name in enumerate("ab", 1)
    ]
    return run_together(busy_config(max_loras=2), *requests)


def lookahead_state() -> SchedulerState:
    """Make a state in which `a` has 4 of 9 tokens computed, and the drafter reads 3 ahead."""
    config = busy_config(
        num_spec_tokens=2,
        num_prefill_lookahead_tokens=3,
        max_num_batched_tokens=4,
    )
    state, _ = run_step(make_state(config, make_request("a", 9)))
    return state


def computing_state(runner_type: RunnerType) -> SchedulerState:
    """Make a state in which the prompts of `a` and `b`, who sample nothing, are in flight."""
    pools = runner_type is RunnerType.POOLING
    requests = [make_request(name, 6, max_tokens=1, pooling=pools) for name in "ab"]
    return plan_steps(make_state(busy_config(runner_type=runner_type), *requests), 1)


def pipelined_state() -> SchedulerState:
    """Make a state in which `a` is to be decoded, in a pipeline of two stages."""
    return run_together(busy_config(pipeline_parallel_size=2), make_request("a", 6))
