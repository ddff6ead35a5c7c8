"""Our requests and results as the real ones: where they are now."""

from kvsched_fp.adapters.vllm.driving.requests import (
    VllmGrammar,
    make_request_hasher,
    to_model_runner_output,
    to_vllm_request,
)

__all__ = ["VllmGrammar", "make_request_hasher", "to_model_runner_output", "to_vllm_request"]
