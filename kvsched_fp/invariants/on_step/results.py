"""What a result changes, and what the clients are told."""

from collections.abc import Iterator, Sequence

from pyrsistent import PVector

from kvsched_fp.events import Update
from kvsched_fp.invariants.entry import ALL_EVENTS, Cost, Step, StepInvariant, step_invariant
from kvsched_fp.outputs import EngineOutput


@step_invariant(
    "INV-RESULT-01",
    Cost.CHEAP,
    "A client is told about rows of the step only, of requests that were live and are its own, once "
    "each, in the order of the batch.",
    "Anything else is somebody else's output, or nobody's.",
    Update,
)
def _told_are_rows(step: Step) -> str | None:
    for client_index, outputs in _told(step):
        batch = iter(step.output.num_scheduled_tokens)
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
    "What a client is told are the sampled tokens, from the first on; they are cut only where the request "
    "ends.",
    "A lost token is a hole in somebody's text.",
    Update,
)
def _told_are_sampled(step: Step) -> str | None:
    sampled = step.event.result.sampled_token_ids
    for _, outputs in _told(step):
        for output in outputs:
            token_ids = sampled.get(output.request_id, ())
            told = output.new_token_ids
            if not told or token_ids[: len(told)] != told:
                return f"request {output.request_id} sampled {token_ids}, told were {told}"
            if len(told) < len(token_ids) and output.finish_reason is None:
                return f"request {output.request_id} sampled {token_ids}, told were {told}, and it goes on"
    return None


@step_invariant(
    "INV-RESULT-03",
    Cost.CHEAP,
    "Who sampled is told, unless it has left, or its output is stale and to be dropped; then nothing is.",
    "Each position is delivered once.",
    Update,
)
def _sampled_are_told(step: Step) -> str | None:
    told = {output.request_id for _, outputs in _told(step) for output in outputs}
    sampled = step.event.result.sampled_token_ids
    for request_id, _, _, earlier, _, _ in step.rows:
        dropped = earlier is None or (earlier.drop_stale_output and earlier.num_stale_output_tokens > 0)
        if (request_id in told) != (bool(sampled.get(request_id)) and not dropped):
            return (
                f"request {request_id} sampled {sampled.get(request_id, ())}, to be dropped: {dropped}, "
                f"told: {request_id in told}"
            )
    return None


@step_invariant(
    "INV-RESULT-04",
    Cost.CHEAP,
    "Exactly the requests that end are told why, and they leave the state; nobody else does.",
    "A request without an end keeps its client waiting.",
    Update,
)
def _ended_leave(step: Step) -> str | None:
    ended = []
    for _, outputs in _told(step):
        for output in outputs:
            if (output.finish_reason is None) != (output.request_id in step.after.requests):
                return (
                    f"request {output.request_id} is told {output.finish_reason}, live: "
                    f"{output.request_id in step.after.requests}"
                )
            if output.finish_reason is not None:
                ended.append(output.request_id)
            elif output.stop_reason is not None:
                return f"request {output.request_id} goes on with the stop reason {output.stop_reason!r}"
    finished = {*step.before.finished_request_ids, *ended}
    if finished == set(step.after.finished_request_ids) and (
        len(step.before.requests) - len(ended) == len(step.after.requests)
    ):
        return None
    return (
        f"{ended} were told their end, {step.before.finished_request_ids} had finished, "
        f"{step.after.finished_request_ids} have, {len(step.before.requests)} requests became "
        f"{len(step.after.requests)}"
    )


@step_invariant(
    "INV-RESULT-05",
    Cost.CHEAP,
    "A row that comes back is not in flight any more, and its stale share drains with it; nothing counts "
    "as computed by it.",
    "Scheduled tokens counted as computed at once.",
    Update,
)
def _rows_come_down(step: Step) -> str | None:
    for request_id, num_tokens, _, earlier, progress, _ in step.rows:
        if progress is None or earlier is None:
            continue
        stale = earlier.num_stale_output_tokens
        if (
            progress.num_in_flight_tokens != earlier.num_in_flight_tokens - num_tokens
            or progress.num_stale_output_tokens != (stale - num_tokens if stale > 0 else stale)
            or progress.num_computed_tokens != earlier.num_computed_tokens
            or progress.status is not earlier.status
        ):
            return (
                f"a row of {num_tokens} tokens takes request {request_id} from "
                f"{earlier.num_in_flight_tokens} in flight, {stale} stale, "
                f"{earlier.num_computed_tokens} computed, {earlier.status.name} to "
                f"{progress.num_in_flight_tokens}, {progress.num_stale_output_tokens}, "
                f"{progress.num_computed_tokens}, {progress.status.name}"
            )
    return None


@step_invariant(
    "INV-RESULT-06",
    Cost.CHEAP,
    "The output of a request that goes on grows by what its client is told.",
    "The scheduler computes the next token behind the same text that the client has.",
    Update,
)
def _output_grows_by_told(step: Step) -> str | None:
    told = {output.request_id: output.new_token_ids for _, outputs in _told(step) for output in outputs}
    for request_id, _, _, earlier, progress, _ in step.rows:
        if progress is None or earlier is None:
            continue
        new_token_ids = told.get(request_id, ())
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
    "A request's prefill statistics go out with its first output.",
    "They are told once.",
    Update,
)
def _stats_with_first_output(step: Step) -> str | None:
    for _, outputs in _told(step):
        for output in outputs:
            earlier = step.before.progress[output.request_id]
            if (output.prefill_stats is None) != (len(earlier.output_token_ids) > 0):
                return (
                    f"request {output.request_id} had {len(earlier.output_token_ids)} output tokens and is "
                    f"told {output.prefill_stats}"
                )
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
    expected = tuple(request_id for request_id in before if request_id in step.after.requests)
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
        for client_index, outputs in _told(step):
            for output in outputs:
                finished = expected.get(client_index, [])
                if output.finish_reason is not None and output.request_id not in finished:
                    expected[client_index] = [*finished, output.request_id]
    told = {
        client_index: list(client.finished_request_ids)
        for client_index, client in step.after.emitted.clients.items()
        if client.finished_request_ids is not None
    }
    if told == expected and not step.after.finished_by_client:
        return None
    return f"finished per client: {expected}, told: {told}, left: {step.after.finished_by_client}"


@step_invariant(
    "INV-RESULT-10",
    Cost.CHEAP,
    "With log_stats, the first client and no other is told the figures of the state after the update.",
    "The figures would be counted twice, or not at all.",
    Update,
)
def _figures_are_told(step: Step) -> str | None:
    after = step.after
    told = [client.scheduler_stats for client in after.emitted.clients.values()]
    if not after.config.log_stats:
        return f"statistics without log_stats: {told}" if any(told) else None
    if not told or told[0] is None or any(told[1:]):
        return f"the clients are told the statistics {told}"
    stats, num_waiting = told[0], len(after.waiting) + len(after.kv_holding_waiting)
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


def _told(step: Step) -> Iterator[tuple[int, tuple[EngineOutput, ...]]]:
    for client_index, client in step.after.emitted.clients.items():
        yield client_index, client.outputs


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
