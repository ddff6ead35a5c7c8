"""What a result changes, and what the clients are told."""

from collections.abc import Sequence
from itertools import chain

import attrs
from pyrsistent import PVector

from kvsched_fp.events import Update
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.invariants.on_step.brought import (
    Brought,
    brought,
    ends_without_tokens,
    outputs_told,
    told,
)
from kvsched_fp.invariants.on_step.sessions import begins_input
from kvsched_fp.progress import Progress


@step_invariant(
    "INV-RESULT-01",
    Cost.CHEAP,
    "A client is told about rows of the step only, and then about requests that cannot have their "
    "grammar; of requests that were live and are its own, once each, in the order of the batch.",
    "Anything else is somebody else's output, or nobody's.",
    Update,
)
def _told_are_rows(step: Step) -> str | None:
    for client_index, outputs in told(step):
        if not outputs:
            continue
        batch = chain(step.output.num_scheduled_tokens, step.before.grammar_errors)
        for output in outputs:
            request_id = output.request_id
            if request_id not in batch:  # goes through the iterator up to the id
                return f"client {client_index} is told about {request_id} twice, out of order or for no row"
            request = step.before.requests.get(request_id)
            if request is None or request.client_index != client_index:
                owner = "nobody" if request is None else f"client {request.client_index}"
                return f"client {client_index} is told about {request_id}, a request of {owner}"
    return None


@step_invariant(
    "INV-RESULT-02",
    Cost.CHEAP,
    "What a client is told are the sampled tokens, from the first on, with accepted drafts; they are cut "
    "only where the output ends. It is told of none only with an end, or with a pooled output.",
    "A lost token is a hole in somebody's text.",
    Update,
)
def _told_are_sampled(step: Step) -> str | None:
    sampled, pooled = step.event.result.sampled_token_ids, step.event.result.pooled_request_ids
    for output in outputs_told(step):
        token_ids = sampled.get(output.request_id, ())
        new_token_ids, ends = output.new_token_ids, output.finish_reason is not None
        if token_ids[: len(new_token_ids)] != new_token_ids or not (new_token_ids or ends):
            return f"request {output.request_id} sampled {token_ids}, told were {new_token_ids}"
        if len(new_token_ids) < len(token_ids) and not ends:
            return (
                f"request {output.request_id} sampled {token_ids}, told is {new_token_ids}, and it goes on"
            )
        if output.pooled is not (output.request_id in pooled):
            return f"request {output.request_id} is told a pooled output: {output.pooled}"
    return None


@step_invariant(
    "INV-RESULT-03",
    Cost.CHEAP,
    "Who sampled is told, and who pooled, and whose prompt is computed in an encoder instance; unless it "
    "has left, or its output is stale and to be dropped: then nothing is.",
    "Each position is delivered once.",
    Update,
    reports=("vLLM PR #20739",),
)
def _sampled_are_told(step: Step) -> str | None:
    told_ids = {output.request_id for output in outputs_told(step) if not output.error}
    rows = brought(step)
    for (request_id, _, _, earlier, _, _), row in rows:
        is_due = bool(row.token_ids) or ends_without_tokens(step, request_id, earlier)
        if (request_id in told_ids) != (is_due and not row.is_dropped):
            return f"request {request_id} is told: {request_id in told_ids}; {row} came"
    if len(rows) < len(step.rows):
        for request_id, _, _, earlier, _, _ in step.rows:
            if earlier is None and request_id in told_ids:
                return f"request {request_id} is told, and was not live"
    return None


@step_invariant(
    "INV-RESULT-04",
    Cost.CHEAP,
    "Exactly the requests that stop are told why, and they leave the state; nobody else does. A session "
    "that stopped may go on, and tells the reason of the last stop token until there is another.",
    "A request without an end keeps its client waiting.",
    Update,
)
def _ended_leave(step: Step) -> str | None:
    ended = []
    for output in outputs_told(step):
        request_id, has_stopped = output.request_id, output.finish_reason is not None
        stays = request_id in step.after.requests
        if has_stopped == (stays and request_id not in step.went_on):
            return f"request {request_id} is told {output.finish_reason}, live: {stays}"
        if not stays:
            ended.append(request_id)
        reason = step.before.progress[request_id].stop_reason
        if not has_stopped and output.stop_reason != reason:
            return f"request {request_id} goes on with the stop reason {output.stop_reason!r}"
        if stays and step.after.progress[request_id].stop_reason != output.stop_reason:
            return f"request {request_id} is told the stop reason {output.stop_reason!r} and has another"
    before, after = step.before.finished_request_ids, step.after.finished_request_ids
    is_told = before == after if not ended else {*before, *ended} == set(after)
    if is_told and len(step.before.requests) - len(ended) == len(step.after.requests):
        return None
    return (
        f"{ended} were told their end, {step.before.finished_request_ids} had finished, "
        f"{step.after.finished_request_ids} have, {len(step.before.requests)} requests became "
        f"{len(step.after.requests)}"
    )


@step_invariant(
    "INV-RESULT-05",
    Cost.CHEAP,
    "A row that comes back is not in flight any more, and its stale share drains with it. Rejected "
    "drafts, and tokens behind the end, do not count as computed any more; they and all that came resolve "
    "placeholders. A session that goes on gives up the other placeholders, and what they had counted as "
    "computed; all that it has in flight is stale.",
    "Scheduled tokens counted as computed at once.",
    Update,
    reports=("vLLM PR #20739", "vLLM PR #48245"),
)
def _rows_come_down(step: Step) -> str | None:
    num_told = {output.request_id: len(output.new_token_ids) for output in outputs_told(step)}
    went_on = step.went_on
    for (request_id, num_tokens, _, earlier, progress, _), row in brought(step):
        if progress is None:
            continue
        expected = _counters_behind(num_tokens, earlier, row, num_told.get(request_id, 0))
        if request_id in went_on:
            in_flight, _, computed, placeholders = expected
            expected = (in_flight, in_flight, computed - placeholders, 0)
        if _counters(progress) != expected or (
            progress.status is not earlier.status and request_id not in went_on
        ):
            return (
                f"a row of {num_tokens} tokens takes request {request_id} from (in flight, stale, "
                f"computed, placeholders) {_counters(earlier)}, {earlier.status.name} to "
                f"{_counters(progress)}, {progress.status.name}, not {expected}; {row} came"
            )
    return None


def _counters(progress: Progress) -> tuple[int, int, int, int]:
    return (
        progress.num_in_flight_tokens,
        progress.num_stale_output_tokens,
        progress.num_computed_tokens,
        progress.num_output_placeholders,
    )


def _counters_behind(
    num_tokens: int, earlier: Progress, row: Brought, num_told: int
) -> tuple[int, int, int, int]:
    """Give the counters behind a row, as far as no session goes on."""
    in_flight, stale, computed, placeholders = _counters(earlier)
    in_flight -= num_tokens
    if row.is_stale:
        return in_flight, stale - num_tokens, computed, placeholders
    num_rejected = row.num_drafts - row.num_accepted
    num_cut = len(row.token_ids) - num_told
    if placeholders > 0:
        placeholders -= num_rejected + len(row.token_ids)
    return in_flight, stale, computed - num_rejected - num_cut, placeholders


@step_invariant(
    "INV-RESULT-06",
    Cost.CHEAP,
    "The output of a request that stays grows by what its client is told; but a session that begins its "
    "next input has all of it in its prompt.",
    "The scheduler computes the next token behind the same text that the client has.",
    Update,
)
def _output_grows_by_told(step: Step) -> str | None:
    told_ids = {output.request_id: output.new_token_ids for output in outputs_told(step)}
    for request_id, _, _, earlier, progress, _ in step.rows:
        if progress is None or earlier is None or begins_input(step, request_id):
            continue
        new_token_ids = told_ids.get(request_id, ())
        num_earlier, output = len(earlier.output_token_ids), progress.output_token_ids
        if len(output) != num_earlier + len(new_token_ids) or (
            new_token_ids and not _ends_with(output, new_token_ids)
        ):
            return (
                f"request {request_id} had {num_earlier} output tokens, was told {new_token_ids}, has "
                f"{len(output)}"
            )
    return None


@step_invariant(
    "INV-RESULT-07",
    Cost.CHEAP,
    "A request's prefill statistics go out with its first output, unless that is an error: what was "
    "computed and what was found make up the prompt.",
    "They are told once.",
    Update,
)
def _stats_with_first_output(step: Step) -> str | None:
    for output in outputs_told(step):
        kept, found = step.before.progress[output.request_id].prefill_stats, output.prefill_stats
        if found is None and (kept is None or output.error is not None):
            continue
        if (
            found is None
            or kept is None
            or attrs.evolve(found, num_cache_creation_tokens=0) != kept
            or found.num_computed_tokens + found.num_local_cached_tokens != found.num_prompt_tokens
            or not 0 <= found.num_cache_creation_tokens <= found.num_computed_tokens
        ):
            return f"request {output.request_id} had {kept} and is told {found}"
    return None


@step_invariant(
    "INV-RESULT-08",
    Cost.CHEAP,
    "An update starts nobody: those who go on running keep their order.",
    "Only a schedule admits.",
    Update,
)
def _running_only_shrinks(step: Step) -> str | None:
    before, after = step.before.running, step.after.running
    if before == after:
        return None
    went_on = set(step.went_on)
    expected = tuple(
        request_id
        for request_id in before
        if request_id in step.after.requests and request_id not in went_on
    )
    return None if after == expected else f"running were {before}, {expected} are left, running are {after}"


@step_invariant(
    "INV-RESULT-09",
    Cost.CHEAP,
    "With include_finished_set, each client is told once which of its requests finished, however they "
    "ended; without, nobody is.",
    "A front end behind several engines learns only here that a request is gone.",
    Update,
)
def _finished_sets_are_told(step: Step) -> str | None:
    expected = {
        client_index: list(request_ids)
        for client_index, request_ids in step.before.finished_by_client.items()
    }
    if step.before.config.include_finished_set:
        for client_index, outputs in told(step):
            for output in outputs:
                finished = expected.get(client_index, [])
                if output.request_id not in step.after.requests and output.request_id not in finished:
                    expected[client_index] = [*finished, output.request_id]
    told_ids = {
        client_index: list(client.finished_request_ids)
        for client_index, client in step.after.emitted.clients.items()
        if client.finished_request_ids is not None
    }
    if told_ids == expected and not step.after.finished_by_client:
        return None
    return f"finished per client: {expected}, told: {told_ids}, left: {step.after.finished_by_client}"


@step_invariant(
    "INV-RESULT-10",
    Cost.CHEAP,
    "With log_stats, the first client and no other is told the figures of the state after the update.",
    "The figures would be counted twice, or not at all.",
    Update,
)
def _figures_are_told(step: Step) -> str | None:
    after = step.after
    figures = [client.scheduler_stats for client in after.emitted.clients.values()]
    if not after.config.log_stats:
        return f"statistics without log_stats: {figures}" if any(figures) else None
    if not figures or figures[0] is None or any(figures[1:]):
        return f"the clients are told the statistics {figures}"
    stats, num_waiting = figures[0], len(after.waiting) + len(after.kv_holding_waiting)
    pool = after.kv.pool
    if (
        stats.num_running_requests == len(after.running)
        and stats.num_skipped_waiting_requests == len(after.deferred)
        and stats.num_waiting_requests == num_waiting - len(after.deferred)
        and stats.kv_cache_usage == 1.0 - pool.num_free_blocks / (pool.num_blocks - 1)
        and stats.prefix_cache_stats == step.before.kv.prefix_cache_stats
    ):
        return None
    return (
        f"{stats} are told; {len(after.running)} run, {num_waiting} wait, {len(after.deferred)} are "
        f"deferred, usage {after.kv.pool.usage}"
    )


@step_invariant(
    "INV-RESULT-11",
    Cost.CHEAP,
    "Only an update tells the clients anything.",
    "What the last update told stays readable until the next.",
    *(kind for kind in ALL_EVENTS if kind is not Update),
)
def _only_updates_tell(step: Step) -> str | None:
    if step.after.emitted is step.before.emitted or step.after.emitted == step.before.emitted:
        return None
    return f"{type(step.event).__name__} told {list(step.after.emitted.clients)} something"


def _ends_with(output: PVector[int], token_ids: Sequence[int]) -> bool:
    if len(token_ids) == 1:
        return output[-1] == token_ids[0]
    # Index by index: a slice of a persistent vector copies all of it first.
    positions = range(len(output) - len(token_ids), len(output))
    return [output[position] for position in positions] == list(token_ids)


INVARIANTS: tuple[StepInvariant, ...] = (
    _told_are_rows,
    _told_are_sampled,
    _sampled_are_told,
    _ended_leave,
    _rows_come_down,
    _output_grows_by_told,
    _stats_with_first_output,
    _running_only_shrinks,
    _finished_sets_are_told,
    _figures_are_told,
    _only_updates_tell,
)
"""In the order in which they are checked."""
