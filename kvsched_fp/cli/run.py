"""`kvsched-fp run`: play a request trace through the state machine."""

import itertools
import json
import time
from contextlib import ExitStack
from pathlib import Path

import attrs
import click
from rich.console import Console

from kvsched_fp.cli.checks import Checker, CheckMode
from kvsched_fp.cli.config_source import parse_assignment, read_config
from kvsched_fp.cli.failures import EXIT_INTERRUPTED
from kvsched_fp.cli.interrupt import InterruptFlag, catch_interrupt
from kvsched_fp.cli.options import check_mode, check_options, option
from kvsched_fp.cli.progress import RunProgress
from kvsched_fp.cli.report import RunReport, format_json, print_table
from kvsched_fp.cli.usage import command
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError, TraceError
from kvsched_fp.trace.writer import TraceWriter, open_trace
from kvsched_fp.workloads.clock import StepCost
from kvsched_fp.workloads.formats import OpenWorkload, WorkloadFormat, open_workload
from kvsched_fp.workloads.play import DEFAULT_MAX_WAITING, check_playable, play
from kvsched_fp.workloads.sample import REPLAY_CONFIG, SAMPLE_NAME, sample_path
from kvsched_fp.workloads.stub import DEFAULT_ACCEPTANCE_RATE, StubModel
from kvsched_fp.workloads.summary import Summary

_EPILOG = f"""\b
The default configuration is a scheduler short of memory, for Mooncake's traces:
  max_model_len={REPLAY_CONFIG.max_model_len} max_num_seqs={REPLAY_CONFIG.max_num_seqs}
  max_num_batched_tokens={REPLAY_CONFIG.max_num_batched_tokens} num_blocks={REPLAY_CONFIG.num_blocks}
  block_size={REPLAY_CONFIG.block_size} enable_kv_cache_events=true; all else as SchedulerConfig().

\b
Steps that overlap, and drafts; each stands for a few --set in front of the others:
  --async   async_scheduling=true
  --pp N    pipeline_parallel_size=N
  --spec N  num_spec_tokens=N num_lookahead_tokens=N num_prefill_lookahead_tokens=1
            num_hash_lookahead_tokens=1, as an EAGLE head has them

\b
Formats:
  mooncake  {{"timestamp": MS, "input_length": N, "output_length": N, "hash_ids": [...]}}
            with one hash id per 512 prompt tokens
  jsonl     {{"arrival": S, "prompt_tokens": N, "output_tokens": N}}
  csv       a header line: arrival,prompt_tokens,output_tokens
jsonl and csv may have a fourth field, priority.

\b
Exit codes: 0 done; 1 an invariant was violated; 2 the input was wrong; 130 interrupted.
"""


@attrs.frozen(kw_only=True)
class RunOptions:
    """What the command line asks for."""

    workload: Path | None
    config_file: Path | None
    assignments: tuple[str, ...]
    workload_format: WorkloadFormat | None
    limit: int | None
    step_cost: StepCost
    max_waiting: int
    acceptance_rate: float | None
    trace: Path | None
    check: CheckMode
    check_interval: int
    as_json: bool
    quiet: bool


@command(epilog=_EPILOG)
@click.argument("workload", required=False, type=click.Path(path_type=Path))
@option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="SchedulerConfig fields in TOML or JSON, instead of the default below.",
)
@option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set one field; can be repeated.")
@option(
    "--format",
    "format_name",
    type=click.Choice([member.value for member in WorkloadFormat]),
    help="The format of WORKLOAD; told from its first line if not given.",
)
@option("--limit", type=click.IntRange(min=1), metavar="N", help="Play the first N requests only.")
@option(
    "--async", "is_async", is_flag=True, help="Plan a step while the one before runs: one more in flight."
)
@option(
    "--pp",
    "num_stages",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run on a pipeline of N stages, with N steps in flight.",
)
@option(
    "--spec",
    "num_drafts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Speculate with N drafts per request and step.",
)
@option(
    "--acceptance-rate",
    type=click.FloatRange(min=0, max=1),
    metavar="R",
    help="With --spec: the probability that a draft is accepted if those before it were; the same ones "
    f"always are.  [default: {DEFAULT_ACCEPTANCE_RATE}]",
)
@option(
    "--step-cost-base",
    type=float,
    default=StepCost().base,
    show_default=True,
    help="Simulated seconds of a step.",
)
@option(
    "--step-cost-per-token",
    type=float,
    default=StepCost().per_token,
    show_default=True,
    help="Simulated seconds on top of that, per scheduled token.",
)
@option(
    "--step-cost-engine",
    type=float,
    default=StepCost().engine,
    show_default=True,
    help="Simulated seconds that it takes to plan a step, before it begins; --async and --pp spend them "
    "while other steps run.",
)
@option(
    "--max-waiting",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_WAITING,
    show_default=True,
    help="Requests that wait in the scheduler; more wait in front of it, which bounds the memory.",
)
@option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write a JSON Lines trace.")
@check_options("the bundled sample")
@option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@option("--quiet", is_flag=True, help="No progress bar and no table.")
@click.pass_context
def run(
    ctx: click.Context,
    *,
    workload: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    format_name: str | None,
    limit: int | None,
    is_async: bool,
    num_stages: int | None,
    num_drafts: int | None,
    acceptance_rate: float | None,
    step_cost_base: float,
    step_cost_per_token: float,
    step_cost_engine: float,
    max_waiting: int,
    trace: Path | None,
    check_name: str | None,
    check_every: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Play a request trace through the state machine.

    WORKLOAD is a file of requests; without it, a sample of 281 real requests (Mooncake's conversation
    trace, Apache-2.0) is played. A stub model answers every step, a simulated clock counts the time, and
    the invariants are checked on the way.
    """
    options = RunOptions(
        workload=workload,
        config_file=config,
        assignments=_with_features(assignments, is_async, num_stages, num_drafts),
        workload_format=None if format_name is None else WorkloadFormat(format_name),
        limit=limit,
        step_cost=StepCost(base=step_cost_base, per_token=step_cost_per_token, engine=step_cost_engine),
        max_waiting=max_waiting,
        acceptance_rate=acceptance_rate,
        trace=trace,
        check=check_mode(check_name, is_bundled=workload is None),
        check_interval=check_every,
        as_json=as_json,
        quiet=quiet,
    )
    report = run_workload(options)
    show_report(report, options)
    if report.interrupted:
        ctx.exit(EXIT_INTERRUPTED)


def _with_features(
    assignments: tuple[str, ...], is_async: bool, num_stages: int | None, num_drafts: int | None
) -> tuple[str, ...]:
    """Put what the options for single features say in front of the assignments.

    Raises `InvalidInputError` for an assignment that says something else than such an option. What goes
    with the feature may be assigned.
    """
    features = {
        "async_scheduling": ("--async", True if is_async else None),
        "pipeline_parallel_size": ("--pp", num_stages),
        "num_spec_tokens": ("--spec", num_drafts),
    }
    for key, value in map(parse_assignment, assignments):
        option_name, chosen = features.get(key, ("", None))
        if chosen is not None and value != chosen:
            allowed = f"{json.dumps(chosen)}, as {option_name} says"
            raise InvalidInputError(f"--set {key}", value, allowed)
    return (*_assignments_of_features(is_async, num_stages, num_drafts), *assignments)


def _assignments_of_features(
    is_async: bool, num_stages: int | None, num_drafts: int | None
) -> tuple[str, ...]:
    """Write the options for single features as `--set` would have them.

    Upstream: `config/vllm.py::VllmConfig.num_lookahead_tokens`, `num_prefill_lookahead_tokens` and
    `num_hash_lookahead_tokens`, for the methods eagle, eagle3 and mtp.
    """
    values: dict[str, object] = {}
    if is_async:
        values["async_scheduling"] = "true"
    if num_stages is not None:
        values["pipeline_parallel_size"] = num_stages
    if num_drafts is not None:
        values["num_spec_tokens"] = values["num_lookahead_tokens"] = num_drafts
        values["num_prefill_lookahead_tokens"] = values["num_hash_lookahead_tokens"] = 1
    return tuple(f"{key}={value}" for key, value in values.items())


def run_workload(options: RunOptions) -> RunReport:
    """Open everything, play the workload and report. Raises `KvschedError`."""
    config = read_config(options.config_file, options.assignments, REPLAY_CONFIG)
    model = _stub_model(options.acceptance_rate, config)
    check_playable(config)
    with ExitStack() as stack:
        path = stack.enter_context(sample_path()) if options.workload is None else options.workload
        workload = stack.enter_context(
            open_workload(path, options.workload_format, max_model_len=config.max_model_len)
        )
        trace = None
        if options.trace is not None:
            _require_distinct(options.trace, (path, options.config_file))
            trace = stack.enter_context(open_trace(options.trace, config))
        interrupt = stack.enter_context(catch_interrupt())
        return _play(options, config, model, workload, trace, interrupt)


def _stub_model(acceptance_rate: float | None, config: SchedulerConfig) -> StubModel:
    """Make the model; refuse an acceptance rate that nothing would use."""
    if acceptance_rate is None:
        return StubModel()
    if config.num_spec_tokens == 0:
        raise InvalidInputError("--acceptance-rate", acceptance_rate, "no value without --spec")
    return StubModel(acceptance_rate)


def _play(
    options: RunOptions,
    config: SchedulerConfig,
    model: StubModel,
    workload: OpenWorkload,
    trace: TraceWriter | None,
    interrupt: InterruptFlag,
) -> RunReport:
    started = time.perf_counter()
    summary = Summary()
    checker = Checker(options.check, options.check_interval)
    requests = itertools.islice(workload, options.limit)
    run_events = play(
        config, requests, step_cost=options.step_cost, max_waiting=options.max_waiting, model=model
    )
    with RunProgress(_num_requests(options, workload), visible=not options.quiet) as progress:
        try:
            for played in run_events:
                if trace is not None:
                    trace.write(played.event, played.after, played.outcome)
                summary.record(played)
                checker.check(played)
                progress.update(summary.num_finished, summary.num_steps)
                if interrupt.is_set:
                    break
            checker.finish()
        except KeyboardInterrupt:  # the second Ctrl-C, while the first one was not yet noticed
            interrupt.is_set = True
    return RunReport(
        workload=f"bundled sample {SAMPLE_NAME}" if options.workload is None else str(options.workload),
        figures=summary.figures(),
        num_invariants_checked=checker.num_checked,
        wall_seconds=time.perf_counter() - started,
        interrupted=interrupt.is_set,
    )


def _num_requests(options: RunOptions, workload: OpenWorkload) -> int | None:
    """Count the requests to play, for the progress bar; None if that cannot be known."""
    if options.quiet:
        return options.limit
    counts = [count for count in (workload.estimate_num_requests(), options.limit) if count is not None]
    return min(counts, default=None)


def _require_distinct(trace: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse to write the trace over one of the input files."""
    for path in inputs:
        try:
            same = path is not None and trace.exists() and trace.samefile(path)
        except (OSError, ValueError):
            continue  # opening it will say what is wrong
        if same:
            raise TraceError("trace", str(trace), "a file that is not read by the run", path=trace)


def show_report(report: RunReport, options: RunOptions) -> None:
    """Print the report as asked for."""
    if options.as_json:
        click.echo(format_json(report))
    elif not options.quiet:
        print_table(report, Console())
    elif report.interrupted:
        click.echo("interrupted", err=True)
