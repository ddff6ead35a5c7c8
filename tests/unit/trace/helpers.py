"""Small traces for the tests: recorded from this package, and then edited."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvsched_fp import SchedulerConfig
from kvsched_fp.trace import open_trace
from kvsched_fp.workloads.play import play
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config

REQUESTS = ((0.0, 9, 4), (0.0, 7, 6), (0.1, 12, 3), (0.1, 5, 5), (0.2, 3, 2), (0.3, 9, 9), (0.4, 8, 4))
"""Arrival, prompt tokens and output tokens of the requests of a small trace."""


def small_config(**changes: Any) -> SchedulerConfig:
    """Make the configuration of a small trace: three requests fill it."""
    return make_config(**{"usable_blocks": 9, "enable_kv_cache_events": True, **changes})


def write_trace(path: Path, config: SchedulerConfig | None = None) -> Path:
    """Record a small trace."""
    config = small_config() if config is None else config
    with open_trace(path, config) as trace:
        for played in play(config, make_workload(*REQUESTS)):
            trace.write(played.event, played.after, played.outcome)
    return path


def read_values(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a trace as plain JSON values."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_values(path: Path, values: list[dict[str, Any]]) -> Path:
    """Write plain JSON values as the lines of a trace."""
    lines = (json.dumps(value, separators=(",", ":")) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def edit(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Change a trace in place."""
    values = read_values(path)
    change(values)
    return write_values(path, values)


def line_of_step(values: list[dict[str, Any]], step_id: int) -> int:
    """Give the index of the line that planned a step."""
    return next(i for i, value in enumerate(values) if value.get("output", {}).get("step_id") == step_id)


CHANGED_STEP = 9
"""The step that `give_one_more` changes."""


def give_one_more(values: list[dict[str, Any]], step_id: int = CHANGED_STEP) -> None:
    """Change one decision: the last request of a step's batch gets one token more."""
    output = values[line_of_step(values, step_id)]["output"]
    output["num_scheduled_tokens"][-1][1] += 1
    output["total_num_scheduled_tokens"] += 1
