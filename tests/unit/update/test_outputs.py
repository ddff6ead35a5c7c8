"""What one update tells the clients and the world."""

from kvsched_fp import SchedulerState, add_request, finish_requests, reset_prefix_cache, schedule, update
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvsched_fp.outputs import ClientOutputs, Emitted, PrefixCacheStats, SchedulerStats
from tests.unit.worlds import (
    make_config,
    make_outgrown,
    make_request,
    make_result,
    make_state,
    run_step,
    run_steps,
)

A, B, C = map(RequestId, "abc")


def three_clients(**changes: object) -> SchedulerState:
    """Make a state with requests of the clients 1, 0, 2 and 1, in this order."""
    clients = [("a", 1), ("b", 0), ("c", 2), ("d", 1)]
    return make_state(
        make_config(**changes), *[make_request(name, client_index=client) for name, client in clients]
    )


def told_ids(state: SchedulerState) -> dict[int, list[str]]:
    """List per client whose outputs it got, in order."""
    return {
        client: [output.request_id for output in outputs.outputs]
        for client, outputs in state.emitted.clients.items()
    }


def test_outputs_come_in_the_order_of_the_batch() -> None:
    """[U-OUT-01] Clients come in the order of their first output, outputs in that of the rows."""
    state, _ = run_step(three_clients())

    assert [(1, ["a", "d"]), (0, ["b"]), (2, ["c"])] == list(told_ids(state).items())


def test_clients_without_output_are_not_mentioned() -> None:
    """[U-OUT-01] Nothing was sampled for `b` and `c`."""
    state, _ = run_step(three_clients(), b=(), c=())

    assert [1] == list(state.emitted.clients)


def finished_ids(state: SchedulerState) -> dict[int, tuple[RequestId, ...] | None]:
    """List per client which ids it was told to have ended."""
    return {client: outputs.finished_request_ids for client, outputs in state.emitted.clients.items()}


def test_client_is_told_all_ids_that_ended_since_the_last_update() -> None:
    """[U-OUT-02] `c` was aborted and its client gets nothing else, so it comes last; `a` stopped."""
    state, output = schedule(three_clients(include_finished_set=True))
    state = finish_requests(state, [C])
    tokens = {"a": (1,) * 16, "b": (1,), "d": (1,)}
    state = update(state, make_result(state, output, tokens))

    assert [(1, ("a",)), (0, None), (2, ("c",))] == list(finished_ids(state).items())

    state, _ = run_step(state)

    assert {0: None, 1: None} == finished_ids(state)


def test_ends_are_told_in_their_order() -> None:
    """[U-OUT-02] First those from outside since the last update, then those that stopped in it."""
    state, output = schedule(three_clients(include_finished_set=True))
    state = finish_requests(state, [RequestId("d")])
    state = update(state, make_result(state, output, {"a": (1,) * 16}))

    assert ("d", "a") == finished_ids(state)[1]


def test_ends_are_not_told_unless_asked_for() -> None:
    """[U-OUT-02] Without `include_finished_set`, nobody is told."""
    state, _ = run_step(three_clients(), a=(1,) * 16)

    assert {None} == set(finished_ids(state).values())


def with_stats(state: SchedulerState) -> list[int]:
    """List the clients that got statistics."""
    return [
        client for client, outputs in state.emitted.clients.items() if outputs.scheduler_stats is not None
    ]


def test_statistics_go_to_the_first_client() -> None:
    """[U-OUT-03] That is client 1 here; client 0 gets them when nobody gets anything."""
    state, _ = run_step(three_clients())
    empty, _ = run_step(make_state(make_config()))

    assert [1] == with_stats(state)
    assert [0] == with_stats(empty)


def test_statistics_go_to_a_client_that_is_only_told_of_ends() -> None:
    """[U-OUT-03] It is the first one then."""
    state = finish_requests(three_clients(include_finished_set=True), [C])
    state, output = schedule(state)
    state = update(state, make_result(state, output, {"a": (), "b": (), "d": ()}))

    assert [2] == with_stats(state)


def test_statistics_are_those_after_the_update() -> None:
    """[U-OUT-03] `a` stopped in it, `b` runs with 2 of 16 blocks, and `c` waits for a place."""
    requests = make_request("a", max_tokens=1), make_request("b"), make_request("c")
    state, _ = run_step(make_state(make_config(max_num_seqs=2), *requests))
    expected = SchedulerStats(1, 1, 0, 1.0 - 14 / 16, PrefixCacheStats(requests=2, queries=14))

    assert expected == state.emitted.clients[0].scheduler_stats


def test_deferred_requests_are_counted_apart() -> None:
    """[U-OUT-03] `b` was skipped, since its token is still on its way."""
    state = make_outgrown(18, 5, usable_blocks=6, num_steps=6)

    assert {B} == set(state.deferred)

    state = update(state, make_result(state, state.in_flight[0]))
    stats = state.emitted.clients[0].scheduler_stats

    assert stats is not None
    assert (1, 0, 1) == (
        stats.num_running_requests,
        stats.num_waiting_requests,
        stats.num_skipped_waiting_requests,
    )


def test_look_ups_are_reported_once() -> None:
    """[U-OUT-03] The next report begins again at nothing."""
    state = run_steps(make_state(make_config(), make_request("a")), 2)
    stats = state.emitted.clients[0].scheduler_stats

    assert stats is not None
    assert PrefixCacheStats() == stats.prefix_cache_stats


def test_nothing_is_emitted_without_statistics_and_outputs() -> None:
    """[U-OUT-03] With `log_stats` off, an empty update tells nobody anything."""
    state, _ = run_step(make_state(make_config(log_stats=False)))

    assert Emitted() == state.emitted


def test_emitted_is_what_the_last_update_told() -> None:
    """[U-OUT-01] It stays until the next update, and is replaced by it."""
    state, _ = run_step(make_state(make_config(log_stats=False), make_request("a")))
    planned, output = schedule(state)

    assert state.emitted == planned.emitted
    assert Emitted() == update(planned, make_result(planned, output, {"a": ()})).emitted
    assert ClientOutputs(()) == ClientOutputs()


def test_events_of_the_prefix_index_go_out_once() -> None:
    """[U-OUT-04] Stored with the step, then removed and stored, then cleared; then nothing is left."""
    config = make_config(usable_blocks=2, enable_kv_cache_events=True)
    seen = []
    state, _ = run_step(make_state(config, make_request("a", 4, max_tokens=1)))
    seen.append([type(event) for event in state.emitted.kv_events])
    state, _ = run_step(add_request(state, make_request("b", 7, max_tokens=1)))
    seen.append([type(event) for event in state.emitted.kv_events])
    state, _ = reset_prefix_cache(state)
    state, _ = run_step(state)
    seen.append([type(event) for event in state.emitted.kv_events])
    state, _ = run_step(state)
    seen.append([type(event) for event in state.emitted.kv_events])

    assert [[BlockStored], [BlockRemoved, BlockStored], [AllBlocksCleared], []] == seen


def test_events_are_not_kept_unless_asked_for() -> None:
    """[U-OUT-04] Without `enable_kv_cache_events` there are none."""
    state, _ = run_step(make_state(make_config(), make_request("a", 8, max_tokens=1)))
    state, _ = reset_prefix_cache(state)

    assert () == state.emitted.kv_events
    assert () == state.kv.pending_events
