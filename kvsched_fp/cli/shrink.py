"""`kvsched-fp shrink`: a small trace that still differs."""

from pathlib import Path

import click
from rich.console import Console
from rich.status import Status

from kvsched_fp.cli.failures import EXIT_DIFFERENT
from kvsched_fp.cli.options import option
from kvsched_fp.cli.usage import command
from kvsched_fp.errors import TraceError
from kvsched_fp.events import Event
from kvsched_fp.trace.reader import open_trace_reader
from kvsched_fp.trace.recorded_judge import RecordedJudge, tell_smaller_trace
from kvsched_fp.trace.replay import replay
from kvsched_fp.trace.shrink import DEFAULT_MAX_TRIES, Shrunk, shrink
from kvsched_fp.trace.verdict import check_trace
from kvsched_fp.trace.writer import open_trace

_EPILOG = """\b
Exit codes: 0 TRACE does not differ, and nothing was written; 1 it differs, as with check, and the smaller
trace was written; 2 TRACE cannot be read, or FILE not written; 130 interrupted.
"""


@command("shrink", epilog=_EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the smaller trace goes.  [default: TRACE with .shrunk before its ending]",
)
@option(
    "--tries",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TRIES,
    show_default=True,
    metavar="N",
    help="Play at most N smaller histories.",
)
@option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.pass_context
def shrink_command(ctx: click.Context, *, trace: Path, out: Path | None, tries: int, quiet: bool) -> None:
    """Write a smaller trace that differs in the same field, with the same two values.

    A file does not say what the other scheduler would have done with other events. It is assumed to agree
    with this package up to the difference, and to differ there as recorded; specs/trace-format.md has
    the details.
    """
    target = trace.with_suffix(f".shrunk{trace.suffix}") if out is None else out
    if target.exists() and target.samefile(trace):
        raise TraceError("--out", str(target), "another file than TRACE", path=trace)
    shrunk = shrink_file(trace, target, tries, quiet=quiet)
    if shrunk is None:
        if not quiet:
            click.echo(f"{trace}: identical: nothing to shrink")
        return
    if not quiet:
        _show(target, shrunk)
    ctx.exit(EXIT_DIFFERENT)


def shrink_file(trace: Path, target: Path, tries: int, *, quiet: bool) -> Shrunk | None:
    """Shrink `trace` into `target`; None if it does not differ. Raises `TraceError`."""
    events: list[Event] = []
    with open_trace_reader(trace) as reader:
        header = reader.header
        last = None
        for last in replay(reader):
            events.append(last.event)
        if last is None or last.difference is None:
            return None
        judge = RecordedJudge(header.config, last)
    console = Console(stderr=True)
    with Status(f"{len(events)} events", console=console) as status:
        if quiet or not console.is_terminal:
            status.stop()
        shrunk = shrink(
            header.config,
            events,
            judge,
            max_tries=tries,
            tell=lambda tried, left: status.update(f"{left} events left, {tried} histories tried"),
        )
    if shrunk is None:
        raise TraceError("trace", str(trace), "a difference that shows again", path=trace)
    with open_trace(target, header.config, header.source_sha256) as writer:
        for event, told in tell_smaller_trace(header.config, shrunk.events, judge):
            writer.write_told(event, told)
    return shrunk


def _show(target: Path, shrunk: Shrunk) -> None:
    with open_trace_reader(target) as reader:
        verdict = check_trace(reader)
    how = "no part can go" if shrunk.is_minimal else "the tries ran out"
    click.echo(f"{target}: {len(shrunk.events)} events left after {shrunk.num_tries} tries; {how}")
    click.echo(str(verdict.divergence))
