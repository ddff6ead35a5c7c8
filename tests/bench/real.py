"""Build the real scheduler, and a request for it, with no more than the benchmark needs."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, VllmConfig
from vllm.config import SchedulerConfig as VllmSchedulerConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from kvsched_fp import SchedulerConfig

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float16",
}


def build(config: SchedulerConfig) -> Scheduler:
    """Make a real scheduler over one full-attention group, with the budgets of `config`."""
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(MODEL))
    cache = CacheConfig(
        block_size=config.block_size,
        cache_dtype="auto",
        enable_prefix_caching=config.enable_prefix_caching,
    )
    cache.num_gpu_blocks = config.num_blocks
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            tokenizer=str(folder),
            skip_tokenizer_init=True,
            dtype="float16",
            seed=0,
            max_model_len=config.max_model_len,
        ),
        cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
        scheduler_config=VllmSchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            long_prefill_token_threshold=config.long_prefill_token_threshold,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
    )
    spec = FullAttentionSpec(block_size=config.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv_cache = KVCacheConfig(
        num_blocks=config.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    scheduler = Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache,
        block_size=config.block_size,
        structured_output_manager=StructuredOutputManager(vllm_config),
        log_stats=True,
    )
    scheduler.use_v2_model_runner = config.use_v2_model_runner
    return scheduler


def make_request(
    request_id: str, prompt: Sequence[int], max_tokens: int, hasher: Callable[[Request], list[Any]]
) -> Request:
    """Make a request that ends by length only."""
    return Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        pooling_params=None,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        arrival_time=0.0,
        block_hasher=hasher,
    )
