"""The stub model: every request whose known tokens are all computed samples one token.

The token says who sampled it and where: token ids count up with the position in the output, in a range
of their own per request, above all prompts (`request.py`). So no output is ever equal to another's, and
an output in a trace is one run.
"""

from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.state import SchedulerState
from kvsched_fp.workloads.request import OUTPUT_TOKEN_BASE

POSITIONS_PER_REQUEST = 2**26
"""The range of one request's output, in token ids."""
NUM_RANGES = 2**26
"""Ranges below 2**53; after so many requests the first range is used again."""


def stub_result(state: SchedulerState, output: SchedulerOutput) -> StepResult:
    """Answer `output`, which is the last step scheduled in `state`.

    A request in the middle of its prompt, or one that has left, samples nothing.
    """
    sampled: dict[RequestId, tuple[int, ...]] = {}
    for request_id in output.num_scheduled_tokens:
        progress = state.progress.get(request_id)
        if progress is not None and not progress.is_prefill_chunk:
            position = len(progress.output_token_ids)
            sampled[request_id] = (output_token_id(state.add_numbers[request_id], position),)
    return StepResult(step_id=output.step_id, sampled_token_ids=sampled)


def output_token_id(add_number: int, position: int) -> int:
    """Give the token at `position` of the output of the request that was the `add_number`-th added."""
    return OUTPUT_TOKEN_BASE + add_number % NUM_RANGES * POSITIONS_PER_REQUEST + position
