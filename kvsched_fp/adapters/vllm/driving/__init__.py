"""Driving a scheduler class of vLLM's with values of ours, as an engine would: for tests.

`VllmAdapter` is for `kvsched_fp.testing`. Importing this package imports vLLM and sets switches of its own.
"""

from kvsched_fp.adapters.vllm.driving.adapter import VllmAdapter

__all__ = ["VllmAdapter"]
