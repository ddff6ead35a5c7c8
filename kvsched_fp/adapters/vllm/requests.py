"""From vLLM's requests and results to ours; what is not modelled is named and refused."""

from collections.abc import Callable, Iterable, Mapping

from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest
from vllm.v1.request import RequestStatus as VllmRequestStatus

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidEvent, UnsupportedFeature
from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.request import RepetitionDetection, Request, SamplingParams

_REFUSED: tuple[tuple[str, Callable[[VllmRequest], object]], ...] = (
    ("pooling requests", lambda request: request.pooling_params is not None),
    ("prompts given as embeddings", lambda request: request.prompt_embeds is not None),
    ("prompts given as embeddings", lambda request: request.prompt_is_token_ids is not None),
    ("multimodal inputs", lambda request: request.mm_features),
    ("LoRA", lambda request: request.lora_request is not None),
    ("structured output", lambda request: request.structured_output_request is not None),
    ("streaming sessions", lambda request: request.resumable),
)
"""Features that are not modelled: the name, and how to see that a request asks for it."""

_FRESH: tuple[tuple[str, Callable[[VllmRequest], bool], str], ...] = (
    ("status", lambda request: request.status == VllmRequestStatus.WAITING, "WAITING"),
    ("num_computed_tokens", lambda request: request.num_computed_tokens == 0, "0"),
    ("num_in_flight_tokens", lambda request: request.num_in_flight_tokens == 0, "0"),
    ("num_preemptions", lambda request: request.num_preemptions == 0, "0"),
    ("output_token_ids", lambda request: not request.output_token_ids, "none"),
    ("spec_token_ids", lambda request: not request.spec_token_ids, "none"),
)
"""What a request has that no scheduler has seen: the attribute, a test, and what is allowed."""


def to_request(request: VllmRequest, config: SchedulerConfig) -> Request:
    """Translate a request that is to be added.

    Raises `UnsupportedFeature` for what is not modelled, and `InvalidEvent` for a request that has been
    scheduled before.
    """
    asked_by = f"request {request.request_id!r}"
    for feature, is_asked_for in _REFUSED:
        if is_asked_for(request):
            raise UnsupportedFeature(feature, asked_by)
    if config.enable_kv_cache_events and request.kv_cache_report_mode == "full":
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
    )


def to_sampling_params(request: VllmRequest) -> SamplingParams:
    """Translate what ends the output of a request."""
    params: VllmSamplingParams = request.sampling_params
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
    if output.pooler_output and any(pooled is not None for pooled in output.pooler_output):
        raise UnsupportedFeature("pooling requests", "ModelRunnerOutput.pooler_output")
    sampled = output.sampled_token_ids
    indices = output.req_id_to_index
    drawn: dict[RequestId, Iterable[int]] = {}
    for request_id in batch:
        index = indices.get(request_id)
        if index is None:
            if request_id in live:
                allowed = f"a row for every request of step {step_id}"
                raise InvalidEvent("req_id_to_index", request_id, allowed)
        elif sampled and (token_ids := sampled[index]):
            drawn[request_id] = token_ids
    return StepResult(step_id=step_id, sampled_token_ids=OrderedMap.adopt(drawn))
