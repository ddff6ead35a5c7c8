"""What the result of a step says about one row, as the predicates on results read it."""

from typing import NamedTuple

from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Row, Step
from kvsched_fp.invariants.shared import shared
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import Progress


class Brought(NamedTuple):
    """What came back for one row of a request that is live."""

    token_ids: tuple[int, ...]
    """The tokens."""
    is_stale: bool
    """Whether the row was scheduled before the last preemption, or for an answer that is given."""
    is_dropped: bool
    """Whether nobody is told."""
    num_drafts: int
    """Drafts that were verified."""
    num_accepted: int
    """Of those, the ones accepted."""


def read_row(step: Step, request_id: RequestId, earlier: Progress) -> Brought:
    """Read the result for one row; `earlier` is the progress before it."""
    token_ids = step.event.result.sampled_token_ids.get(request_id, ())
    is_stale = earlier.num_stale_output_tokens > 0
    is_dropped = is_stale and earlier.drop_stale_output
    num_drafts = num_accepted = 0
    if step.output.scheduled_spec_token_ids and not is_dropped:
        num_sampled = step.before.config.num_sampled_tokens_per_step
        if token_ids or num_sampled == 0:
            num_drafts = len(step.output.scheduled_spec_token_ids.get(request_id, ()))
            num_accepted = max(len(token_ids) - num_sampled, 0) if num_drafts else 0
    return Brought(token_ids, is_stale, is_dropped, num_drafts, num_accepted)


def ends_without_tokens(step: Step, request_id: RequestId, earlier: Progress) -> bool:
    """Tell whether a row ends its request though it samples nothing."""
    if step.before.config.runner_type is RunnerType.ENCODER_ONLY:
        request = step.before.requests[request_id]
        return earlier.num_computed_tokens >= len(request.prompt_token_ids)
    return request_id in step.event.result.pooled_request_ids


@shared
def brought(step: Step) -> list[tuple[Row, Brought]]:
    """Give the rows of requests that were live when the step came back, with what came for each."""
    return [(row, read_row(step, row[0], row[3])) for row in step.rows if row[3] is not None]


@shared
def told(step: Step) -> list[tuple[int, tuple[EngineOutput, ...]]]:
    """Give per client what it is told."""
    return [(client_index, client.outputs) for client_index, client in step.after.emitted.clients.items()]


@shared
def outputs_told(step: Step) -> list[EngineOutput]:
    """Give what all clients are told, one after the other."""
    return [output for _, outputs in told(step) for output in outputs]
