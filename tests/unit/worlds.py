"""Small worlds for the unit tests of the core: blocks of 4 tokens, and requests whose tokens differ."""

from collections.abc import Mapping
from typing import Any

import attrs

from kvsched_fp import (
    Request,
    SamplingParams,
    SchedulerConfig,
    SchedulerOutput,
    SchedulerState,
    StepResult,
    add_request,
    initial_state,
    schedule,
    update,
)
from kvsched_fp.ids import BlockId, RequestId

SMALL = SchedulerConfig(
    max_model_len=64, max_num_seqs=8, max_num_batched_tokens=64, num_blocks=17, block_size=4
)
"""16 usable blocks of 4 tokens."""


def make_config(*, usable_blocks: int | None = None, **changes: Any) -> SchedulerConfig:
    """Make `SMALL` with changes.

    `usable_blocks` sets the pool, and a length that fits into it. A budget of fewer tokens than `SMALL` has
    rows sets the rows, too.
    """
    if usable_blocks is not None:
        changes.setdefault("num_blocks", usable_blocks + 1)
        changes.setdefault("max_model_len", usable_blocks * changes.get("block_size", SMALL.block_size))
    num_tokens = changes.get("max_num_batched_tokens", SMALL.max_num_batched_tokens)
    if type(num_tokens) is int:  # whatever else it is, the config refuses it
        changes.setdefault("max_num_seqs", min(SMALL.max_num_seqs, max(num_tokens, 1)))
    return attrs.evolve(SMALL, **changes)


def make_request(
    request_id: str, prompt: int = 7, *, tokens: tuple[int, ...] = (), **fields: Any
) -> Request:
    """Make a request of `prompt` tokens that no other id has; `tokens` are the first of them."""
    own = int.from_bytes(request_id.encode(), "big") * 1000
    params = {name: fields.pop(name) for name in list(fields) if name in _PARAMS}
    return Request(
        request_id=RequestId(request_id),
        prompt_token_ids=(*tokens, *(own + position for position in range(len(tokens), prompt))),
        sampling_params=SamplingParams(**{"max_tokens": 16} | params),
        **fields,
    )


_PARAMS = {field.name for field in attrs.fields(SamplingParams)}


def make_state(config: SchedulerConfig, *requests: Request) -> SchedulerState:
    """Make a state to which `requests` were added, in that order."""
    state = initial_state(config)
    for request in requests:
        state = add_request(state, request)
    return state


def make_result(
    state: SchedulerState, output: SchedulerOutput, tokens: Mapping[str, tuple[int, ...]] | None = None
) -> StepResult:
    """Answer `output`: a token for each row that finished its prompt, unless `tokens` says otherwise.

    The token is the position that it gets. Rows of requests that have left bring nothing.
    """
    sampled: dict[RequestId, tuple[int, ...]] = {}
    for request_id, (num_known, num_computed) in _rows(state, output).items():
        if num_computed + output.num_scheduled_tokens[request_id] >= num_known:
            sampled[request_id] = (num_known,)
    sampled.update({RequestId(request_id): ids for request_id, ids in (tokens or {}).items()})
    return StepResult(step_id=output.step_id, sampled_token_ids=sampled)


def _rows(state: SchedulerState, output: SchedulerOutput) -> dict[RequestId, tuple[int, int]]:
    """Give per row of live requests the known and the computed tokens when the step was planned."""
    rows = {
        new.request_id: (len(new.prefill_token_ids or new.prompt_token_ids), new.num_computed_tokens)
        for new in output.scheduled_new_requests
    }
    cached = output.scheduled_cached_requests
    columns = zip(cached.request_ids, cached.num_output_tokens, cached.num_computed_tokens, strict=True)
    for request_id, num_output_tokens, num_computed_tokens in columns:
        if request_id in state.requests:
            num_known = state.requests[request_id].num_prompt_tokens + num_output_tokens
            rows[request_id] = (num_known, num_computed_tokens)
    return {request_id: row for request_id, row in rows.items() if request_id in state.requests}


def run_step(state: SchedulerState, **tokens: tuple[int, ...]) -> tuple[SchedulerState, SchedulerOutput]:
    """Plan a step and take in its result."""
    state, output = schedule(state)
    return update(state, make_result(state, output, tokens)), output


def run_steps(state: SchedulerState, num_steps: int) -> SchedulerState:
    """Run so many steps."""
    for _ in range(num_steps):
        state, _ = run_step(state)
    return state


def plan_steps(state: SchedulerState, num_steps: int) -> SchedulerState:
    """Plan so many steps; nobody answers them."""
    for _ in range(num_steps):
        state, _ = schedule(state)
    return state


def drain(state: SchedulerState, **tokens: tuple[int, ...]) -> SchedulerState:
    """Take in every step in flight."""
    for output in state.in_flight:
        mine = {
            request_id: ids
            for request_id, ids in tokens.items()
            if request_id in output.num_scheduled_tokens
        }
        state = update(state, make_result(state, output, mine))
    return state


def run_together(config: SchedulerConfig, *requests: Request, **tokens: tuple[int, ...]) -> SchedulerState:
    """Let requests run in the order given, whatever the policy, each with its first token."""
    state = initial_state(config)
    for request in requests:
        state, _ = schedule(add_request(state, request))
    return drain(state, **tokens)


def make_outgrown(
    a: int = 18,
    b: int = 4,
    *,
    usable_blocks: int = 5,
    num_steps: int = 0,
    requires_kv_delivery: bool = False,
    **params: Any,
) -> SchedulerState:
    """Make a state in which `a` of 18 tokens outgrows the pool, 4 tokens a step, beside the shorter `b`.

    In step 5 the 5 blocks are used up, and `b` is preempted, with its first step in flight if nobody has
    answered it. So many steps are planned; `params` are further fields of `b`.
    """
    config = make_config(
        usable_blocks=usable_blocks,
        long_prefill_token_threshold=4,
        scheduler_reserve_full_isl=False,
        requires_kv_delivery=requires_kv_delivery,
    )
    return plan_steps(make_state(config, make_request("a", a), make_request("b", b, **params)), num_steps)


def blocks_of(state: SchedulerState, request_id: str) -> tuple[BlockId, ...]:
    """Give the blocks of a request in the first group, none if it holds none."""
    block_ids = state.kv.block_ids(RequestId(request_id))
    return () if block_ids is None else block_ids[0]


def batch(output: SchedulerOutput) -> list[tuple[str, int]]:
    """List the rows of a step, in order."""
    return list(output.num_scheduled_tokens.items())


def tokens_told(state: SchedulerState) -> dict[str, tuple[int, ...]]:
    """Give what the last update told the clients, per request."""
    return {
        output.request_id: output.new_token_ids
        for client in state.emitted.clients.values()
        for output in client.outputs
    }


def make_waiting_for_a_session(*, has_input: bool) -> SchedulerState:
    """Make a state without quirks in which `a` runs with 2 of 4 blocks; a session, `s`, has the others.

    Both lack one more. The session waits for input, or has it.
    """
    config = make_config(usable_blocks=4, scheduler_reserve_full_isl=False, quirks=())
    session = make_request("s", 4, resumable=True, max_tokens=5)
    state = run_steps(make_state(config, session, make_request("a", 7)), 5)
    return add_request(state, make_request("s", 1, resumable=True, max_tokens=1)) if has_input else state
