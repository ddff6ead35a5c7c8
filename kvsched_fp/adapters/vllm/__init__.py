"""The bridge to vLLM 0.33.0: importing this package imports vLLM.

`OracleScheduler` decides in the place of vLLM's scheduler. `ShadowScheduler` lets the real one decide, runs
the machine beside it on the same inputs, and compares everything after every call. `RecordingScheduler`
lets the real one decide, and writes a trace.

Each follows the configuration: asynchronous scheduling or not, diffusion or not. The twins are for those
who choose a class by themselves, as they would among vLLM's.
"""

from kvsched_fp.adapters.vllm.config import to_scheduler_config
from kvsched_fp.adapters.vllm.oracle import AsyncOracleScheduler, OracleScheduler
from kvsched_fp.adapters.vllm.recording import (
    AsyncRecordingScheduler,
    DiffusionAsyncRecordingScheduler,
    DiffusionRecordingScheduler,
    RecordingScheduler,
)
from kvsched_fp.adapters.vllm.report import Report, ShadowDifference
from kvsched_fp.adapters.vllm.shadow import (
    AsyncShadowScheduler,
    DiffusionAsyncShadowScheduler,
    DiffusionShadowScheduler,
    ShadowScheduler,
)

__all__ = [
    "AsyncOracleScheduler",
    "AsyncRecordingScheduler",
    "AsyncShadowScheduler",
    "DiffusionAsyncRecordingScheduler",
    "DiffusionAsyncShadowScheduler",
    "DiffusionRecordingScheduler",
    "DiffusionShadowScheduler",
    "OracleScheduler",
    "RecordingScheduler",
    "Report",
    "ShadowDifference",
    "ShadowScheduler",
    "to_scheduler_config",
]
