"""The stub model."""

from kvsched_fp import FinishRequests, schedule, step, update
from kvsched_fp.workloads.stub import NUM_RANGES, POSITIONS_PER_REQUEST, output_token_id, stub_result
from tests.unit.worlds import make_config, make_request, make_state


def test_a_finished_prompt_and_a_decode_sample_one_token_each() -> None:
    """A request in the middle of its prompt samples nothing."""
    config = make_config(max_num_batched_tokens=8)
    state, output = schedule(make_state(config, make_request("a", 4), make_request("b", 8)))
    first = stub_result(state, output)
    state, output = schedule(update(state, first))
    second = stub_result(state, output)

    assert {"a": (output_token_id(0, 0),)} == dict(first.sampled_token_ids)
    assert {"a": (output_token_id(0, 1),), "b": (output_token_id(1, 0),)} == dict(second.sampled_token_ids)


def test_a_request_that_has_left_samples_nothing() -> None:
    """A request may be ended while its step is in flight."""
    state, output = schedule(make_state(make_config(), make_request("a", 4)))
    state, _ = step(state, FinishRequests(("a",)))

    assert {} == dict(stub_result(state, output).sampled_token_ids)


def test_output_tokens_have_ranges_of_their_own_below_2_to_the_53() -> None:
    """Every JSON reader gets the ids whole, and no prompt uses one."""
    assert 2**52 == output_token_id(0, 0)
    assert output_token_id(0, POSITIONS_PER_REQUEST - 1) + 1 == output_token_id(1, 0)
    assert 2**53 - 1 == output_token_id(NUM_RANGES - 1, POSITIONS_PER_REQUEST - 1)
    assert output_token_id(0, 5) == output_token_id(NUM_RANGES, 5)
