"""From vLLM's requests and results to ours; what is not modelled is named and refused."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidEvent, UnsupportedFeature
from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import LoRA, RepetitionDetection, Request, SamplingParams

_REFUSED: tuple[tuple[str, Callable[[VllmRequest], object]], ...] = (
    ("prompts given as embeddings", lambda request: request.prompt_embeds is not None),
    ("prompts given as embeddings", lambda request: request.prompt_is_token_ids is not None),
    ("multimodal inputs", lambda request: request.mm_features),
)
"""Features that are not modelled: the name, and how to see that a request asks for it."""

_FRESH: tuple[tuple[str, Callable[[VllmRequest], bool], str], ...] = (
    (
        "status",
        lambda request: request.status == _first_status(request),
        "WAITING, or WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
    ),
    ("num_computed_tokens", lambda request: request.num_computed_tokens == 0, "0"),
    ("num_in_flight_tokens", lambda request: request.num_in_flight_tokens == 0, "0"),
    ("num_preemptions", lambda request: request.num_preemptions == 0, "0"),
    ("output_token_ids", lambda request: not request.output_token_ids, "none"),
    ("spec_token_ids", lambda request: not request.spec_token_ids, "none"),
)
"""What a request has that no scheduler has seen: the attribute, a test, and what is allowed."""


def _first_status(request: VllmRequest) -> VllmRequestStatus:
    if request.structured_output_request is None:
        return VllmRequestStatus.WAITING
    return VllmRequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


def to_request(request: VllmRequest, config: SchedulerConfig) -> Request:
    """Translate a request that is to be added.

    Raises `UnsupportedFeature` for what is not modelled, and `InvalidEvent` for a request that has been
    scheduled before.
    """
    asked_by = f"request {request.request_id!r}"
    for feature, is_asked_for in _REFUSED:
        if is_asked_for(request):
            raise UnsupportedFeature(feature, asked_by)
    # Pooling requests do not have that attribute.
    report_mode = getattr(request, "kv_cache_report_mode", "incremental")
    if config.enable_kv_cache_events and report_mode == "full":
        raise UnsupportedFeature("KV events for blocks that were found", asked_by)
    if config.enable_kv_cache_events and request.session_id is not None:
        raise UnsupportedFeature("KV events that name a session", asked_by)
    for name, is_fresh, allowed in _FRESH:
        if not is_fresh(request):
            raise InvalidEvent(
                f"{asked_by}.{name}", getattr(request, name), f"{allowed}, in a request that is added"
            )
    return Request(
        request_id=RequestId(request.request_id),
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=to_sampling_params(request),
        arrival_time=request.arrival_time,
        priority=request.priority,
        client_index=request.client_index,
        cache_salt=request.cache_salt,
        lora=to_lora(request.lora_request),
        pooling=request.pooling_params is not None,
        needs_grammar=request.structured_output_request is not None,
        resumable=request.resumable,
        **_to_canvas(request, config),
    )


def to_lora(lora: LoRARequest | None) -> LoRA | None:
    """Translate an adapter."""
    return None if lora is None else LoRA(lora.lora_name, lora.lora_int_id, lora.lora_path)


def _to_canvas(request: VllmRequest, config: SchedulerConfig) -> dict[str, Any]:
    """Translate what a diffusion request asks for in its extra arguments."""
    params: VllmSamplingParams | None = request.sampling_params
    if config.runner_type is not RunnerType.DIFFUSION or params is None or not params.extra_args:
        return {}
    extra = params.extra_args
    width = extra.get("diffusion_canvas_length")
    max_steps = extra.get("diffusion_max_steps") if extra.get("diffusion_read_only") else None
    return {"canvas_length": int(width) if width else None, "max_denoise_steps": max_steps or None}


def to_sampling_params(request: VllmRequest) -> SamplingParams:
    """Translate what ends the output of a request."""
    params: VllmSamplingParams | None = request.sampling_params
    if params is None:
        return SamplingParams(
            max_tokens=request.max_tokens, skip_reading_prefix_cache=request.skip_reading_prefix_cache
        )
    return SamplingParams(
        max_tokens=request.max_tokens,
        min_tokens=params.min_tokens,
        eos_token_id=params.eos_token_id,
        stop_token_ids=frozenset(params.stop_token_ids or ()),
        repetition_detection=_to_repetition_detection(params),
        skip_reading_prefix_cache=request.skip_reading_prefix_cache,
    )


def _to_repetition_detection(params: VllmSamplingParams) -> RepetitionDetection | None:
    detection = params.repetition_detection
    if detection is None:
        return None
    return RepetitionDetection(
        max_pattern_size=detection.max_pattern_size,
        min_pattern_size=detection.min_pattern_size,
        min_count=detection.min_count,
    )


def to_step_result(
    step_id: StepId,
    batch: Mapping[RequestId, int],
    output: ModelRunnerOutput,
    live: Mapping[RequestId, object],
) -> StepResult:
    """Translate what the model runner returned for the step with the rows `batch`.

    Only requests that are no longer `live` may have no row there.
    """
    if output.kv_connector_output is not None and not output.kv_connector_output.is_empty():
        raise UnsupportedFeature("KV connectors", "ModelRunnerOutput.kv_connector_output")
    if output.ec_connector_output is not None and not output.ec_connector_output.is_empty():
        raise UnsupportedFeature("encoder-cache connectors", "ModelRunnerOutput.ec_connector_output")
    sampled, pooler_output = output.sampled_token_ids, output.pooler_output
    indices = output.req_id_to_index
    drawn: dict[RequestId, Iterable[int]] = {}
    pooled: list[RequestId] = []
    for request_id in batch:
        index = indices.get(request_id)
        if index is None:
            if request_id in live:
                allowed = f"a row for every request of step {step_id}"
                raise InvalidEvent("req_id_to_index", request_id, allowed)
        else:
            if sampled and (token_ids := sampled[index]):
                drawn[request_id] = token_ids
            if pooler_output and pooler_output[index] is not None:
                pooled.append(request_id)
    return StepResult(step_id=step_id, sampled_token_ids=OrderedMap.adopt(drawn), pooled_request_ids=pooled)


def to_drafts(draft_token_ids: DraftTokenIds, live: Container[RequestId]) -> OrderedMap[RequestId, Any]:
    """Translate drafts; those for requests that are no longer `live` are dropped."""
    pairs = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False)
    return OrderedMap.adopt(
        {RequestId(request_id): tuple(drafts) for request_id, drafts in pairs if request_id in live}
    )
