"""`kvsched-fp explore`: search a small world for every history that breaks an invariant."""

import time
from pathlib import Path

import click
from rich.console import Console

from kvsched_fp.cli.explore_report import (
    ExploreReport,
    exit_code_of_report,
    format_json,
    is_cut,
    print_report,
    tell_ending,
)
from kvsched_fp.cli.failures import EXIT_INTERRUPTED
from kvsched_fp.cli.interrupt import catch_interrupt, interrupts_held_back
from kvsched_fp.cli.options import option
from kvsched_fp.cli.progress import ExploreProgress
from kvsched_fp.cli.usage import command
from kvsched_fp.cli.world_source import OUTSIDE, WorldOptions, make_world
from kvsched_fp.errors import InvalidInputError, TraceError
from kvsched_fp.explore.findings import Ending, Exploration, Limits, SearchProgress
from kvsched_fp.explore.goals import GOALS
from kvsched_fp.explore.memory import require_memory
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.search import explore
from kvsched_fp.explore.story import play_again
from kvsched_fp.explore.world import World
from kvsched_fp.trace.writer import open_trace

DEFAULT_WORLD = "tiny"
DEFAULT_MEMORY = 2048
_MIB = 2**20

_WORLDS = "\n".join(f"  {name:<14} {world.about}" for name, world in PRESETS.items())
_GOALS = "\n".join(f"  {name:<18} {goal.sentence}" for name, goal in GOALS.items())

_EPILOG = f"""\b
Worlds:
{_WORLDS}

\b
A request of --request: prompt=N tokens; and, if wanted, output=N (the most; 1), count=N (how many of them),
shared=N (tokens at the front that all kinds share), priority=N, lora=N (its adapter), grammar=true,
inputs=N (a session with so many further inputs).

\b
Goals:
{_GOALS}

\b
Exit codes: 0 nothing wrong in what was explored, also where --depth, --max-states or --memory ended the
search, which is told; 1 something is wrong, or a goal was not reached in a world that was explored in full;
2 the input was wrong; 130 interrupted.
"""


@command("explore", epilog=_EPILOG)
@click.argument("world_name", required=False, metavar="[WORLD]")
@option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="SchedulerConfig fields in TOML or JSON, instead of those of WORLD.",
)
@option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set one field; can be repeated.")
@option(
    "--request",
    "requests",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="A kind of request that may come, instead of those of WORLD; can be repeated.",
)
@option("--in-flight", type=click.IntRange(min=1), metavar="N", help="Let at most N steps be in flight.")
@option(
    "--with",
    "added",
    multiple=True,
    type=click.Choice(list(OUTSIDE)),
    help="Let this happen, too, at any time; can be repeated.",
)
@option(
    "--without",
    "removed",
    multiple=True,
    type=click.Choice(list(OUTSIDE)),
    help="Do not let this happen; can be repeated.",
)
@option(
    "--goal",
    "goals",
    multiple=True,
    metavar="NAME",
    help="A situation that must be reached, instead of those of WORLD; can be repeated. A world that is "
    "changed has none.",
)
@option("--depth", type=click.IntRange(min=0), metavar="N", help="Try histories of at most N events.")
@option("--max-states", type=click.IntRange(min=1), metavar="N", help="Stop when N states are found.")
@option(
    "--memory",
    type=click.IntRange(min=1),
    metavar="MIB",
    default=DEFAULT_MEMORY,
    show_default=True,
    help="Stop when all processes together have so much memory.",
)
@option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Search in N processes; the result is the same.",
)
@option("--no-check", is_flag=True, help="Check no invariants: count states, find errors and who is stuck.")
@option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the counterexample as a trace, if there is one; else FILE stays as it is.",
)
@option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@option(
    "--quiet",
    is_flag=True,
    help="No progress; print nothing but what is wrong, and that a limit ended the search.",
)
@click.pass_context
def explore_command(
    ctx: click.Context,
    *,
    world_name: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    requests: tuple[str, ...],
    in_flight: int | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    goals: tuple[str, ...],
    depth: int | None,
    max_states: int | None,
    memory: int,
    jobs: int,
    no_check: bool,
    trace: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Try every history of a small world, and check every invariant on the way.

    WORLD is one of those below [default: tiny]; options change it. Whatever is wrong is told by a shortest
    history. specs/explorer.md says what is searched, and what a world leaves out.
    """
    changes = WorldOptions(
        config_file=config,
        assignments=assignments,
        requests=requests,
        max_in_flight=in_flight,
        added=added,
        removed=removed,
        goals=goals,
    )
    if trace is not None:
        require_writable(trace)
    preset = find_preset(world_name or DEFAULT_WORLD)
    world = make_world(preset, changes)
    require_memory("--memory", memory * _MIB, jobs, unit_bytes=_MIB, unit="MiB")
    limits = Limits(max_depth=depth, max_states=max_states, max_bytes=memory * _MIB)
    report = run_search(preset, world, limits, num_jobs=jobs, checks=not no_check, quiet=quiet)
    if trace is not None:
        write_trace(trace, report.exploration)
    if as_json:
        click.echo(format_json(report))
    else:
        print_report(report, Console(), trace=trace, quiet=quiet)
        if quiet and is_cut(report):
            click.echo(f"{report.exploration.world.name}: {tell_ending(report)}", err=True)
    if report.exploration.ending is Ending.INTERRUPTED:
        ctx.exit(EXIT_INTERRUPTED)
    ctx.exit(exit_code_of_report(report))


def require_writable(path: Path) -> None:
    """Refuse a place for a trace before the search, without touching it. Raises `TraceError`."""
    try:
        reason = (
            "Is a directory" if path.is_dir() else None if path.parent.is_dir() else "No such directory"
        )
    except ValueError as error:  # a NUL in the name
        reason = str(error)
    if reason is not None:
        raise TraceError("trace", reason, "a file that can be written", path=path)


def find_preset(name: str) -> World:
    """Give the preset of that name. Raises `InvalidInputError`."""
    if name not in PRESETS:
        raise InvalidInputError("WORLD", name, f"one of {', '.join(PRESETS)}")
    return PRESETS[name]


def run_search(
    preset: World, world: World, limits: Limits, *, num_jobs: int, checks: bool, quiet: bool
) -> ExploreReport:
    """Search, with a line of progress, until the end or Ctrl-C."""
    started = time.perf_counter()
    with catch_interrupt() as interrupt, ExploreProgress(visible=not quiet) as progress:

        def tell(found: SearchProgress) -> bool:
            progress.update(found)
            return not interrupt.is_set

        exploration = explore(
            world, limits=limits, num_jobs=num_jobs, checks=checks, tell=tell, starting=interrupts_held_back
        )
    return ExploreReport(preset=preset, exploration=exploration, wall_seconds=time.perf_counter() - started)


def write_trace(path: Path, found: Exploration) -> None:
    """Write the counterexample as a trace; an event at which the machine failed is left out.

    Without one, nothing is written, and a file that is there stays; the standard error says so, as it may
    be taken for the trace of this search.
    """
    if found.counterexample is None:
        if path.exists():
            click.echo(f"{path}: left as it was before; this search has no counterexample", err=True)
        return
    with open_trace(path, found.world.config) as writer:
        for told in play_again(found.world, found.counterexample):
            if told.after is not None:
                writer.write(told.event, told.after, told.outcome)
