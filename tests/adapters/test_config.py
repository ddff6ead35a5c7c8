"""vLLM's own configurations become ours, feature by feature, and choose among the twins."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from kvsched_fp import InvalidConfig, SchedulerConfig
from kvsched_fp.config import RunnerType, SpecDecodeMetricsLevel

pytestmark = pytest.mark.usefixtures("_reference")

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 256,
    "torch_dtype": "float16",
}


def write_model() -> str:
    """Write the description of a tiny model; give its folder."""
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(MODEL))
    return str(folder)


def make_vllm_config(
    *, drafter: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **parts: Any
) -> Any:
    """Make a whole configuration of vLLM's, as an engine would; `parts` replace its defaults."""
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        ParallelConfig,
        SpeculativeConfig,
        VllmConfig,
    )
    from vllm.config import SchedulerConfig as VllmSchedulerConfig

    folder = write_model()
    model_config = ModelConfig(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=256,
        **(model or {}),
    )
    parallel = parts.setdefault("parallel_config", ParallelConfig())
    if drafter is not None:
        if drafter["method"] == "eagle":
            drafter = {"model": write_model(), **drafter}
        parts["speculative_config"] = SpeculativeConfig(
            target_model_config=model_config, target_parallel_config=parallel, **drafter
        )
    parts.setdefault("scheduler_config", VllmSchedulerConfig(max_model_len=256, is_encoder_decoder=False))
    return VllmConfig(
        model_config=model_config,
        cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
        device_config=DeviceConfig(device="cpu"),
        **parts,
    )


def translate(vllm_config: Any, **named: Any) -> SchedulerConfig:
    """Translate it, with one group of full attention."""
    from kvsched_fp.adapters.vllm import to_scheduler_config

    return to_scheduler_config(vllm_config, kv_cache_config(), block_size=16, **named)


def kv_cache_config() -> Any:
    """Make a cache of 40 blocks."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
    groups = [KVCacheGroupSpec(["layer.0"], spec)]
    return KVCacheConfig(num_blocks=40, kv_cache_tensors=[], kv_cache_groups=groups)


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
EAGLE = {"method": "eagle", "num_speculative_tokens": 2}


def with_pipeline() -> Any:
    """Ask for two stages."""
    from vllm.config import ParallelConfig

    return make_vllm_config(parallel_config=ParallelConfig(pipeline_parallel_size=2))


def with_adapters() -> Any:
    """Ask for adapters."""
    from vllm.config import LoRAConfig

    return make_vllm_config(lora_config=LoRAConfig(max_loras=3))


def with_metrics() -> Any:
    """Ask for what became of the drafts of each request."""
    from vllm.config import ObservabilityConfig

    observability = ObservabilityConfig(per_request_spec_decode_metrics="detailed")
    return make_vllm_config(drafter=NGRAM, observability_config=observability)


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "vLLM's defaults": (make_vllm_config, {"async_scheduling": True, "num_spec_tokens": 0}),
    "n-grams": (
        lambda: make_vllm_config(drafter=NGRAM),
        {"num_spec_tokens": 3, "num_lookahead_tokens": 0, "num_prefill_lookahead_tokens": 0},
    ),
    "EAGLE": (
        lambda: make_vllm_config(drafter=EAGLE),
        {
            "num_spec_tokens": 2,
            "num_lookahead_tokens": 2,
            "num_prefill_lookahead_tokens": 1,
            "num_hash_lookahead_tokens": 1,
            "drop_eagle_block": False,
        },
    ),
    "EAGLE without hashes that look ahead": (
        lambda: make_vllm_config(drafter={**EAGLE, "disable_lookahead_block_hashes": True}),
        {"num_hash_lookahead_tokens": 0, "drop_eagle_block": True},
    ),
    "fewer drafts for larger batches": (
        lambda: make_vllm_config(
            drafter={**EAGLE, "num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 8, 1]]}
        ),
        {"num_spec_tokens_per_batch_size": ((1, 4, 2), (5, 8, 1))},
    ),
    "metrics": (with_metrics, {"spec_decode_metrics": SpecDecodeMetricsLevel.DETAILED}),
    "adapters": (with_adapters, {"max_loras": 3}),
    "a pipeline": (with_pipeline, {"pipeline_parallel_size": 2}),
    "pooling": (
        lambda: make_vllm_config(model={"runner": "pooling"}),
        {"runner_type": RunnerType.POOLING, "async_scheduling": False},
    ),
}
"""Per feature, how to ask vLLM for it, and the fields of ours that say so."""


@pytest.mark.parametrize("feature", CASES)
def test_feature_is_taken_over(feature: str) -> None:
    """What vLLM was asked for stands in the fields of ours."""
    make, expected = CASES[feature]

    translated = translate(make())

    assert expected == {name: getattr(translated, name) for name in expected}


def test_events_go_with_statistics() -> None:
    """The reference keeps events of requests with `log_stats`."""
    vllm_config = make_vllm_config()

    kept = [translate(vllm_config, log_stats=log_stats).log_request_events for log_stats in (False, True)]

    assert [False, True] == kept


@pytest.mark.parametrize("is_diffusion", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ["ShadowScheduler", "RecordingScheduler"])
def test_the_twin_is_chosen(
    config: SchedulerConfig, name: str, is_async: bool, is_diffusion: bool, tmp_path: Path
) -> None:
    """One name does for vLLM's four schedulers: the configuration says which."""
    import kvsched_fp.adapters.vllm as adapters
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler
    from tests.adapters.pairs import build_like

    runner_type = RunnerType.DIFFUSION if is_diffusion else RunnerType.GENERATE
    num_spec_tokens = 4 if is_diffusion else 0
    real = build_scheduler(
        attrs.evolve(
            config, runner_type=runner_type, async_scheduling=is_async, num_spec_tokens=num_spec_tokens
        )
    )
    made = build_like(real, getattr(adapters, name), trace=tmp_path / "trace.jsonl")

    twin = "Diffusion" * is_diffusion + "Async" * is_async + name
    assert twin == type(made).__name__
    assert isinstance(made, type(real))


def test_asynchronous_by_class(config: SchedulerConfig) -> None:
    """The asynchronous twins are so whatever the configuration says, as vLLM's own class is."""
    from kvsched_fp.adapters.vllm import AsyncOracleScheduler, AsyncShadowScheduler
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler
    from tests.adapters.pairs import build_like

    real = build_scheduler(config)

    made = [build_like(real, kind).state.config for kind in (AsyncOracleScheduler, AsyncShadowScheduler)]

    assert [True, True] == [config.async_scheduling for config in made]


@pytest.mark.parametrize("name", ["use_v2_model_runner", "num_lookahead_tokens"])
def test_skipping_drafts_is_fixed(config: SchedulerConfig, name: str) -> None:
    """An assignment that would change whether drafts can be skipped is refused: the real one fixes that."""
    from kvsched_fp.adapters.vllm import OracleScheduler
    from tests.adapters.pairs import build_pair

    config = attrs.evolve(config, num_spec_tokens=2, num_lookahead_tokens=2)
    oracle = build_pair(config, OracleScheduler)[1].scheduler

    with pytest.raises(InvalidConfig, match=name):
        setattr(oracle, name, 0 if name == "num_lookahead_tokens" else False)


def test_own_cadence_in_spite_of_ranks(config: SchedulerConfig) -> None:
    """`local_prefill_interval` that is assigned counts, though the engines of a group keep it elsewhere."""
    from kvsched_fp.adapters.vllm import OracleScheduler
    from tests.adapters.pairs import build_pair

    config = attrs.evolve(config, data_parallel_size=2, prefill_schedule_interval=4)
    oracle = build_pair(config, OracleScheduler)[1].scheduler
    before = oracle.local_prefill_interval

    oracle.local_prefill_interval = 3

    assert (1, 3) == (before, oracle.local_prefill_interval)
