"""Replaying a trace, and finding the first difference."""

import itertools
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from kvsched_fp import AddRequest
from kvsched_fp.errors import TraceError
from kvsched_fp.trace import Verdict, check_trace, open_trace_reader, replay
from kvsched_fp.trace.block_names import OpaqueBlockHasher
from tests.unit.trace.helpers import (
    edit,
    give_one_more,
    line_of_step,
    read_values,
    small_config,
    write_trace,
    write_values,
)


def _check(path: Path) -> Verdict:
    with open_trace_reader(path) as reader:
        return check_trace(reader)


@pytest.mark.parametrize("use_v2_model_runner", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_our_own_trace_is_identical(tmp_path: Path, policy: str, use_v2_model_runner: bool) -> None:
    """What was recorded comes again; every event and every decision is counted."""
    config = small_config(policy=policy, use_v2_model_runner=use_v2_model_runner)
    path = write_trace(tmp_path / "t.jsonl", config)
    verdict = _check(path)

    assert verdict.divergence is None
    assert len(path.read_text().splitlines()) - 1 == verdict.num_events
    assert sum(_num_decisions(value) for value in read_values(path)) == verdict.num_decisions


def _num_decisions(value: dict[str, Any]) -> int:
    output = value.get("output", {"num_scheduled_tokens": (), "preempted_request_ids": ()})
    return len(output["num_scheduled_tokens"]) + len(output["preempted_request_ids"])


def test_other_white_space_and_unshortened_lists_are_the_same_trace(tmp_path: Path) -> None:
    """Another writer need not write the same bytes."""

    def spell_out(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spell_out(item, name) for name, item in reversed(value.items())}
        if isinstance(value, list) and key in {"prompt_token_ids", "prefill_token_ids", "token_ids"}:
            runs = [[item, 1] if isinstance(item, int) else item for item in value]
            return [first + index for first, count in runs for index in range(count)]
        return [spell_out(item) for item in value] if isinstance(value, list) else value

    path = write_trace(tmp_path / "t.jsonl")
    path.write_text("\r\n\n".join(json.dumps(spell_out(value)) for value in read_values(path)))

    assert _check(path).divergence is None


def test_a_changed_decision_is_found_where_it_is(tmp_path: Path) -> None:
    """The report has the step, the path, both values, the rule that decided and the last events."""
    path = edit(write_trace(tmp_path / "t.jsonl"), give_one_more)
    divergence = _check(path).divergence

    assert divergence is not None
    values = read_values(path)
    name, count = values[line_of_step(values, 9)]["output"]["num_scheduled_tokens"][-1]
    assert f'output.num_scheduled_tokens["{name}"]' == divergence.difference.path
    assert (count, count - 1) == (divergence.difference.recorded, divergence.difference.ours)
    assert (9, line_of_step(values, 9) + 1) == (divergence.step_id, divergence.line)
    assert [name] == [reason.request_id for reason in divergence.reasons]
    assert tuple(reason.rule_id for reason in divergence.reasons) == divergence.rule_ids
    assert divergence.last_events[-1].startswith(f"{divergence.event_number}: schedule, step 9: ")


@pytest.mark.parametrize(
    ("key", "change", "path", "rule"),
    [
        (
            "emitted",
            lambda told: told["clients"][0][1]["outputs"][0].update(finish_reason="stop"),
            "emitted.clients[0].outputs[0].finish_reason",
            "U-STOP-01",
        ),
        (
            "emitted",
            lambda told: told["clients"][0][1]["outputs"][0]["new_token_ids"].append(5),
            "emitted.clients[0].outputs[0].new_token_ids[1]",
            "U-TOK-03",
        ),
        (
            "output",
            lambda told: told["preempted_request_ids"].append("zz"),
            "output.preempted_request_ids[",
            "S-PRE-01",
        ),
        (
            "output",
            lambda told: told["num_scheduled_tokens"].reverse(),
            "output.num_scheduled_tokens[0]",
            "S-",
        ),
    ],
)
def test_every_kind_of_outcome_is_compared(
    tmp_path: Path, key: str, change: Any, path: str, rule: str
) -> None:
    """A difference in what clients are told, or in the order of a batch, is one too."""

    def at_one_place(values: list[dict[str, Any]]) -> None:
        change(next(v[key] for v in values if len(str(v.get(key, ""))) > 300 and _is_full(v[key])))

    divergence = _check(edit(write_trace(tmp_path / "t.jsonl"), at_one_place)).divergence

    assert divergence is not None
    assert divergence.difference.path.startswith(path)
    assert divergence.rule_ids[0].startswith(rule)


def test_blocks_are_given_by_other_rules_than_tokens(tmp_path: Path) -> None:
    """Where a row has other blocks, the rules of hits and of the free list come first, then the row's."""

    def take_another_block(values: list[dict[str, Any]]) -> None:
        rows = (value["output"]["scheduled_new_requests"] for value in values if "output" in value)
        first_row = next(filter(None, rows))[0]
        first_row["block_ids"][0] = [9]

    divergence = _check(edit(write_trace(tmp_path / "t.jsonl"), take_another_block)).divergence

    assert divergence is not None
    assert divergence.difference.path.startswith("output.scheduled_new_requests[0].block_ids")
    assert ("K-HIT-01", "K-POOL-03", divergence.reasons[0].rule_id) == divergence.rule_ids


def _is_full(told: dict[str, Any]) -> bool:
    """Tell whether there is something to change."""
    if "clients" in told:
        return any(client[1]["outputs"] for client in told["clients"])
    return len(told["num_scheduled_tokens"]) > 1


def test_nothing_behind_the_first_difference_is_read(tmp_path: Path) -> None:
    """What follows a difference follows from it."""

    def spoil(values: list[dict[str, Any]]) -> None:
        give_one_more(values)
        values[line_of_step(values, 9) + 1] = {"nonsense": 1}

    assert _check(edit(write_trace(tmp_path / "t.jsonl"), spoil)).divergence is not None


def test_replay_gives_every_event_with_the_states_around_it(tmp_path: Path) -> None:
    """The state after an event is the one before the next."""
    with open_trace_reader(write_trace(tmp_path / "t.jsonl")) as reader:
        events = list(replay(reader))

    assert list(range(1, len(events) + 1)) == [replayed.number for replayed in events]
    assert all(left.after is right.before for left, right in itertools.pairwise(events))
    assert isinstance(events[0].event, AddRequest)
    assert "line 2" == events[0].when()


def test_an_event_that_makes_no_sense_names_line_and_field(tmp_path: Path) -> None:
    """A trace whose events our machine refuses is not a trace of a scheduler."""
    path = edit(write_trace(tmp_path / "t.jsonl"), lambda values: values.insert(2, values[1]))

    with pytest.raises(TraceError, match=r"t\.jsonl:3: event: request_id: got 'r1'"):
        _check(path)


def test_opaque_block_names_are_compared_up_to_renaming(tmp_path: Path) -> None:
    """A scheduler with a hash function of its own is checked all the same."""
    config = small_config(block_hasher=OpaqueBlockHasher())
    path = write_trace(tmp_path / "t.jsonl", config)
    values = read_values(path)
    names = _names(values)
    assert len(names) > 5
    text = path.read_text()
    for index, name in enumerate(sorted(names)):
        text = text.replace(f'"{name}"', f'"{index:06x}"')
    path.write_text(text)

    assert _check(path).divergence is None

    path.write_text(text.replace('"000001"', '"000002"'))
    divergence = _check(path).divergence

    assert divergence is not None
    assert "block_hash" in divergence.difference.path


def _names(values: list[dict[str, Any]]) -> set[str]:
    events = [event for value in values if "emitted" in value for event in value["emitted"]["kv_events"]]
    return {name for event in events for name in event.get("block_hashes", ())}


def test_named_blocks_are_compared_as_they_are(tmp_path: Path) -> None:
    """With a hasher that the header names, a changed name is a difference."""

    def rename(values: list[dict[str, Any]]) -> None:
        event = next(v for v in values if v.get("emitted", {}).get("kv_events"))["emitted"]["kv_events"][0]
        event["block_hashes"][0] = "00"

    divergence = _check(edit(write_trace(tmp_path / "t.jsonl"), rename)).divergence

    assert divergence is not None
    assert "emitted.kv_events[0].block_hashes[0]" == divergence.difference.path
    assert "U-OUT-04" == divergence.rule_ids[0]


def test_the_report_as_plain_values_can_be_written_as_json(tmp_path: Path) -> None:
    """What a machine reads has the same parts."""
    path = edit(write_trace(tmp_path / "t.jsonl"), give_one_more)
    divergence = _check(path).divergence

    assert divergence is not None
    mapping = json.loads(json.dumps(divergence.as_mapping()))
    assert (divergence.step_id, divergence.difference.path) == (mapping["step"], mapping["path"])
    assert set(attrs.asdict(divergence)) - {
        "difference",
        "event_number",
        "step_id",
        "event_kind",
        "rule_ids",
    } <= set(mapping)


def test_an_empty_trace_is_identical(tmp_path: Path) -> None:
    """A header alone tells of nothing."""
    path = write_trace(tmp_path / "t.jsonl")
    write_values(path, [json.loads(path.read_text().splitlines()[0])])

    assert Verdict(0, 0, None) == _check(path)
