"""Our requests and results as the real ones."""

from collections.abc import Callable, Collection, Mapping, Sequence

import attrs
import torch
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams
from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import BlockHash, get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.grammar import Grammar
from kvsched_fp.ids import RequestId
from kvsched_fp.request import LoRA, RepetitionDetection, Request

RequestHasher = Callable[[VllmRequest], list[BlockHash]]


def make_request_hasher(config: SchedulerConfig) -> RequestHasher | None:
    """Give what the engine hands to every request: a hasher, or None where nothing is cached."""
    if not config.enable_prefix_caching:
        return None
    return get_request_block_hasher(  # type: ignore[no-any-return]
        config.block_size, sha256, config.num_hash_lookahead_tokens
    )


def to_vllm_request(request: Request, hasher: RequestHasher | None) -> VllmRequest:
    """Make the real request; every field of ours has its counterpart."""
    return VllmRequest(
        request_id=request.request_id,
        prompt_token_ids=list(request.prompt_token_ids),
        sampling_params=None if request.pooling else _to_vllm_sampling_params(request),
        pooling_params=_to_vllm_pooling_params(request) if request.pooling else None,
        client_index=request.client_index,
        arrival_time=request.arrival_time,
        cache_salt=request.cache_salt,
        priority=request.priority,
        lora_request=_to_vllm_lora(request.lora),
        resumable=request.resumable,
        block_hasher=hasher,
    )


def _to_vllm_lora(lora: LoRA | None) -> LoRARequest | None:
    if lora is None:
        return None
    made = LoRARequest(lora_name=lora.name, lora_int_id=lora.lora_id, lora_path=lora.path or "somewhere")
    made.lora_path = lora.path  # vLLM makes none without a path, but hashes whatever is there
    return made


def _to_vllm_pooling_params(request: Request) -> PoolingParams:
    return PoolingParams(skip_reading_prefix_cache=request.sampling_params.skip_reading_prefix_cache)


def _to_vllm_sampling_params(request: Request) -> VllmSamplingParams:
    params = request.sampling_params
    made = VllmSamplingParams(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=sorted(params.stop_token_ids),
        ignore_eos=params.eos_token_id is None,
        repetition_detection=_to_vllm_repetition_detection(params.repetition_detection),
        skip_reading_prefix_cache=params.skip_reading_prefix_cache,
        # Which one does not matter: the grammar is handed in.
        structured_outputs=StructuredOutputsParams(choice=["a"]) if request.needs_grammar else None,
        extra_args=_to_extra_args(request),
    )
    # The front end does this, with the end-of-sequence token of the model.
    made.update_from_generation_config({}, params.eos_token_id)
    return made


def _to_extra_args(request: Request) -> dict[str, object] | None:
    extra: dict[str, object] = {}
    if request.canvas_length is not None:
        extra["diffusion_canvas_length"] = request.canvas_length
    if request.max_denoise_steps is not None:
        extra |= {"diffusion_read_only": True, "diffusion_max_steps": request.max_denoise_steps}
    return extra or None


class VllmGrammar(StructuredOutputGrammar):  # type: ignore[misc]  # untyped where vLLM is missing
    """A grammar of ours behind the interface of a backend's."""

    def __init__(self, grammar: Grammar) -> None:
        self._first = self.value = grammar

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Go past `tokens`; tell whether all were allowed."""
        del request_id
        self.value, all_accepted = self.value.accept_tokens(tokens)
        return all_accepted

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Give the tokens in front of the first that is not allowed."""
        return tokens[: self.value.count_valid_tokens(tokens)]

    def rollback(self, num_tokens: int) -> None:
        """Not needed: nothing is tried out."""
        raise NotImplementedError

    def fill_bitmask(self, bitmask: object, batch_index: int) -> None:
        """Not needed: no row is masked here."""
        raise NotImplementedError

    def is_terminated(self) -> bool:
        """Tell that it goes on."""
        return False

    def reset(self) -> None:
        """Go back to the start."""
        self.value = self._first


def _to_vllm_repetition_detection(
    detection: RepetitionDetection | None,
) -> RepetitionDetectionParams | None:
    return None if detection is None else RepetitionDetectionParams(**attrs.asdict(detection))


def to_model_runner_output(
    batch: Mapping[str, int],
    sampled_token_ids: Mapping[RequestId, Sequence[int]],
    pooled_request_ids: Collection[RequestId] = (),
) -> ModelRunnerOutput:
    """Make the real result of a step: one row per request of the batch, empty where none was sampled."""
    request_ids = list(batch)
    return ModelRunnerOutput(
        req_ids=request_ids,
        req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
        sampled_token_ids=[
            list(sampled_token_ids.get(RequestId(request_id), ())) for request_id in request_ids
        ],
        pooler_output=[torch.zeros(1) if name in pooled_request_ids else None for name in request_ids],
    )
