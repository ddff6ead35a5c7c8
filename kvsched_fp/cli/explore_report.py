"""What a search came to: lines for people, JSON for programs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from kvsched_fp.cli.failures import EXIT_FAULT
from kvsched_fp.cli.world_source import encode_changes
from kvsched_fp.explore.findings import Ending, Exploration
from kvsched_fp.explore.story import tell_story
from kvsched_fp.explore.world import World
from kvsched_fp.trace.codec import encode_event


@attrs.frozen(kw_only=True)
class ExploreReport:
    """The outcome of a search."""

    preset: World
    """The world that was asked for by name."""
    exploration: Exploration
    """What was found, in that or in what was made of it."""
    wall_seconds: float
    """How long it took."""


def exit_code_of_report(report: ExploreReport) -> int:
    """Give the exit code: a fault, or a goal that cannot be reached, is a failure."""
    exploration = report.exploration
    misses = exploration.ending is Ending.COMPLETE and bool(exploration.missed_goals)
    return EXIT_FAULT if exploration.counterexample is not None or misses else 0


def is_cut(report: ExploreReport) -> bool:
    """Tell whether a limit ended the search, so that what was not explored may be wrong."""
    return report.exploration.ending in {Ending.DEPTH_LIMIT, Ending.STATE_LIMIT, Ending.MEMORY_LIMIT}


def tell_ending(report: ExploreReport) -> str:
    """Say what was explored, and what was not."""
    found, limits = report.exploration, report.exploration.limits
    num_left = found.num_states - found.num_expanded
    left = f"; states found and not explored: {num_left:,}"
    reach = f"every history of at most {found.depth} events was tried"
    match found.ending:
        case Ending.COMPLETE:
            return "explored in full"
        case Ending.VIOLATION:
            assert found.counterexample is not None
            return f"something is wrong, as {len(found.counterexample.events)} events show; no fewer do"
        case Ending.DEPTH_LIMIT:
            return f"stopped at --depth {limits.max_depth}: {reach}{left}"
        case Ending.STATE_LIMIT:
            return f"stopped at --max-states {limits.max_states}: {reach}{left}; others were not kept"
        case Ending.MEMORY_LIMIT:
            mebibytes = (limits.max_bytes or 0) // 2**20
            return f"stopped at --memory {mebibytes}: {reach}{left}"
        case Ending.INTERRUPTED:
            return f"interrupted: {reach}{left}"


def print_report(report: ExploreReport, console: Console, *, trace: Path | None, quiet: bool) -> None:
    """Write the report as a table and, if something is wrong, as a story."""
    exploration = report.exploration
    if not quiet:
        _print(console, f"{exploration.world.name}: {tell_ending(report)}")
        table = Table(show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, value in _rows(report):
            table.add_row(name, value)
        console.print(table)
    if exploration.ending is Ending.COMPLETE and exploration.missed_goals:
        _print(console, f"never reached: {', '.join(exploration.missed_goals)}")
    counterexample = exploration.counterexample
    if counterexample is None:
        if trace is not None and not quiet:
            _print(console, f"nothing written to {trace}: there is no counterexample")
        return
    for line in tell_story(exploration.world, counterexample):
        _print(console, line)
    if trace is not None:
        _print(console, f"written to {trace}")


def _rows(report: ExploreReport) -> Iterator[tuple[str, str]]:
    found = report.exploration
    yield "states", f"{found.num_states:,}, {found.num_expanded:,} of them explored"
    yield "moves checked", f"{found.num_moves:,}"
    yield "depth", f"{found.depth}"
    for what, count in found.standstills.items():
        yield f"standstill: {what}", f"{count:,}"
    for name, depth in found.goals.items():
        yield f"goal: {name}", "not reached" if depth is None else f"reached by {depth} events"
    seconds = max(report.wall_seconds, 1e-9)
    yield "wall time", f"{seconds:,.1f} s, {found.num_states / seconds:,.0f} states/s"


def _print(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def format_json(report: ExploreReport) -> str:
    """Write the report as one JSON object."""
    return json.dumps(report_as_mapping(report), indent=2)


def report_as_mapping(report: ExploreReport) -> dict[str, Any]:
    """Give the report as plain JSON values."""
    found = report.exploration
    counterexample = found.counterexample
    return {
        "world": found.world.name,
        "preset": report.preset.name,
        "changes": encode_changes(report.preset, found.world),
        "limits": attrs.asdict(found.limits),
        "checks": found.checks,
        "ending": found.ending.value,
        "num_states": found.num_states,
        "num_expanded": found.num_expanded,
        "num_moves": found.num_moves,
        "depth": found.depth,
        "goals": found.goals,
        "standstills": found.standstills,
        "wall_seconds": round(report.wall_seconds, 3),
        "counterexample": None
        if counterexample is None
        else {
            "name": counterexample.fault.name,
            "evidence": counterexample.fault.evidence,
            "events": [encode_event(event) for event in counterexample.events],
            "story": list(tell_story(found.world, counterexample)),
        },
    }
