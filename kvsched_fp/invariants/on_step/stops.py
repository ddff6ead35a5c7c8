"""Where an output ends, and why."""

from collections.abc import Iterator
from typing import NamedTuple

from kvsched_fp.events import Update
from kvsched_fp.invariants.entry import Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.brought import outputs_told
from kvsched_fp.invariants.progress_reading import repeats_itself
from kvsched_fp.invariants.shared import shared
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import Progress
from kvsched_fp.request import FinishReason, Request


class End(NamedTuple):
    """What is told about the end of an output."""

    finish_reason: FinishReason
    stop_reason: int | str | None
    """None where the token says nothing that is told."""


@step_invariant(
    "INV-STOP-01",
    Cost.CHEAP,
    "The first token that ends an output is the last one told, and an output ends with no other: an end of "
    "sequence, a stop token, the last of max_tokens or max_model_len, or one behind which a pattern has "
    "stood often enough. Tokens that the grammar does not allow end it, too, and are told all the same, up "
    "to such an end.",
    "An output that is too short has lost its end; one that is too long tells what nobody asked for.",
    Update,
)
def _ends_with_its_end(step: Step) -> str | None:
    sampled = step.event.result.sampled_token_ids
    for output, ends in _told_ends(step):
        first = next((number for number, end in enumerate(ends, 1) if end is not None), None)
        num_due = len(sampled.get(output.request_id, ())) if first is None else first
        is_ended = output.finish_reason is not None
        may_end = first is not None or not ends or output.finish_reason is FinishReason.ERROR
        if len(ends) != num_due or (is_ended and not may_end) or (first is not None and not is_ended):
            return (
                f"request {output.request_id} is told {output.new_token_ids} and {output.finish_reason}; "
                f"of those, number {first} is the first that ends its output"
            )
    return None


@step_invariant(
    "INV-STOP-02",
    Cost.CHEAP,
    "The client is told what came first: STOP for an end of sequence, STOP and the token for a stop token, "
    "LENGTH for a limit, REPETITION for a pattern; STOP where no token is needed, and ERROR always for a "
    "grammar. What no token says stays as the session had it.",
    "Why an output ended decides what the client does with it.",
    Update,
)
def _reason_is_the_first(step: Step) -> str | None:
    for output, ends in _told_ends(step):
        if output.finish_reason is None:
            continue
        end = ends[-1] if ends else End(FinishReason.STOP, None)
        kept = step.before.progress[output.request_id].stop_reason
        stop_reason = kept if end is None or end.stop_reason is None else end.stop_reason
        is_error = output.finish_reason is FinishReason.ERROR
        is_due = is_error or end is None or end.finish_reason is output.finish_reason
        if output.stop_reason != stop_reason or not is_due:
            return (
                f"request {output.request_id} ends with {output.finish_reason} and "
                f"{output.stop_reason!r}; {end} is due, it had {kept!r}"
            )
    return None


@shared
def _told_ends(step: Step) -> list[tuple[EngineOutput, list[End | None]]]:
    """Give, with each output, what each of its tokens ends; errors that are no output left out."""
    return [(output, list(_ends(step, output))) for output in outputs_told(step) if output.error is None]


def _ends(step: Step, output: EngineOutput) -> Iterator[End | None]:
    request, earlier = step.before.requests[output.request_id], step.before.progress[output.request_id]
    max_model_len = step.before.config.max_model_len
    for number, token_id in enumerate(output.new_token_ids, 1):
        num_output_tokens = len(earlier.output_token_ids) + number
        params = request.sampling_params
        if token_id == params.eos_token_id:
            yield End(FinishReason.STOP, None)
        elif token_id in params.stop_token_ids:
            yield End(FinishReason.STOP, token_id)
        elif (
            num_output_tokens >= params.max_tokens
            or len(request.prompt_token_ids) + num_output_tokens >= max_model_len
        ):
            yield End(FinishReason.LENGTH, None)
        elif _repeats(request, earlier, output.new_token_ids[:number]):
            yield End(FinishReason.REPETITION, "repetition_detected")
        else:
            yield None


def _repeats(request: Request, earlier: Progress, new_token_ids: tuple[int, ...]) -> bool:
    params = request.sampling_params
    if params.repetition_detection is None:
        return False
    known = (*earlier.output_token_ids, *new_token_ids)
    return len(known) >= params.min_tokens and repeats_itself(known, params.repetition_detection)


INVARIANTS: tuple[StepInvariant, ...] = (
    _ends_with_its_end,
    _reason_is_the_first,
)
"""In the order in which they are checked."""
