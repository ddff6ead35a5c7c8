"""For every invariant about sessions, grammars and what is noted, a step that breaks it and little else."""

from collections.abc import Callable

import attrs

from kvsched_fp import AddRequest, GrammarFailed, GrammarReady, RequestStatus, Schedule
from kvsched_fp.invariants import Step
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.progress import RequestEvent, RequestEventType
from tests.unit.worlds import make_config, make_request, make_state

from .good import (
    A,
    B,
    Changed,
    answer,
    change,
    change_output,
    change_told,
    run,
    with_progress,
    with_request,
)
from .good_features import (
    ONLY_ONES,
    apply,
    constrained_state,
    failing_state,
    more_input,
    parked_state,
    stopping_state,
)


def _goes_on() -> Step:
    """Let the sessions `a` and `b` stop, and `a` go on with the input in store."""
    return run(stopping_state(), answer(stopping_state()))


def _under_grammar() -> Step:
    """Let `a` bring a token that its grammar allows."""
    return run(constrained_state(), answer(constrained_state(), a=(1,)))


def _no_seat_left() -> Changed:
    sound = run(make_state(make_config(), make_request("a")), Schedule())
    config = attrs.evolve(sound.before.config, max_num_active_seqs=1)
    return change(sound, before=attrs.evolve(sound.before, config=config, num_waiting_for_input=1))


def _grammar_that_is_not_announced() -> Changed:
    sound = run(_under_grammar().after, Schedule())
    return change_output(sound, has_structured_output_requests=False)


def _overtaken_for_ever() -> Changed:
    state = apply(constrained_state(), GrammarFailed(B, "no such grammar"), AddRequest(make_request("c")))
    sound = run(state, Schedule())
    return change(sound, after=attrs.evolve(sound.after, grammar_errors=OrderedMap()))


def _told_and_let_go_on() -> Changed:
    sound = run(constrained_state(), GrammarReady(B, ONLY_ONES))
    return change(sound, after=with_progress(sound.after, B, status=RequestStatus.WAITING))


def _not_allowed_and_goes_on() -> Changed:
    sound = _under_grammar()
    grammar = attrs.evolve(ONLY_ONES, moves=((), ((1, 0),)))
    return change(sound, before=with_progress(sound.before, A, grammar=grammar))


def _another_error_is_told() -> Changed:
    sound = run(failing_state(), answer(failing_state(), a=(1,)))
    *others, last = sound.after.emitted.clients[0].outputs
    return change_told(sound, 0, *others, attrs.evolve(last, error="something"))


def _stored_in_front() -> Changed:
    sound = run(stopping_state(), more_input())
    chunks = sound.after.progress[A].chunks
    return change(sound, after=with_progress(sound.after, A, chunks=chunks[:1]))


def _keeps_the_last_token() -> Changed:
    sound = _goes_on()
    prompt = (*sound.after.requests[A].prompt_token_ids, 1)
    return change(sound, after=with_request(sound.after, A, prompt_token_ids=prompt))


def _waits_with_input_in_store() -> Changed:
    sound = _goes_on()
    later = sound.before.progress[A].chunks
    return change(sound, after=with_progress(sound.after, A, chunks=later))


def _noted_at_another_time() -> Changed:
    sound = run(parked_state(), more_input())
    events = (RequestEvent(RequestEventType.QUEUED, 99.0),)
    return change(sound, after=with_progress(sound.after, A, events=events))


def _told_again() -> Changed:
    sound = _goes_on()
    return change(sound, after=with_progress(sound.after, A, events=sound.before.progress[A].events))


BROKEN_SESSIONS: dict[str, Callable[[], Changed]] = {
    "INV-ROW-09": _grammar_that_is_not_announced,
    "INV-ADMIT-09": _no_seat_left,
    "INV-ADMIT-11": _overtaken_for_ever,
    "INV-ANSWER-01": _told_and_let_go_on,
    "INV-ANSWER-02": _not_allowed_and_goes_on,
    "INV-ANSWER-03": _another_error_is_told,
    "INV-INPUT-01": _stored_in_front,
    "INV-INPUT-02": _keeps_the_last_token,
    "INV-INPUT-03": _waits_with_input_in_store,
    "INV-STORY-01": _noted_at_another_time,
    "INV-STORY-02": _told_again,
}
"""Invariant id -> how to make the step."""
