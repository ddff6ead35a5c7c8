"""Faults in what the model runner is told."""

from collections.abc import Callable

from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from .planting import Fault, inside
from .shapes import always_do, is_if_about, is_statement_calling, remove

_make_new_request_data: Callable[..., NewRequestData] = NewRequestData.from_request


def _without_output(
    request: Request, block_ids: object, prefill_token_ids: list[int] | None = None, **options: object
) -> NewRequestData:
    known = None if prefill_token_ids is None else request.prompt_token_ids
    return _make_new_request_data(request, block_ids, known, **options)


STEP_OUTPUTS = (
    Fault(
        "a resumed request is sent without its output (V2)",
        NewRequestData,
        "from_request",
        staticmethod(_without_output),
    ),
    inside(
        "tokens are sent that the workers have (V1)",
        Scheduler,
        "_make_cached_request_data",
        is_if_about("prev_step_scheduled_req_ids"),
        always_do,
    ),
    inside(
        "who was in an earlier batch counts as in the last (V1)",
        Scheduler,
        "schedule",
        is_statement_calling("prev_step_scheduled_req_ids", "clear"),
        remove,
    ),
)
