"""Saying where the real scheduler and the machine went different ways."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs

from kvsched_fp.adapters.vllm.history import History
from kvsched_fp.adapters.vllm.options import ShadowOptions
from kvsched_fp.errors import KvschedError
from kvsched_fp.events import Event, Schedule
from kvsched_fp.explain import explain
from kvsched_fp.machine import Outcome
from kvsched_fp.outputs import Reason
from kvsched_fp.state import SchedulerState
from kvsched_fp.trace.codec import Told, what_was_told
from kvsched_fp.trace.difference import Difference
from kvsched_fp.trace.divergence import Divergence, make_divergence
from kvsched_fp.trace.replay import Replayed

logger = logging.getLogger("kvsched_fp.shadow")

_RULES_OF_PROGRESS = ("M-REQ-02", "M-REQ-03", "U-TOK-01")
"""The rules about a request's counters."""


class ShadowDifference(KvschedError):  # noqa: N818  the names of errors are the project's vocabulary
    """The real scheduler and the machine went different ways."""

    def __init__(self, report: "Report") -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        return str(self.report)


@attrs.frozen
class Report:
    """A difference, and where its trace is."""

    divergence: Divergence
    """The step, the path, both values (`recorded` is the real one's), the rules and the last events."""
    trace: Path | None
    """A trace that ends with the call that differs; None if what happened cannot be told by a trace."""

    def __str__(self) -> str:
        if self.trace is None:
            return f"{self.divergence}\nno trace: attributes were assigned in the middle of the run"
        return f"{self.divergence}\ntrace: {self.trace}"


@attrs.frozen
class Parting:
    """The call at which both sides parted."""

    event: Event
    before: SchedulerState
    after: SchedulerState
    outcome: Outcome
    difference: Difference
    told_by_real: Told
    """What the real scheduler told, in our words."""


def make_report(
    parting: Parting, history: History, last_events: tuple[str, ...], options: ShadowOptions
) -> Report:
    """Write down what differs, and a trace of it."""
    report = Report(
        _make_divergence(parting, history.num_events, last_events), _write_trace(parting, history, options)
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    stem = options.folder / _stem(history)
    stem.with_suffix(".txt").write_text(f"{report}\n", encoding="utf-8")
    return report


def act_on(report: Report, options: ShadowOptions) -> None:
    """Do what the options say about a difference."""
    if options.on_difference == "raise":
        raise ShadowDifference(report)
    if options.on_difference == "log":
        logger.error("the real scheduler and kvsched_fp went different ways\n%s", report)


def _make_divergence(parting: Parting, number: int, last_events: tuple[str, ...]) -> Divergence:
    record = SimpleNamespace(
        event=parting.event,
        told=lambda: parting.told_by_real,
        line=SimpleNamespace(number=number + 1),  # behind the header
    )
    replayed = Replayed(
        number,
        cast("Any", record),
        parting.before,
        parting.after,
        parting.outcome,
        parting.difference,
    )
    divergence = make_divergence(replayed, last_events)
    request_id = _request_in(parting.difference.path)
    if request_id is None:
        return divergence
    reasons: tuple[Reason, ...] = ()
    if isinstance(parting.event, Schedule):
        reasons = tuple(
            reason
            for reason in explain(parting.before, throttle_prefills=parting.event.throttle_prefills)
            if reason.request_id == request_id
        )
    rules = tuple(dict.fromkeys(reason.rule_id for reason in reasons)) or _RULES_OF_PROGRESS
    return attrs.evolve(divergence, reasons=reasons, rule_ids=rules)


def _request_in(path: str) -> str | None:
    """Name the request whose progress a path leads to."""
    if not path.startswith('requests["'):
        return None
    return path.removeprefix('requests["').rpartition('"]')[0]


def _write_trace(parting: Parting, history: History, options: ShadowOptions) -> Path | None:
    if not history.is_complete:
        return None
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{_stem(history)}.jsonl"
    told = parting.told_by_real
    if told is None:
        told = what_was_told(parting.event, parting.after, parting.outcome)
    history.write_trace(path, told)
    return path


def _stem(history: History) -> str:
    """Name the files of a difference; one process may have several shadows."""
    return f"difference-{os.getpid()}-{history.number}"
