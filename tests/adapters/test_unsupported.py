"""A feature that is not modelled is refused by name, when the scheduler or the request is made."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kvsched_fp import Request, SamplingParams, SchedulerConfig
from kvsched_fp.config import RunnerType
from kvsched_fp.errors import UnsupportedFeature

pytestmark = pytest.mark.usefixtures("_reference")

CONFIGS: dict[str, tuple[str, str, Any]] = {
    "KV connectors": ("", "kv_transfer_config", object()),
    "encoder-cache connectors": ("", "ec_transfer_config", object()),
    "decode context parallelism": ("parallel_config", "decode_context_parallel_size", 2),
    "prefill context parallelism": ("parallel_config", "prefill_context_parallel_size", 2),
    "encoder-decoder models": ("model_config", "is_encoder_decoder", True),
    "auxiliary outputs": ("", "aux_output_config", SimpleNamespace(enabled=True)),
    "KV cache residency metrics": ("observability_config", "kv_cache_metrics", True),
}
"""Per feature, the part of vLLM's configuration, the attribute, and a value that asks for it."""

REQUESTS: dict[str, Callable[[Any], None]] = {
    "prompts given as embeddings": lambda request: setattr(request, "prompt_embeds", object()),
    "multimodal inputs": lambda request: setattr(request, "mm_features", [object()]),
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
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler

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
    from kvsched_fp.adapters.vllm.driving.requests import make_request_hasher, to_vllm_request

    real = real_scheduler(config)
    scheduler = build(kind, real.vllm_config, real)
    asked = Request(request_id="a", prompt_token_ids=range(9), sampling_params=SamplingParams(max_tokens=3))
    request = to_vllm_request(asked, make_request_hasher(config))
    REQUESTS[feature](request)

    with pytest.raises(UnsupportedFeature) as caught:
        scheduler.add_request(request)

    assert (feature, False) == (caught.value.feature, scheduler.has_request("a"))


@pytest.mark.parametrize("kind", KINDS)
def test_eagle_blocks_of_some_groups(config: SchedulerConfig, kind: str) -> None:
    """A drafter that shares some groups alone, and gives up blocks there, is refused."""
    config = attrs.evolve(
        config, num_spec_tokens=2, drop_eagle_block=True, kv_cache_groups=config.kv_cache_groups * 2
    )
    real = real_scheduler(config)
    groups = copy.deepcopy(real.kv_cache_config)
    groups.kv_cache_groups[1].is_eagle_group = True

    with pytest.raises(UnsupportedFeature, match="EAGLE"):
        build(kind, real.vllm_config, real, kv_cache_config=groups)


def test_reasoning(config: SchedulerConfig) -> None:
    """The oracle cannot tell where reasoning ends, so it refuses a grammar that begins behind it."""
    from kvsched_fp.adapters.vllm.driving.requests import make_request_hasher, to_vllm_request

    real = real_scheduler(config)
    manager = copy.copy(real.structured_output_manager)
    manager.reasoner_cls = object
    oracle = build("OracleScheduler", real.vllm_config, real, structured_output_manager=manager)
    asked = Request(
        request_id="a",
        prompt_token_ids=range(9),
        sampling_params=SamplingParams(max_tokens=3),
        needs_grammar=True,
    )

    with pytest.raises(UnsupportedFeature, match="reasoning"):
        oracle.add_request(to_vllm_request(asked, make_request_hasher(config)))

    assert not oracle.has_request("a")


@pytest.mark.parametrize("kind", ["AsyncOracleScheduler", "AsyncShadowScheduler"])
def test_half_asynchronous_pipelines(config: SchedulerConfig, kind: str) -> None:
    """An asynchronous class under a configuration that is not would still send tokens ahead."""
    real = real_scheduler(attrs.evolve(config, pipeline_parallel_size=2))

    with pytest.raises(UnsupportedFeature, match="pipeline"):
        build(kind, real.vllm_config, real)


def test_diffusion_needs_its_class(config: SchedulerConfig) -> None:
    """A shadow of the plain scheduler is not made for a model of canvases."""
    from kvsched_fp.adapters.vllm import ShadowScheduler

    real = real_scheduler(attrs.evolve(config, runner_type=RunnerType.DIFFUSION, num_spec_tokens=2))
    kind = type("Plain", (ShadowScheduler,), {})

    with pytest.raises(UnsupportedFeature, match="diffusion models"):
        kind(
            vllm_config=real.vllm_config,
            kv_cache_config=real.kv_cache_config,
            structured_output_manager=real.structured_output_manager,
            block_size=real.block_size,
        )
