"""The bridge to vLLM 0.33.0: importing this package imports vLLM.

`OracleScheduler` decides in the place of vLLM's scheduler. `ShadowScheduler` lets the real one decide, runs
the machine beside it on the same inputs, and compares everything after every call. `RecordingScheduler`
lets the real one decide, and writes a trace.
"""

from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.oracle import AsyncOracleScheduler, OracleScheduler
from kvsched_fp.adapters.vllm.recording import RecordingScheduler
from kvsched_fp.adapters.vllm.report import Report, ShadowDifference
from kvsched_fp.adapters.vllm.shadow import AsyncShadowScheduler, ShadowScheduler

__all__ = [
    "AsyncOracleScheduler",
    "AsyncShadowScheduler",
    "OracleScheduler",
    "RecordingScheduler",
    "Report",
    "ShadowDifference",
    "ShadowScheduler",
    "to_scheduler_config",
]
