"""Our requests and results as the real ones.

Importing this module imports vLLM.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs
from vllm.sampling_params import RepetitionDetectionParams
from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import BlockHash, get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest

from kvsched_fp import RepetitionDetection, Request, SamplingParams, SchedulerConfig
from kvsched_fp.ids import RequestId

RequestHasher = Callable[[VllmRequest], list[BlockHash]]


def make_request_hasher(config: SchedulerConfig) -> RequestHasher | None:
    """Give what the engine hands to every request: a hasher, or None where nothing is cached."""
    return get_request_block_hasher(config.block_size, sha256) if config.enable_prefix_caching else None


def to_vllm_request(request: Request, hasher: RequestHasher | None) -> VllmRequest:
    """Make the real request; every field of ours has its counterpart."""
    return VllmRequest(
        request_id=request.request_id,
        prompt_token_ids=list(request.prompt_token_ids),
        sampling_params=_to_vllm_sampling_params(request.sampling_params),
        pooling_params=None,
        client_index=request.client_index,
        arrival_time=request.arrival_time,
        cache_salt=request.cache_salt,
        priority=request.priority,
        block_hasher=hasher,
    )


def _to_vllm_sampling_params(params: SamplingParams) -> VllmSamplingParams:
    made = VllmSamplingParams(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=sorted(params.stop_token_ids),
        ignore_eos=params.eos_token_id is None,
        repetition_detection=_to_vllm_repetition_detection(params.repetition_detection),
        skip_reading_prefix_cache=params.skip_reading_prefix_cache,
    )
    # The front end does this, with the end-of-sequence token of the model.
    made.update_from_generation_config({}, params.eos_token_id)
    return made


def _to_vllm_repetition_detection(
    detection: RepetitionDetection | None,
) -> RepetitionDetectionParams | None:
    return None if detection is None else RepetitionDetectionParams(**attrs.asdict(detection))


def to_model_runner_output(
    batch: Mapping[str, int], sampled_token_ids: Mapping[RequestId, Sequence[int]]
) -> ModelRunnerOutput:
    """Make the real result of a step: one row per request of the batch, empty where none was sampled."""
    request_ids = list(batch)
    return ModelRunnerOutput(
        req_ids=request_ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
        sampled_token_ids=[
            list(sampled_token_ids.get(RequestId(request_id), ())) for request_id in request_ids
        ],
    )
