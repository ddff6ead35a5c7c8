"""Requests whose output has to follow a grammar.

An id that is used again while its error is pending is outside of these rules, as with results: the
reference ends the new request.
"""

from kvsched_fp.grammar import GrammarError
from kvsched_fp.invariants.entry import Cost, StateInvariant, state_invariant
from kvsched_fp.invariants.state_reading import places
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState


@state_invariant(
    "INV-GRAMMAR-01",
    Cost.FULL,
    "A request has a grammar exactly if it needs one and has begun; only one that needs one waits for it.",
    "Without it, anything would be sampled.",
)
def _has_what_it_needs(state: SchedulerState) -> str | None:
    for request_id, request, progress, _ in places(state).live:
        grammar, waits = progress.grammar, progress.status is RequestStatus.WAITING_FOR_GRAMMAR
        needs = request.needs_grammar
        has_grammar = grammar is not None and not isinstance(grammar, GrammarError)
        is_sound = needs and (has_grammar or waits) if needs else grammar is None and not waits
        if not is_sound:
            return (
                f"request {request_id} is {progress.status.name}, needs a grammar: {needs}, has "
                f"{type(grammar).__name__}"
            )
    return None


@state_invariant(
    "INV-GRAMMAR-02",
    Cost.CHEAP,
    "An error is pending only for a request that waits for its grammar and cannot have it, or has left.",
    "The next update ends it, and tells its client.",
)
def _errors_are_true(state: SchedulerState) -> str | None:
    for request_id, message in state.grammar_errors.items():
        progress = state.progress.get(request_id)
        if progress is not None and (
            progress.status is not RequestStatus.WAITING_FOR_GRAMMAR
            or progress.grammar != GrammarError(message)
        ):
            return f"request {request_id} is {progress.status.name}, and ends with the error {message!r}"
    return None


INVARIANTS: tuple[StateInvariant, ...] = (
    _has_what_it_needs,
    _errors_are_true,
)
"""In the order in which they are checked."""
