"""Requests whose output has to follow a grammar: how they get it, and what it does not allow."""

import attrs

from kvsched_fp.events import GrammarFailed, GrammarReady, Update
from kvsched_fp.grammar import GrammarError
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.brought import outputs_told
from kvsched_fp.request import FinishReason, RequestStatus


@step_invariant(
    "INV-ANSWER-01",
    Cost.CHEAP,
    "Who waits for its grammar is told the grammar, or that there is none, and nothing else happens.",
    "The next step goes on with it; the next update ends who cannot have one.",
    GrammarReady,
    GrammarFailed,
)
def _answered_once(step: Step) -> str | None:
    before, event = step.before, step.event
    earlier = before.progress.get(event.request_id)
    answer = event.grammar if isinstance(event, GrammarReady) else GrammarError(event.message)
    if earlier is None or earlier.status is not RequestStatus.WAITING_FOR_GRAMMAR or earlier.grammar:
        return f"request {event.request_id} was told {answer}, and did not wait for it"
    progress = before.progress.set(event.request_id, attrs.evolve(earlier, grammar=answer))
    if step.after == attrs.evolve(before, progress=progress):
        return None
    later = step.after.progress.get(event.request_id)
    return f"request {event.request_id} was told {answer}; {earlier} became {later}"


@step_invariant(
    "INV-ANSWER-02",
    Cost.CHEAP,
    "The grammar of a request stands behind all that its client is told. Exactly tokens that it does not "
    "allow, or that there is none, end a request with an error.",
    "The next tokens are held against it.",
    Update,
)
def _grammar_is_behind_the_output(step: Step) -> str | None:
    for output in outputs_told(step):
        request_id, is_error = output.request_id, output.finish_reason is FinishReason.ERROR
        if output.error is not None:
            continue
        grammar, all_allowed = step.before.progress[request_id].grammar, True
        if step.before.requests[request_id].needs_grammar:
            assert grammar is not None
            assert not isinstance(grammar, GrammarError)
            grammar, all_allowed = grammar.accept_tokens(output.new_token_ids)
        later = step.after.progress.get(request_id)
        if is_error == all_allowed or (later is not None and later.grammar != grammar):
            return (
                f"request {request_id} is told {output.new_token_ids}, allowed: {all_allowed}, with "
                f"{output.finish_reason}; its grammar stands at {later and later.grammar}"
            )
    return None


@step_invariant(
    "INV-ANSWER-03",
    Cost.CHEAP,
    "Exactly the live requests that cannot have their grammar are told the error, and end.",
    "They would wait for ever.",
    Update,
)
def _errors_are_told(step: Step) -> str | None:
    pending = {
        request_id: message
        for request_id, message in step.before.grammar_errors.items()
        if request_id in step.before.requests
    }
    errors = {
        output.request_id: output.error
        for output in outputs_told(step)
        if output.error is not None and output.finish_reason is FinishReason.ERROR
    }
    left = [request_id for request_id in pending if request_id in step.after.requests]
    if errors == pending and not left and not step.after.grammar_errors:
        return None
    return f"the errors {pending} were pending, {errors} are told, {left} are left"


INVARIANTS: tuple[StepInvariant, ...] = (
    _answered_once,
    _grammar_is_behind_the_output,
    _errors_are_told,
)
"""In the order in which they are checked."""
