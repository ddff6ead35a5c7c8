"""`kvsched-fp explain`: why each request got what it got in one step of a trace."""

import json
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvsched_fp.cli.options import option
from kvsched_fp.cli.usage import command
from kvsched_fp.errors import TraceError
from kvsched_fp.events import Schedule
from kvsched_fp.explain import explain as explain_step
from kvsched_fp.outputs import Reason, SchedulerOutput
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.difference import Difference, plain
from kvsched_fp.trace.reader import open_trace_reader
from kvsched_fp.trace.replay import replay

_EPILOG = """\b
Exit codes: 0 explained, also where the trace has something else; 2 the trace cannot be read, or there is no
such step or request; 130 interrupted.
"""


@attrs.frozen
class Explanation:
    """One step, explained."""

    step_id: int
    """Which step."""
    line: int
    """The line of its record."""
    before: SchedulerState
    """The state that it met."""
    output: SchedulerOutput
    """What this package planned."""
    reasons: tuple[Reason, ...]
    """Why, one per live request."""
    difference: Difference | None
    """Where the trace has something else."""


@command(epilog=_EPILOG)
@click.argument("trace", type=click.Path(path_type=Path))
@option("--step", "step_id", type=click.IntRange(min=1), required=True, metavar="N", help="Which step.")
@option("--request", "request_id", metavar="ID", help="Explain this request only.")
@option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def explain(*, trace: Path, step_id: int, request_id: str | None, as_json: bool) -> None:
    """Say why each request got what it got in step N of TRACE.

    The numbers in brackets are rules; specs/ has them. What is explained is what this package decides,
    and if the trace has something else, that is said too.
    """
    explanation = find_step(trace, step_id)
    reasons = explanation.reasons
    if request_id is not None:
        reasons = tuple(reason for reason in reasons if reason.request_id == request_id)
        if not reasons:
            known = ", ".join(repr(reason.request_id) for reason in explanation.reasons[:20]) or "none"
            allowed = f"a request that is live before step {step_id}: {known}"
            raise TraceError("--request", request_id, allowed, path=trace, line=explanation.line)
    if as_json:
        click.echo(_format_json(explanation, reasons))
    else:
        _print(explanation, reasons)


def find_step(path: Path, step_id: int) -> Explanation:
    """Replay a trace up to step `step_id`. Raises `TraceError` if it does not get there."""
    last = 0
    with open_trace_reader(path) as reader:
        for replayed in replay(reader):
            output, event = replayed.outcome, replayed.event
            if isinstance(event, Schedule) and isinstance(output, SchedulerOutput):
                last = output.step_id
                if last == step_id:
                    reasons = explain_step(replayed.before, throttle_prefills=event.throttle_prefills)
                    line = replayed.record.line.number
                    return Explanation(last, line, replayed.before, output, reasons, replayed.difference)
            if replayed.difference is not None:
                where = f"a step before line {replayed.record.line.number}, where the trace differs"
                raise TraceError("--step", step_id, f"{where} (1 to {last})", path=path)
    raise TraceError("--step", step_id, f"a step of the trace (1 to {last})", path=path)


def _format_json(explanation: Explanation, reasons: tuple[Reason, ...]) -> str:
    difference = explanation.difference
    values = {
        "step": explanation.step_id,
        "line": explanation.line,
        "num_requests": len(explanation.output.num_scheduled_tokens),
        "num_tokens": explanation.output.total_num_scheduled_tokens,
        "num_free_blocks": explanation.before.kv.pool.num_free_blocks,
        "reasons": [plain(reason) for reason in reasons],
        "difference": None if difference is None else plain(difference),
    }
    return json.dumps(values, indent=2)


def _print(explanation: Explanation, reasons: tuple[Reason, ...]) -> None:
    output, before = explanation.output, explanation.before
    click.echo(
        f"step {explanation.step_id} (line {explanation.line}): "
        f"{len(output.num_scheduled_tokens)} requests get {output.total_num_scheduled_tokens} tokens; "
        f"before it {len(before.running)} ran, {len(before.requests) - len(before.running)} waited, "
        f"{before.kv.pool.num_free_blocks} blocks were free"
    )
    table = Table("request", "tokens", "rule", "why")
    table.columns[1].justify = "right"
    for reason in reasons:
        row = (_shown(reason.request_id), str(reason.num_tokens), reason.rule_id, _shown(reason.text))
        table.add_row(*map(Text, row))
    Console().print(table)
    if explanation.difference is not None:
        click.echo(f"the trace has something else: {explanation.difference}")


def _shown(text: str) -> str:
    """Give a text without what would change the terminal."""
    return text if text.isprintable() else ascii(text)
