"""A parting, told for a person: one sentence per event, then where both parted and why.

*Here* is what this package does, with the rules that decided; *there* is the scheduler under test.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import shorten
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.explain import explain
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import BlockIds, Emitted, SchedulerOutput
from kvsched_fp.request import Request, SamplingParams
from kvsched_fp.testing.parting import Parting
from kvsched_fp.trace.codec import Told, what_was_told
from kvsched_fp.trace.difference import plain
from kvsched_fp.trace.replay import Replayed

_DEFAULTS = attrs.asdict(SchedulerConfig(), recurse=False)
_ELUSIVE = (
    "it did not happen again when the same was played once more, so this is what was seen the first time"
)
_MAX_SHOWN = 400
"""Characters of one side's answer."""


def tell_story(parting: Parting, trace: Path | None) -> str:
    """Tell what happened; `trace` is the file that has it, too."""
    return "\n".join(_lines(parting, trace))


def _lines(parting: Parting, trace: Path | None) -> Iterator[str]:
    yield from _what_happened(parting) if parting.played else _start(parting)
    if parting.is_elusive:
        yield _ELUSIVE
    yield from _files(parting, trace)


def _start(parting: Parting) -> Iterator[str]:
    yield f"the scheduler under test {parting.where}"
    yield ""
    yield f"configuration: {_describe_config(parting.config)}"
    yield f"       there: {parting.where}"
    yield from _raised_at(parting)
    yield ""


def _what_happened(parting: Parting) -> Iterator[str]:
    last = parting.played[-1]
    yield f"the scheduler under test does something else at event {last.number}: {parting.where}"
    yield ""
    yield f"configuration: {_describe_config(parting.config)}"
    for replayed in parting.played[:-1]:
        yield f"{replayed.number:3}. {_tell(replayed)}"
    yield f"{last.number:3}. {_sentence(last.event)}"
    yield f"       here:  {_answer(last, what_was_told(last.event, last.after, last.outcome)) or 'done'}"
    yield f"       there: {_answer_there(parting) or 'done'}"
    yield from _raised_at(parting)
    yield ""
    yield from _why(parting)


def _raised_at(parting: Parting) -> Iterator[str]:
    if parting.raised_at is not None:
        yield f"       raised at {parting.raised_at}"


def _answer_there(parting: Parting) -> str:
    if parting.failure is not None:
        return f"failed: {parting.failure}"
    last = parting.played[-1]
    return _answer(last, last.record.told(), bare=True)


def _why(parting: Parting) -> Iterator[str]:
    divergence = parting.divergence
    if divergence is None:
        return
    difference = divergence.difference
    yield f"first difference: {difference.path}"
    yield f"       here:  {shorten(difference.ours, _MAX_SHOWN)}"
    yield f"       there: {shorten(difference.recorded, _MAX_SHOWN)}"
    yield f"decided by {', '.join(divergence.rule_ids) or 'no rule in particular'} (specs/)"
    for reason in divergence.reasons:
        yield f"  {reason.request_id!r} [{reason.rule_id}] {reason.text}"


def _files(parting: Parting, trace: Path | None) -> Iterator[str]:
    if trace is None:
        return
    yield f"trace: {trace}"
    if parting.is_in_view:
        yield "  (only the states differ, and a trace has none: the check finds no difference)"
    elif parting.failure is not None:
        yield "  (it has what should have come of the last event: the check finds no difference)"
    yield f"  kvsched-fp check {trace}"
    if parting.played and parting.played[-1].after.current_step:
        yield f"  kvsched-fp explain {trace} --step {parting.played[-1].after.current_step}"


def _describe_config(config: SchedulerConfig) -> str:
    """Name the fields that are not at their defaults."""
    fields = ", ".join(
        f"{name}={shorten(plain(getattr(config, name)))}"
        for name, default in _DEFAULTS.items()
        if getattr(config, name) != default and name != "kv_cache_groups"
    )
    num_groups = len(config.kv_cache_groups)
    return f"{fields or 'the defaults'}{f', {num_groups} KV cache groups' if num_groups > 1 else ''}"


def _tell(replayed: Replayed) -> str:
    answer = _answer(replayed, what_was_told(replayed.event, replayed.after, replayed.outcome))
    return f"{_sentence(replayed.event)} {f'Both: {answer}.' if answer else ''}".rstrip()


def _sentence(event: Event) -> str:  # noqa: PLR0911  one return per kind of event
    match event:
        case AddRequest(request):
            return f"A client sends {request.request_id!r}: {_describe_request(request)}."
        case Schedule(throttle_prefills):
            return f"The next step is planned{', prompts held back' if throttle_prefills else ''}."
        case Update(result):
            said = [*map(repr, result.pooled_request_ids), _tokens(result.sampled_token_ids)]
            return f"Step {result.step_id} comes back with {', '.join(filter(None, said)) or 'nothing'}."
        case FinishRequests(request_ids, status):
            whom = "all requests" if request_ids is None else ", ".join(map(repr, request_ids))
            return f"Somebody ends {whom}: {status.value}."
        case UpdateDrafts(draft_token_ids):
            return f"The drafter proposes {_tokens(draft_token_ids)}."
        case UpdateDraftsInFlight(step_id, draft_token_ids):
            return f"The drafts of step {step_id} become known: {_tokens(draft_token_ids)}."
        case GrammarReady(request_id):
            return f"The grammar of {request_id!r} is there."
        case GrammarFailed(request_id, message):
            return f"There is no grammar for {request_id!r}: {message}."
        case SetPauseState(pause_state):
            return f"The engine is now {pause_state.value}."
        case ResetPrefixCache(reset_running_requests):
            return f"The prefix cache is reset{', running requests too' if reset_running_requests else ''}."


def _describe_request(request: Request) -> str:
    params = request.sampling_params
    shown = [f"prompt {shorten(request.prompt_token_ids)}", f"at most {params.max_tokens} tokens"]
    for record, plain_record in (
        (params, SamplingParams(max_tokens=params.max_tokens)),
        (request, Request(request_id=RequestId("plain"), prompt_token_ids=(0,), sampling_params=params)),
    ):
        for field in attrs.fields(type(record)):
            value = getattr(record, field.name)
            if value != getattr(plain_record, field.name) and field.name not in _ALREADY_SHOWN:
                value = sorted(value) if isinstance(value, frozenset) else plain(value)
                shown.append(f"{field.name} {shorten(value)}")
    return ", ".join(shown)


_ALREADY_SHOWN = {"request_id", "prompt_token_ids", "sampling_params"}


def _answer(replayed: Replayed, told: Told, *, bare: bool = False) -> str:
    """Put what came of an event into words; the reasons are ours, so `bare` leaves them out."""
    if isinstance(told, SchedulerOutput):
        rules = {} if bare else _rules(replayed)
        return shorten_text(_describe_step(told, rules))
    if isinstance(told, Emitted):
        return shorten_text(_describe_emitted(told))
    if told is None:
        return ""
    return "it was done" if told else "it was refused"


def _rules(replayed: Replayed) -> Mapping[RequestId, str]:
    assert isinstance(replayed.event, Schedule)
    reasons = explain(replayed.before, throttle_prefills=replayed.event.throttle_prefills)
    return {reason.request_id: reason.rule_id for reason in reasons}


def _describe_step(output: SchedulerOutput, rules: Mapping[RequestId, str]) -> str:
    batch = output.num_scheduled_tokens
    cached = output.scheduled_cached_requests
    blocks: dict[RequestId, BlockIds | None] = {
        **dict(zip(cached.request_ids, cached.new_block_ids, strict=False)),
        **{new.request_id: new.block_ids for new in output.scheduled_new_requests},
    }
    parts = [
        f"{name!r} gets {number}{_in_blocks(blocks.get(name))}{_rule(rules, name)}"
        for name, number in batch.items()
    ]
    parts += [f"{name!r} gets nothing [{rule}]" for name, rule in rules.items() if name not in batch]
    parts += [f"{name!r} was preempted" for name in output.preempted_request_ids]
    return f"step {output.step_id}: {', '.join(parts) or 'nobody gets anything'}"


def _in_blocks(block_ids: object) -> str:
    return f" in new blocks {shorten(plain(block_ids))}" if block_ids else ""


def _rule(rules: Mapping[RequestId, str], request_id: RequestId) -> str:
    return f" [{rules[request_id]}]" if request_id in rules else ""


def _describe_emitted(emitted: Emitted) -> str:
    parts = [
        f"{output.request_id!r} hears {list(output.new_token_ids)}"
        f"{'' if output.finish_reason is None else f' and ends ({output.finish_reason.value})'}"
        for client in emitted.clients.values()
        for output in client.outputs
    ]
    if emitted.kv_events:
        parts.append(f"events of the prefix cache: {len(emitted.kv_events)}")
    return ", ".join(parts) or "nobody hears anything"


def _tokens(rows: Mapping[RequestId, tuple[int, ...]]) -> str:
    return ", ".join(f"{list(token_ids)} for {name!r}" for name, token_ids in rows.items())


def shorten_text(text: str) -> str:
    """Cut a text in the middle to what one line may have."""
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN // 2]} ... {text[-_MAX_SHOWN // 2 :]}"
