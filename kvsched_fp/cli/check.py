"""`kvsched-fp check`: replay traces and compare everything that was recorded."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from kvsched_fp.cli.failures import EXIT_DIFFERENT
from kvsched_fp.cli.options import check_mode, check_options, option
from kvsched_fp.cli.progress import CheckProgress
from kvsched_fp.cli.trace_checking import CheckOptions, FileReport, check_files, size_of
from kvsched_fp.cli.usage import command
from kvsched_fp.trace.bundled import bundled_traces

_EPILOG = """\b
Exit codes: 0 identical; 1 something differs, or an invariant was violated; 2 a trace cannot be read (and
none differs); 130 interrupted.
"""


@command(epilog=_EPILOG)
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path), metavar="[TRACE]...")
@check_options("the bundled traces")
@option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Check this many files at a time.  [default: one per processor]",
)
@option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@option("--quiet", is_flag=True, help="No progress bar, and nothing about traces that are identical.")
@click.pass_context
def check(
    ctx: click.Context,
    *,
    traces: tuple[Path, ...],
    check_name: str | None,
    check_every: int,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay traces, and compare what was recorded with what should have come of every event.

    TRACE is a file in the format of specs/trace-format.md, made by any scheduler. Without one, the traces
    that come with the package are checked; they were recorded from the real scheduler.
    """
    with ExitStack() as stack:
        paths = traces or tuple(stack.enter_context(bundled_traces()))
        options = CheckOptions(mode=check_mode(check_name, is_bundled=not traces), interval=check_every)
        progress = stack.enter_context(CheckProgress(sum(map(size_of, paths)), visible=not quiet))
        reports = list(check_files(paths, options, jobs, progress.update))
    if as_json:
        click.echo(json.dumps(reports_as_mapping(reports), indent=2))
    else:
        _print_reports(reports, quiet=quiet)
    ctx.exit(exit_code_of_reports(reports))


def exit_code_of_reports(reports: Sequence[FileReport]) -> int:
    """Give the exit code of all: a difference weighs more than a file that cannot be read."""
    codes = {report.exit_code for report in reports}
    return EXIT_DIFFERENT if EXIT_DIFFERENT in codes else max(codes, default=0)


def _print_reports(reports: Sequence[FileReport], *, quiet: bool) -> None:
    for report in reports:
        if report.error is not None:
            click.echo(f"error: {report.error}", err=True)
            continue
        assert report.verdict is not None
        if report.verdict.divergence is not None:
            click.echo(f"{report.path}: {report.verdict.divergence}")
        elif not quiet:
            click.echo(f"{report.path}: identical: {_count(report)}")
        if report.num_other_sources:
            click.echo(
                f"{report.path}: recorded from other sources than the pinned ones: "
                f"{report.num_other_sources} files differ",
                err=True,
            )
    if len(reports) > 1 and not quiet and exit_code_of_reports(reports) == 0:
        click.echo(f"identical: {_count(*reports)} in {len(reports)} traces")


def _count(*reports: FileReport) -> str:
    verdicts = [report.verdict for report in reports if report.verdict is not None]
    num_events = sum(verdict.num_events for verdict in verdicts)
    num_decisions = sum(verdict.num_decisions for verdict in verdicts)
    num_checked = sum(report.num_invariants_checked for report in reports)
    return f"{num_events:,} events, {num_decisions:,} decisions, {num_checked:,} invariants checked"


def reports_as_mapping(reports: Sequence[FileReport]) -> dict[str, Any]:
    """Give the reports as plain JSON values."""
    files = [_report_as_mapping(report) for report in reports]
    return {
        "result": _worst(files),
        "num_events": sum(file["num_events"] for file in files),
        "num_decisions": sum(file["num_decisions"] for file in files),
        "files": files,
    }


def _worst(files: Sequence[dict[str, Any]]) -> str:
    results = {file["result"] for file in files}
    return next(name for name in ("different", "error", "identical") if name in results or not results)


def _report_as_mapping(report: FileReport) -> dict[str, Any]:
    verdict = report.verdict
    divergence = None if verdict is None else verdict.divergence
    found = "identical" if divergence is None else "different"
    return {
        "path": report.path,
        "result": "error" if verdict is None else found,
        "num_events": 0 if verdict is None else verdict.num_events,
        "num_decisions": 0 if verdict is None else verdict.num_decisions,
        "num_invariants_checked": report.num_invariants_checked,
        "num_other_sources": report.num_other_sources,
        "wall_seconds": round(report.wall_seconds, 3),
        "error": report.error,
        "difference": None if divergence is None else divergence.as_mapping(),
    }
