"""Faults in when the output of a request ends."""

from collections.abc import Sequence

from vllm.sampling_params import RepetitionDetectionParams
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched import utils as scheduler_utils
from vllm.v1.core.sched.utils import check_sequence_repetition, check_stop
from vllm.v1.request import Request

from .planting import Fault


def _check_with_minimum_first(request: Request, max_model_len: int) -> bool:
    if request.num_output_tokens < request.sampling_params.min_tokens:
        return False
    stops: bool = check_stop(request, max_model_len)
    return stops


def _repeats_once_less(token_ids: Sequence[int], params: RepetitionDetectionParams) -> bool:
    less = RepetitionDetectionParams(
        max_pattern_size=params.max_pattern_size,
        min_pattern_size=params.min_pattern_size,
        min_count=max(2, params.min_count - 1),
    )
    repeats: bool = check_sequence_repetition(token_ids, less)
    return repeats


STOPPING = (
    Fault(
        "an output may be one token longer than the model",
        scheduler_module,
        "check_stop",
        lambda request, max_model_len: check_stop(request, max_model_len + 1),
    ),
    Fault(
        "the minimum holds back the end of sequence",
        scheduler_module,
        "check_stop",
        _check_with_minimum_first,
    ),
    Fault(
        "a repetition needs one time less",
        scheduler_utils,
        "check_sequence_repetition",
        _repeats_once_less,
    ),
)
