"""The conformance suite: the real vLLM scheduler and ours, side by side. Start reading at `README.md`."""

from . import vllm_env

__all__ = ["vllm_env"]
