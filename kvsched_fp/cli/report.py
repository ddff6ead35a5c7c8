"""What a run came to: as a table for people, as JSON for programs."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from kvsched_fp.workloads.summary import Figures, figures_as_mapping

_NOT_KEPT = "not kept"


@attrs.frozen(kw_only=True)
class RunReport:
    """The outcome of a run."""

    workload: str
    """What was played."""
    figures: Figures
    """What it came to, in simulated time."""
    num_invariants_checked: int
    """Checks made; one invariant after two events counts twice."""
    wall_seconds: float
    """How long it took."""
    interrupted: bool
    """Whether it was ended by Ctrl-C."""


def format_json(report: RunReport) -> str:
    """Write the report as one JSON object; shares are from 0.0 to 1.0 and times in seconds."""
    values = {
        "workload": report.workload,
        "interrupted": report.interrupted,
        **figures_as_mapping(report.figures),
        "num_invariants_checked": report.num_invariants_checked,
        "wall_seconds": round(report.wall_seconds, 3),
    }
    return json.dumps(values, indent=2)


def print_table(report: RunReport, console: Console) -> None:
    """Write the report as a table."""
    suffix = " (interrupted: the summary so far)" if report.interrupted else ""
    console.print(f"{report.workload}{suffix}", soft_wrap=True, markup=False, highlight=False)
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, value in _rows(report):
        table.add_row(name, value)
    console.print(table)


def _rows(report: RunReport) -> Iterator[tuple[str, str]]:
    figures = report.figures
    yield "requests", f"{figures.num_finished:,} of {figures.num_requests:,} finished"
    yield "steps", f"{figures.num_steps:,}"
    yield (
        "tokens",
        f"{figures.num_scheduled_tokens:,} computed; {figures.num_prompt_tokens:,} in prompts, "
        f"{figures.num_output_tokens:,} sampled",
    )
    yield "tokens per step", _number(figures.mean_tokens_per_step)
    yield "running", f"mean {_number(figures.mean_running)}, peak {figures.peak_running:,}"
    yield "waiting", f"peak {figures.peak_waiting:,}"
    yield "preemptions", f"{figures.num_preemptions:,}"
    yield "prefix-cache hit rate", _share(figures.prefix_cache_hit_rate)
    if figures.num_evicted_blocks is not None:
        yield "blocks evicted", f"{figures.num_evicted_blocks:,}"
    yield (
        "peak block usage",
        f"{_share(figures.peak_block_usage)} ({figures.peak_used_blocks:,} blocks)",
    )
    yield from _rows_of_features(figures)
    yield "time to first token", _durations(figures.time_to_first_token)
    yield "time between tokens", _durations(figures.time_between_tokens)
    yield "simulated time", f"{figures.simulated_seconds:,.3f} s"
    yield "invariants checked", f"{report.num_invariants_checked:,}"
    yield "wall time", f"{report.wall_seconds:,.1f} s"


def _rows_of_features(figures: Figures) -> Iterator[tuple[str, str]]:
    """Give the rows that only a run with the feature has."""
    overlap = figures.steps_in_flight
    if overlap is not None:
        yield "steps in flight", f"mean {_number(overlap['mean'])}, peak {overlap['max']:,}"
    drafts = figures.drafts
    if drafts is not None:
        yield (
            "drafts",
            f"{drafts['num_draft_tokens']:,} verified, {drafts['num_accepted_tokens']:,} accepted",
        )
        yield "draft acceptance rate", _number(drafts["acceptance_rate"], ".1%")
        yield "mean accepted length", _number(drafts["mean_acceptance_length"], ".2f")


def _number(value: float | None, style: str = ",.1f") -> str:
    return "none" if value is None else f"{value:{style}}"


def _share(value: float | None) -> str:
    return _NOT_KEPT if value is None else f"{value:.1%}"


def _durations(values: Mapping[str, Any]) -> str:
    if values["mean"] is None:
        return "none"
    return ", ".join(f"{name} {_seconds(value)}" for name, value in values.items())


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value >= 1 else f"{value * 1000:,.1f} ms"
