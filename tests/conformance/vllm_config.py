"""Our configuration as a real scheduler: where it is now."""

from kvsched_fp.adapters.vllm.driving.build import CARRIED_OVER, build_scheduler

__all__ = ["CARRIED_OVER", "build_scheduler"]
