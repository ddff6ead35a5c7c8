"""Bridges to other schedulers. Nothing here imports one before you ask for it.

`kvsched_fp.adapters.vllm` needs vLLM: `OracleScheduler` decides in the place of vLLM's scheduler, and
`ShadowScheduler` lets that one decide and checks every decision.
"""
