"""Readers of public request traces, and the stub model that answers a step.

A workload file becomes `WorkloadRequest`s (`formats.open_workload`), which `play.play` sends through the
state machine on a simulated clock (`clock.py`), answering each step with a `stub.StubModel`.
`summary.Summary` keeps the figures. Nothing here reads a clock.
"""

from kvsched_fp.workloads.clock import StepCost
from kvsched_fp.workloads.formats import OpenWorkload, WorkloadFormat, open_workload
from kvsched_fp.workloads.play import Played, play
from kvsched_fp.workloads.request import WorkloadRequest
from kvsched_fp.workloads.stall import StalledError
from kvsched_fp.workloads.stub import StubModel
from kvsched_fp.workloads.summary import Figures, Summary

__all__ = [
    "Figures",
    "OpenWorkload",
    "Played",
    "StalledError",
    "StepCost",
    "StubModel",
    "Summary",
    "WorkloadFormat",
    "WorkloadRequest",
    "open_workload",
    "play",
]
