"""A feature that is not modelled is refused by name, when the scheduler or the request is made."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp import Request, SamplingParams, SchedulerConfig
from kvsched_fp.errors import UnsupportedFeature

pytestmark = pytest.mark.usefixtures("_reference")

CONFIGS: dict[str, tuple[str, str, Any]] = {
    "asynchronous scheduling": ("scheduler_config", "async_scheduling", True),
    "KV connectors": ("", "kv_transfer_config", object()),
    "encoder-cache connectors": ("", "ec_transfer_config", object()),
    "speculative decoding": ("", "speculative_config", object()),
    "LoRA": ("", "lora_config", object()),
    "pipeline parallelism": ("parallel_config", "pipeline_parallel_size", 2),
    "decode context parallelism": ("parallel_config", "decode_context_parallel_size", 2),
    "prefill context parallelism": ("parallel_config", "prefill_context_parallel_size", 2),
    "pooling models": ("model_config", "runner_type", "pooling"),
    "KV cache residency metrics": ("observability_config", "kv_cache_metrics", True),
}
"""Per feature, the part of vLLM's configuration, the attribute, and a value that asks for it."""

REQUESTS: dict[str, Callable[[Any], None]] = {
    "pooling requests": lambda request: setattr(request, "pooling_params", object()),
    "prompts given as embeddings": lambda request: setattr(request, "prompt_embeds", object()),
    "multimodal inputs": lambda request: setattr(request, "mm_features", [object()]),
    "LoRA": lambda request: setattr(request, "lora_request", object()),
    "structured output": lambda request: setattr(request, "structured_output_request", object()),
    "streaming sessions": lambda request: setattr(request, "resumable", True),
}
"""Per feature, how to make a request ask for it."""

KINDS = ("OracleScheduler", "ShadowScheduler", "RecordingScheduler")


@pytest.fixture(autouse=True)
def _trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say where a recorder writes."""
    monkeypatch.setenv("KVSCHED_FP_TRACE", str(tmp_path / "trace.jsonl"))


def build(kind: str, vllm_config: Any, real: Any, **changes: Any) -> Any:
    """Build a scheduler of ours."""
    import kvsched_fp.adapters.vllm as adapters

    arguments = {
        "kv_cache_config": real.kv_cache_config,
        "structured_output_manager": real.structured_output_manager,
        "block_size": real.block_size,
        "hash_block_size": real.hash_block_size,
        **changes,
    }
    return getattr(adapters, kind)(vllm_config=vllm_config, **arguments)


def real_scheduler(config: SchedulerConfig) -> Any:
    """Build the real one."""
    from tests.conformance.vllm_config import build_scheduler

    return build_scheduler(config)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feature", CONFIGS)
def test_configuration(config: SchedulerConfig, feature: str, kind: str) -> None:
    """The constructor names the feature."""
    real = real_scheduler(config)
    part, name, value = CONFIGS[feature]
    changed = copy.copy(real.vllm_config)
    owner = changed
    if part:
        owner = copy.copy(getattr(changed, part))
        object.__setattr__(changed, part, owner)
    object.__setattr__(owner, name, value)

    with pytest.raises(UnsupportedFeature) as caught:
        build(kind, changed, real)

    assert feature == caught.value.feature


@pytest.mark.parametrize("kind", KINDS)
def test_finer_hash_blocks(config: SchedulerConfig, kind: str) -> None:
    """Hash blocks of another size than the cache blocks are refused."""
    real = real_scheduler(config)

    with pytest.raises(UnsupportedFeature, match="hash blocks"):
        build(kind, real.vllm_config, real, hash_block_size=2)


@pytest.mark.parametrize("kind", KINDS)
def test_other_groups(config: SchedulerConfig, kind: str) -> None:
    """A KV cache group that is not full attention is refused, and named."""
    import torch
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

    real = real_scheduler(config)
    spec = SlidingWindowSpec(
        block_size=4, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=8
    )
    groups = [KVCacheGroupSpec(["layer.0"], spec)]
    kv_cache_config = KVCacheConfig(num_blocks=60, kv_cache_tensors=[], kv_cache_groups=groups)

    with pytest.raises(UnsupportedFeature, match="SlidingWindowSpec"):
        build(kind, real.vllm_config, real, kv_cache_config=kv_cache_config)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feature", REQUESTS)
def test_request(config: SchedulerConfig, feature: str, kind: str) -> None:
    """`add_request` names the feature, and the request is not let in."""
    from tests.conformance.vllm_requests import make_request_hasher, to_vllm_request

    real = real_scheduler(config)
    scheduler = build(kind, real.vllm_config, real)
    asked = Request(request_id="a", prompt_token_ids=range(9), sampling_params=SamplingParams(max_tokens=3))
    request = to_vllm_request(asked, make_request_hasher(config))
    REQUESTS[feature](request)

    with pytest.raises(UnsupportedFeature) as caught:
        scheduler.add_request(request)

    assert (feature, False) == (caught.value.feature, scheduler.has_request("a"))


@pytest.mark.parametrize("kind", ["AsyncOracleScheduler", "AsyncShadowScheduler"])
def test_asynchronous_twins(config: SchedulerConfig, kind: str) -> None:
    """The asynchronous twins cannot be made yet."""
    real = real_scheduler(config)

    with pytest.raises(UnsupportedFeature, match="asynchronous scheduling"):
        build(kind, real.vllm_config, real)
