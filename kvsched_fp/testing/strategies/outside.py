"""The world outside of the scheduler: what the model runner, the drafter and the grammar compiler bring.

They do what an engine does. A row that samples brings a token, and accepted drafts before it. Only where
there are no drafts, placeholders or sessions may it bring several tokens without drafts, as an engine never
does: a token that is cut off then counts as one that was computed. Drafts are for requests whose step has
come back, or for the placeholders of a step in flight.
"""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from kvsched_fp.config import Quirk, RunnerType, SchedulingPolicy
from kvsched_fp.events import StepResult
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import Request, RequestStatus
from kvsched_fp.sessions import most_kept_tokens
from kvsched_fp.state import SchedulerState, live_request_ids
from kvsched_fp.testing.strategies.plays import Answers
from kvsched_fp.testing.strategies.wishes import EOS, OTHER, PLAIN

GRAMMARS = (
    AutomatonGrammar((((PLAIN, 0), (OTHER, 0)),)),
    AutomatonGrammar((((PLAIN, 1),), ((OTHER, 0),))),
    AutomatonGrammar((((PLAIN, 0), (OTHER, 1)), ((PLAIN, 0), (EOS, 0)))),
)
"""Both plain tokens; one and the other in turn; no two of the other in a row, but for an end."""


def make_result(
    state: SchedulerState,
    sampling: list[RequestId],
    say: Iterator[tuple[int, ...]],
    *,
    obeys: bool,
    bursts: bool = True,
) -> StepResult:
    """Answer the oldest step; `sampling` are the rows that computed the last token that is there.

    `obeys` says whether the model keeps to grammars, `bursts` whether it may bring several tokens without
    drafts.
    """
    output = state.in_flight[0]
    match state.config.runner_type:
        case RunnerType.POOLING:
            return StepResult(step_id=output.step_id, pooled_request_ids=tuple(sampling))
        case RunnerType.ENCODER_ONLY:
            return StepResult(step_id=output.step_id)
    sampled = {}
    for request_id in sampling:
        drafts = output.scheduled_spec_token_ids.get(request_id, ())
        said = next(say)
        tokens = _sample(state, request_id, drafts, said if bursts else said[: 1 + len(drafts)])
        sampled[request_id] = _obey(state, request_id, tokens) if obeys else tokens
    return StepResult(step_id=output.step_id, sampled_token_ids=sampled)


def _sample(
    state: SchedulerState, request_id: RequestId, drafts: tuple[int, ...], tokens: tuple[int, ...]
) -> tuple[int, ...]:
    """Accept as many drafts as `tokens` are long, but for the last one."""
    if state.config.runner_type is RunnerType.DIFFUSION:
        return tokens[1 : 1 + len(drafts)]
    request = state.requests.get(request_id)
    is_session = request is not None and request.resumable
    if state.config.num_spec_tokens or state.config.async_scheduling or is_session:
        tokens = tokens[: 1 + len(drafts)]
    accepted = [token if draft < 0 else draft for draft, token in zip(drafts, tokens[:-1], strict=False)]
    return (*accepted, *tokens[len(accepted) :])


def _obey(state: SchedulerState, request_id: RequestId, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Put an allowed token in place of each that the grammar of the request does not allow."""
    progress = state.progress.get(request_id)
    grammar = None if progress is None else progress.grammar
    if not isinstance(grammar, AutomatonGrammar):
        return tokens
    allowed = []
    for token in tokens:
        moves = dict(grammar.moves[grammar.state])
        allowed.append(token if token in moves else min(moves))
        grammar, _ = grammar.accept_tokens(allowed[-1:])
    return tuple(allowed)


def draft_behind(
    state: SchedulerState, output: SchedulerOutput, drafts: Answers
) -> Mapping[RequestId, tuple[int, ...]]:
    """Draft for the rows of a step that has come back; nobody drafts behind steps in flight."""
    config, num_drafts = state.config, output.num_spec_tokens_to_schedule
    if config.runner_type is RunnerType.DIFFUSION:
        drafts = [(PLAIN,) * num_drafts]  # a canvas is no guess, and nobody can do without it
    elif output.skip_drafts:
        return {}
    if config.num_spec_tokens == 0 or config.async_scheduling:
        return {}
    return {
        request_id: drafts[number % len(drafts)][:num_drafts]
        for number, request_id in enumerate(output.num_scheduled_tokens)
        if request_id in state.requests and _can_be_drafted(state, request_id)
    }


def _can_be_drafted(state: SchedulerState, request_id: RequestId) -> bool:
    request, progress = state.requests[request_id], state.progress[request_id]
    if request.needs_grammar and not isinstance(progress.grammar, AutomatonGrammar):
        return False
    if progress.is_prefill_chunk:
        return True  # they are thrown away
    is_settled = progress.num_in_flight_tokens == progress.num_stale_output_tokens
    return is_settled and not (request.resumable and progress.status is not RequestStatus.RUNNING)


def draft_in_flight(
    state: SchedulerState, output: SchedulerOutput, drafts: Answers
) -> Mapping[RequestId, tuple[int, ...]]:
    """Draft for the placeholders of a step that is in flight."""
    return {
        request_id: drafts[number % len(drafts)]
        for number, request_id in enumerate(output.scheduled_spec_token_ids)
        if request_id in state.requests
    }


def requests_without_grammar(state: SchedulerState) -> list[RequestId]:
    """List the live requests that wait for a grammar which nobody has brought."""
    return [
        request_id
        for request_id in live_request_ids(state)
        if state.progress[request_id].status is RequestStatus.WAITING_FOR_GRAMMAR
        and state.progress[request_id].grammar is None
    ]


def open_sessions(state: SchedulerState) -> list[RequestId]:
    """List the sessions that have not got their end; those that wait for input come first."""
    sessions = [
        request_id
        for request_id in live_request_ids(state)
        if state.requests[request_id].resumable and state.progress[request_id].chunks[-1:] != (None,)
    ]
    waits = RequestStatus.WAITING_FOR_INPUT
    return sorted(sessions, key=lambda request_id: state.progress[request_id].status is not waits)


def next_input(
    state: SchedulerState, request_id: RequestId, asked: Request | None, *, is_end: bool
) -> Request:
    """Make the next input of a session out of a request, or just its end."""
    session = state.requests[request_id]
    chunk = attrs.evolve(session, prompt_token_ids=session.prompt_token_ids[:2], resumable=not is_end)
    if asked is None:
        return chunk
    return attrs.evolve(
        chunk,
        prompt_token_ids=asked.prompt_token_ids[:3],
        sampling_params=asked.sampling_params,
        arrival_time=session.arrival_time if keeps_arrival(state, request_id) else asked.arrival_time,
    )


def keeps_arrival(state: SchedulerState, session: RequestId) -> bool:
    """Tell whether the next input of a session has to come with the arrival time that the session has.

    By priority, one that waits for it is begun in its queue, and the reference does not move an entry whose
    arrival time changes (deviation D-13). What comes to a busy one is begun behind its stop, when it is in
    no queue.
    """
    waits = state.progress[session].status is RequestStatus.WAITING_FOR_INPUT
    return waits and state.config.policy is SchedulingPolicy.PRIORITY


def has_room(state: SchedulerState, session: Request) -> bool:
    """Tell whether a session may go on with `session`; behind its end, it may not.

    It has to stay within `max_model_len` where the machine refuses what may not (without the quirk
    `OUTGROWS_MODEL_LEN`), and where blocks are reported: the reference fails when it reports those of a
    session that outgrew it (deviation D-11).
    """
    config = state.config
    live, progress = state.requests[session.request_id], state.progress[session.request_id]
    if progress.chunks[-1:] == (None,):
        return False
    may_outgrow = Quirk.OUTGROWS_MODEL_LEN in config.quirks and not config.enable_kv_cache_events
    if may_outgrow or not session.resumable:
        return True
    return most_kept_tokens(config, live, progress) + session.num_prompt_tokens <= config.max_model_len


def sampling_rows(state: SchedulerState) -> list[RequestId]:
    """List the rows of the step that was just planned which sample: they compute the last known token."""
    batch = state.in_flight[-1].num_scheduled_tokens
    return [request_id for request_id in batch if not state.progress[request_id].is_prefill_chunk]


def free_ids(state: SchedulerState, ended: Iterable[RequestId]) -> list[RequestId]:
    """List ids that may be used again; what is pending of another would be charged to its new life."""
    in_flight = {request_id for output in state.in_flight for request_id in output.num_scheduled_tokens}
    taken = {*state.requests, *in_flight, *state.grammar_errors}
    return [request_id for request_id in ended if request_id not in taken]
