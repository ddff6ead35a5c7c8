"""Drafts that come from outside, between the steps."""

import attrs

from kvsched_fp.config import Quirk, RunnerType
from kvsched_fp.events import UpdateDrafts, UpdateDraftsInFlight
from kvsched_fp.grammar import GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import RequestStatus, canvas_width

_PADDING = -1


@step_invariant(
    "INV-PROPOSE-01",
    Cost.CHEAP,
    "Drafts are kept for the next step: all that fit into the canvas, if it has one, or as many from the "
    "first on as the grammar allows, if there is one; none in the middle of a prompt, nor, without "
    "asynchronous scheduling, behind a step in flight or of who waits (without the quirk "
    "DRAFTS_BEHIND_UNKNOWN_TOKEN). "
    "Nothing else changes.",
    "They continue what is known.",
    UpdateDrafts,
)
def _kept_for_the_next_step(step: Step) -> str | None:
    before, after = step.before, step.after
    if after != attrs.evolve(before, progress=after.progress):
        return "drafts changed more than the progress of requests"
    config = before.config
    keeps_ahead = config.async_scheduling or Quirk.DRAFTS_BEHIND_UNKNOWN_TOKEN in config.quirks
    for request_id, drafts in step.event.draft_token_ids.items():
        earlier, later = before.progress[request_id], after.progress[request_id]
        request, kept = before.requests[request_id], later.spec_token_ids
        is_in_flight = earlier.num_in_flight_tokens > earlier.num_stale_output_tokens
        runs = earlier.status is RequestStatus.RUNNING
        may_be_kept = keeps_ahead or (runs and not is_in_flight)
        expected = drafts if may_be_kept and not earlier.is_prefill_chunk else ()
        if config.runner_type is RunnerType.DIFFUSION:
            expected = expected[: canvas_width(request, config.num_spec_tokens)]
        if request.needs_grammar:
            expected = expected[: _num_allowed(step, request_id, expected)]
        if kept != expected or attrs.evolve(later, spec_token_ids=earlier.spec_token_ids) != earlier:
            return f"the drafts {drafts} of {request_id} became {kept}, not {expected}; {later}"
    return None


@step_invariant(
    "INV-PROPOSE-02",
    Cost.CHEAP,
    "Drafts for a step in flight take the place of its placeholders, as far as the grammar allows and "
    "padded to the same number; the step counts the padding. Nothing else changes.",
    "The step was planned with that many tokens.",
    UpdateDraftsInFlight,
)
def _as_many_as_planned(step: Step) -> str | None:
    before, after, event = step.before, step.after, step.event
    if after != attrs.evolve(before, in_flight=after.in_flight):
        return "drafts in flight changed more than the steps in flight"
    index = next(index for index, output in enumerate(before.in_flight) if output.step_id == event.step_id)
    planned = before.in_flight[index].scheduled_spec_token_ids
    expected, num_missing = dict(planned), {}
    for request_id, drafts in event.draft_token_ids.items():
        num_planned = len(planned.get(request_id, ()))
        kept = drafts[:num_planned]
        if before.requests[request_id].needs_grammar:
            kept = kept[: _num_allowed(step, request_id, kept)]
        if num_planned > 0:
            expected[request_id] = (*kept, *[_PADDING] * (num_planned - len(kept)))
        if num_planned > len(kept):
            num_missing[request_id] = num_planned - len(kept)
    output = after.in_flight[index]
    found = (output.scheduled_spec_token_ids, output.num_invalid_spec_tokens)
    if found == (OrderedMap(expected), OrderedMap(num_missing)):
        return None
    return f"step {event.step_id} has the drafts and the padding {found}, not {expected} and {num_missing}"


def _num_allowed(step: Step, request_id: RequestId, drafts: tuple[int, ...]) -> int:
    """Count the drafts that the grammar of a request allows, from the first on, one by one."""
    grammar = step.before.progress[request_id].grammar
    for num_allowed, token_id in enumerate(drafts):
        if token_id == _PADDING:
            return num_allowed
        assert grammar is not None
        assert not isinstance(grammar, GrammarError)
        grammar, is_allowed = grammar.accept_tokens((token_id,))
        if not is_allowed:
            return num_allowed
    return len(drafts)


INVARIANTS: tuple[StepInvariant, ...] = (
    _kept_for_the_next_step,
    _as_many_as_planned,
)
"""In the order in which they are checked."""
