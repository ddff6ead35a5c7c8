"""What became of the tokens that were scheduled: an account per request, and one of the run."""

from collections.abc import Iterable

import attrs

from kvsched_fp.events import AddRequest, FinishRequests, ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.invariants.entry import Cost, RunInvariant, Step, run_invariant
from kvsched_fp.invariants.on_run.endings import added, ended, outputs_told, preempted_by_reset
from kvsched_fp.state import SchedulerState


@attrs.define
class _Account:
    """The tokens of one live request."""

    since: int
    """The last step that was planned before it was added."""
    in_flight: int
    """Scheduled and not come back."""
    stale: int
    """Of those, what was scheduled before a preemption, or for an answer that was given."""
    computed: int
    """Found or scheduled since it holds blocks, less what was thrown away."""


@attrs.define
class _Accounts:
    in_flight: int
    """Of the whole run: scheduled and not come back, for whomever."""
    of: dict[RequestId, _Account]


def _accounts_of(state: SchedulerState) -> _Accounts:
    return _Accounts(
        sum(output.total_num_scheduled_tokens for output in state.in_flight),
        {
            request_id: _Account(
                0,
                progress.num_in_flight_tokens,
                progress.num_stale_output_tokens,
                progress.num_computed_tokens,
            )
            for request_id, progress in state.progress.items()
        },
    )


@run_invariant(
    "INV-ACCOUNT-01",
    Cost.CHEAP,
    "No scheduled token is lost: over the run and for each request, what was scheduled has come back or is "
    "in flight. What a request has computed is what it found when it was admitted and what was scheduled "
    "for it since then, less what was thrown away: rejected drafts, what was cut off or in flight behind "
    "the end of a session's answer, and everything with a preemption. A request to which the late result "
    "of an earlier one of its id was charged (deviation D-05) has no account from there on.",
    "A token that counts too often leaves a hole in the cache; one too few is computed again for ever.",
    AddRequest,
    FinishRequests,
    ResetPrefixCache,
    Schedule,
    Update,
    start=_accounts_of,
    memory="four numbers for each live request that has an account, and one for the run",
    reports=("vLLM PR #20739", "vLLM PR #48245"),
)
def _tokens_are_accounted_for(accounts: _Accounts, step: Step) -> str | None:
    match step.event:
        case Schedule():
            evidence = _charge(accounts, step)
        case Update():
            evidence = _credit(accounts, step)
        case ResetPrefixCache():
            evidence = _throw_away(accounts, step, preempted_by_reset(step))
        case _:
            evidence = None
            new_id = added(step)
            if new_id is not None:
                accounts.of[new_id] = _Account(step.before.current_step, 0, 0, 0)
    if evidence is not None:
        return evidence
    for request_id in ended(step):
        accounts.of.pop(request_id, None)
    num_in_flight = sum([output.total_num_scheduled_tokens for output in step.after.in_flight])
    if accounts.in_flight == num_in_flight:
        return None
    return (
        f"{accounts.in_flight} tokens were scheduled and did not come back, {num_in_flight} are in flight"
    )


def _charge(accounts: _Accounts, step: Step) -> str | None:
    """Enter the rows of a planned step."""
    evidence = _throw_away(accounts, step, (*step.victims, *step.gave_back))
    if evidence is not None:
        return evidence
    accounts.in_flight += step.output.total_num_scheduled_tokens
    of, admitted = accounts.of, set(step.admitted)
    for request_id, num_tokens, _, _, progress, _ in step.rows:
        account = of.get(request_id)
        if account is None:
            continue
        # A session that goes on has kept what it computed, and is admitted without looking for more.
        if request_id in admitted and account.computed == 0:
            account.computed = progress.num_computed_tokens - num_tokens  # what it found
        account.computed += num_tokens
        account.in_flight += num_tokens
        if (
            account.computed != progress.num_computed_tokens
            or account.in_flight != progress.num_in_flight_tokens
        ):
            return _difference(account, step, request_id)
    return None


def _credit(accounts: _Accounts, step: Step) -> str | None:
    """Enter the rows of a step that came back."""
    step_id, drafts = step.output.step_id, step.output.scheduled_spec_token_ids
    accounts.in_flight -= step.output.total_num_scheduled_tokens
    of, went_on = accounts.of, set(step.went_on)
    for request_id, num_tokens, _, _, progress, _ in step.rows:
        account = of.get(request_id)
        if account is None:
            continue
        if step_id <= account.since:
            # Of an earlier request of that id: the reference charges it to this one (deviation D-05). What
            # it has computed, and what is in flight, is wrong until it ends: nothing is to be checked.
            del of[request_id]
            continue
        account.in_flight -= num_tokens
        if account.stale > 0:
            account.stale -= num_tokens
        elif request_id in drafts:
            account.computed -= _num_rejected(step, request_id, len(drafts[request_id]))
        if progress is None:
            continue  # it ended
        if request_id in went_on:
            _end_answer(account, step, request_id)
        if (
            account.computed != progress.num_computed_tokens
            or account.in_flight != progress.num_in_flight_tokens
        ):
            return _difference(account, step, request_id)
    return None


def _num_rejected(step: Step, request_id: RequestId, num_drafts: int) -> int:
    num_sampled = step.before.config.num_sampled_tokens_per_step
    num_tokens = len(step.event.result.sampled_token_ids.get(request_id, ()))
    if num_tokens == 0 and num_sampled > 0:
        return 0  # nothing was verified
    return num_drafts - max(num_tokens - num_sampled, 0)


def _end_answer(account: _Account, step: Step, request_id: RequestId) -> None:
    """Throw away what a session that goes on had scheduled behind the end of its answer."""
    if account.computed > 0:
        num_told = next(
            len(output.new_token_ids) for output in outputs_told(step) if output.request_id == request_id
        )
        num_cut = len(step.event.result.sampled_token_ids.get(request_id, ())) - num_told
        account.computed -= num_cut + account.in_flight - account.stale
    account.stale = account.in_flight


def _throw_away(accounts: _Accounts, step: Step, request_ids: Iterable[RequestId]) -> str | None:
    """Close the accounts of who lost its blocks: nothing is computed, and what is in flight is stale."""
    for request_id in request_ids:
        account = accounts.of.get(request_id)
        if account is None:
            continue
        account.computed, account.stale = 0, account.in_flight
        progress = step.after.progress[request_id]
        if progress.num_computed_tokens or progress.num_in_flight_tokens != account.in_flight:
            return _difference(account, step, request_id)
    return None


def _difference(account: _Account, step: Step, request_id: RequestId) -> str:
    progress = step.after.progress[request_id]
    return (
        f"of request {request_id}, {account.computed} tokens were computed by what was scheduled, and "
        f"{account.in_flight} have not come back; it has {progress.num_computed_tokens} computed, "
        f"{progress.num_in_flight_tokens} in flight"
    )


INVARIANTS: tuple[RunInvariant, ...] = (_tokens_are_accounted_for,)
"""In the order in which they are checked."""
