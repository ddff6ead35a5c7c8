"""Saying what differs: the step, the path, both values, the rule that decided, and what came before."""

from collections.abc import Iterator
from typing import Any

import attrs

from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.explain import explain
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import Reason, SchedulerOutput
from kvsched_fp.trace.difference import Difference, plain
from kvsched_fp.trace.replay import Replayed

NUM_LAST_EVENTS = 8
"""Events that a report shows, the one that differs included."""
MAX_REASONS = 8
"""Requests whose reasons a report gives."""

_RULES_OF_FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("output.scheduled_new_requests", ("S-OUT-01", "S-OUT-02")),
    ("output.scheduled_cached_requests.new_block_ids", ("S-OUT-04",)),
    ("output.scheduled_cached_requests.all_token_ids", ("S-OUT-03",)),
    ("output.scheduled_cached_requests", ("S-OUT-02",)),
    ("output.total_num_scheduled_tokens", ("S-BUD-01",)),
    ("output.preempted_request_ids", ("S-PRE-01", "S-PRE-02", "K-RESET-02")),
    ("output.finished_request_ids", ("M-REL-05",)),
    ("output.step_id", ("S-STEP-03",)),
    ("output.scheduled_spec_token_ids", ("S-DRAFT-01", "S-DRAFT-04")),
    ("output.num_spec_tokens_to_schedule", ("S-OUT-06",)),
    ("output.skip_drafts", ("S-DRAFT-02",)),
    ("output.has_structured_output_requests", ("S-ASYNC-03",)),
    ("output.pending_structured_output_tokens", ("S-ASYNC-03",)),
    ("emitted.kv_events", ("U-OUT-04", "K-CACHE-02")),
    (".finished_request_ids", ("U-OUT-02",)),
    (".scheduler_stats.prefix_cache_stats", ("U-OUT-03", "S-WAIT-10")),
    (".scheduler_stats", ("U-OUT-03",)),
    (".new_token_ids", ("U-TOK-03", "U-TOK-04")),
    (".finish_reason", ("U-STOP-01",)),
    (".stop_reason", ("U-STOP-03",)),
    (".prefill_stats", ("U-TOK-07",)),
    ("emitted.clients", ("U-OUT-01",)),
    ("done", ("K-RESET-01",)),
)
"""Which rules decide a field that no single request's reason explains; the first part found in the path."""

_RULES_OF_BLOCKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("].block_ids", ("K-HIT-01", "K-POOL-03")),
    (".new_block_ids[", ("K-POOL-03",)),
    ("].num_computed_tokens", ("K-HIT-01",)),
)
"""Which rules give a row its blocks. They come before the reason of the row, which gives it its tokens."""

_KINDS: dict[type[Event], str] = {
    AddRequest: "add_request",
    FinishRequests: "finish_requests",
    Schedule: "schedule",
    Update: "update",
    UpdateDrafts: "update_drafts",
    UpdateDraftsInFlight: "update_drafts_in_flight",
    GrammarReady: "grammar_ready",
    GrammarFailed: "grammar_failed",
    SetPauseState: "set_pause_state",
    ResetPrefixCache: "reset_prefix_cache",
}


@attrs.frozen
class Divergence:
    """The first event of which something else came here than in the trace."""

    event_number: int
    """The how many-th event, from 1."""
    line: int
    """The line of the file."""
    step_id: int
    """The step that was planned or taken in, or the last step planned before the event."""
    event_kind: str
    """What kind of event."""
    difference: Difference
    """Where, and both values."""
    reasons: tuple[Reason, ...]
    """Of the requests concerned: what this package decided, and why. For `schedule` only."""
    rule_ids: tuple[str, ...]
    """The rules that decided."""
    last_events: tuple[str, ...]
    """The last events, the one that differs at the end."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"different: event {self.event_number} (line {self.line}), {self.event_kind}, "
            f"step {self.step_id}: {self.difference}"
        )
        yield f"decided by {', '.join(self.rule_ids) or 'no rule in particular'}"
        for reason in self.reasons:
            yield f"  {reason.request_id!r} [{reason.rule_id}] {reason.text}"
        yield "last events:"
        for text in self.last_events:
            yield f"  {text}"

    def as_mapping(self) -> dict[str, Any]:
        """Give the report as plain JSON values."""
        return {
            "event": self.event_number,
            "line": self.line,
            "step": self.step_id,
            "kind": self.event_kind,
            "path": self.difference.path,
            "recorded": self.difference.recorded,
            "ours": self.difference.ours,
            "rules": list(self.rule_ids),
            "reasons": [plain(reason) for reason in self.reasons],
            "last_events": list(self.last_events),
        }


def make_divergence(replayed: Replayed, last_events: tuple[str, ...]) -> Divergence:
    """Report an event that differs."""
    difference, event = replayed.difference, replayed.event
    assert difference is not None
    reasons: tuple[Reason, ...] = ()
    if isinstance(event, Schedule):
        reasons = _reasons(replayed, event, difference)
    step_id = event.result.step_id if isinstance(event, Update) else replayed.after.current_step
    return Divergence(
        event_number=replayed.number,
        line=replayed.record.line.number,
        step_id=step_id,
        event_kind=kind_of(event),
        difference=difference,
        reasons=reasons,
        rule_ids=_rules_that_decided(difference.path, reasons),
        last_events=last_events,
    )


def _reasons(replayed: Replayed, event: Schedule, difference: Difference) -> tuple[Reason, ...]:
    """Give the reasons of the requests that got something else in the two outputs."""
    recorded = replayed.record.told()
    assert isinstance(recorded, SchedulerOutput)
    assert isinstance(replayed.outcome, SchedulerOutput)
    concerned = _concerned(recorded, replayed.outcome) or _named_in(difference, replayed.outcome)
    reasons = explain(replayed.before, throttle_prefills=event.throttle_prefills)
    return tuple(reason for reason in reasons if reason.request_id in concerned)[:MAX_REASONS]


def _concerned(recorded: SchedulerOutput, ours: SchedulerOutput) -> set[RequestId]:
    """Name the requests whose rows of the batch differ; if none do, but their order does, those."""
    left, right = recorded.num_scheduled_tokens, ours.num_scheduled_tokens
    names = {name for name in (*left, *right) if left.get(name) != right.get(name)}
    preempted = set(recorded.preempted_request_ids) ^ set(ours.preempted_request_ids)
    misplaced = {name for pair in zip(left, right, strict=False) if pair[0] != pair[1] for name in pair}
    return names | preempted or misplaced


def _named_in(difference: Difference, output: SchedulerOutput) -> set[RequestId]:
    """Name the request that a path leads to, by its column or its row."""
    for field, names in (
        ("scheduled_cached_requests.", output.scheduled_cached_requests.request_ids),
        ("scheduled_new_requests[", [new.request_id for new in output.scheduled_new_requests]),
    ):
        _, found, rest = difference.path.partition(field)
        digits = rest.partition("[")[2].partition("]")[0] if field[-1] == "." else rest.partition("]")[0]
        if found and digits.isdigit() and int(digits) < len(names):
            return {names[int(digits)]}
    return set()


def _rules_that_decided(path: str, reasons: tuple[Reason, ...]) -> tuple[str, ...]:
    of_rows = tuple(dict.fromkeys(reason.rule_id for reason in reasons))
    return (*_rules_of(path, _RULES_OF_BLOCKS), *of_rows) or _rules_of(path, _RULES_OF_FIELDS)


def _rules_of(path: str, rules_of_parts: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    return next((rules for part, rules in rules_of_parts if part in path), ())


def kind_of(event: Event) -> str:
    """Name the kind of an event as a trace does."""
    return _KINDS[type(event)]


def describe(number: int, event: Event, outcome: object) -> str:
    """Put an event into a few words."""
    return f"{number}: {_describe(event, outcome)}"


def _describe(event: Event, outcome: object) -> str:
    match event:
        case AddRequest(request):
            text = f" {request.request_id!r}, {len(request.prompt_token_ids)} prompt tokens"
        case Schedule() if isinstance(outcome, SchedulerOutput):
            preempted = "".join(f", preempted {name!r}" for name in outcome.preempted_request_ids[:3])
            text = (
                f", step {outcome.step_id}: {len(outcome.num_scheduled_tokens)} requests, "
                f"{outcome.total_num_scheduled_tokens} tokens{preempted}"
            )
        case Update(result):
            num_tokens = sum(map(len, result.sampled_token_ids.values()))
            text = f", step {result.step_id}: {num_tokens} tokens sampled"
        case FinishRequests(request_ids, status):
            whom = "all" if request_ids is None else ", ".join(map(repr, request_ids[:5]))
            text = f" {whom}: {status.value}"
        case UpdateDrafts(draft_token_ids) | UpdateDraftsInFlight(draft_token_ids=draft_token_ids):
            text = f": {sum(map(len, draft_token_ids.values()))} tokens for {len(draft_token_ids)} requests"
        case GrammarReady(request_id) | GrammarFailed(request_id):
            text = f" {request_id!r}"
        case SetPauseState(pause_state):
            text = f" {pause_state.value}"
        case ResetPrefixCache(reset_running_requests):
            text = ", running requests too" if reset_running_requests else ""
        case _:
            text = ""
    return f"{kind_of(event)}{text}"
