"""Structured output: vLLM's grammars behind the oracle, and overheard by the shadow."""

import logging
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import attrs
import pytest

from kvsched_fp import (
    AddRequest,
    AutomatonGrammar,
    GrammarFailed,
    GrammarReady,
    InvalidEvent,
    Request,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    StepResult,
    Update,
    UpdateDrafts,
)
from kvsched_fp.trace import check_trace, open_trace_reader
from kvsched_fp.update import take_in_row

pytestmark = pytest.mark.usefixtures("_reference")

ONES_THEN_TWO = AutomatonGrammar([[(1, 0), (2, 1)], [(2, 1)]])
"""Any number of ones, then twos."""


def make_driver(config: SchedulerConfig, name: str, *bases: type, **options: Any) -> Any:
    """Build one of our schedulers, over the real one or over a subclass of it."""
    import kvsched_fp.adapters.vllm as adapters
    from tests.adapters.pairs import build_pair

    kind = getattr(adapters, name)
    return build_pair(config, type(name, (kind, *bases), {}) if bases else kind, **options)[1]


def add(driver: Any, name: str, max_tokens: int = 9) -> Any:
    """Add a request that waits for a grammar; give vLLM's object."""
    request = Request(
        request_id=name,
        prompt_token_ids=range(100, 106),
        sampling_params=SamplingParams(max_tokens=max_tokens),
        needs_grammar=True,
    )
    driver.apply(AddRequest(request))
    return driver.requests[-1]


def take_step(driver: Any, *token_ids: int) -> Any:
    """Plan a step and answer it with these tokens for every row; give what the clients are told."""
    driver.apply(Schedule())
    step_id = driver.scheduler.current_step
    sampled = dict.fromkeys(driver._in_flight[0].num_scheduled_tokens, token_ids)
    return driver.apply(Update(StepResult(step_id=step_id, sampled_token_ids=sampled)))["told"]


def make_value(grammar: Any) -> Any:
    """Make the value for a backend's grammar, with vLLM's own manager."""
    from vllm.v1.structured_output import StructuredOutputManager

    from kvsched_fp.adapters.vllm.grammars import to_grammar

    structured = SimpleNamespace(grammar=grammar, reasoning_ended=None)
    request = SimpleNamespace(
        request_id="a", structured_output_request=structured, use_structured_output=True
    )
    manager = StructuredOutputManager.__new__(StructuredOutputManager)
    manager.enable_in_reasoning, manager.reasoner_cls = False, None
    return to_grammar(request, manager)


def automaton() -> Any:
    """Give the automaton behind the interface of a backend's."""
    from kvsched_fp.adapters.vllm.driving.requests import VllmGrammar

    return VllmGrammar(ONES_THEN_TWO)


def xgrammar() -> Any:
    """Give the same language as one of the backend that vLLM takes by default; token ids are texts."""
    xgr = pytest.importorskip("xgrammar")
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    info = xgr.TokenizerInfo(["0", "1", "2", "<stop>"], stop_token_ids=[3])
    compiled = xgr.GrammarCompiler(info).compile_grammar('root ::= "1"* "2"+')
    matcher = xgr.GrammarMatcher(compiled, max_rollback_tokens=4)
    return XgrammarGrammar(matcher=matcher, vocab_size=4, ctx=compiled)


@pytest.mark.parametrize("make", [automaton, xgrammar])
def test_values_do_not_move(make: Any) -> None:
    """The backend moves along; the values stand where they stood, and can be asked in any order."""
    start = make_value(make())
    ones, ones_accepted = start.accept_tokens((1, 1))
    twos, twos_accepted = ones.accept_tokens((2,))
    rejected = twos.accept_tokens((1,))[1]

    counts = [value.count_valid_tokens((1, 2, 0)) for value in (twos, start, ones, twos)]

    assert (True, True, False) == (ones_accepted, twos_accepted, rejected)
    assert [0, 2, 2, 0] == counts
    assert ones == start.accept_tokens((1, 1))[0]
    assert ones != start


def test_masks(config: SchedulerConfig) -> None:
    """The oracle says which rows, vLLM's manager which masks; neither is asked where no row needs one."""
    driver = make_driver(config, "OracleScheduler")
    add(driver, "a")
    driver.apply(GrammarReady("a", ONES_THEN_TWO))
    driver.apply(Schedule())
    output = driver._in_flight[0]
    manager = type(driver.scheduler.structured_output_manager)
    with mock.patch.object(manager, "grammar_bitmask", return_value="masks") as ask:
        rows = driver.scheduler.get_grammar_bitmask(output)
        output.has_structured_output_requests = False
        nothing = driver.scheduler.get_grammar_bitmask(output)

    assert (["a"], "masks", [0]) == (
        rows.structured_output_request_ids,
        rows.grammar_bitmask,
        rows.num_acceptable_drafts,
    )
    assert nothing is None
    ask.assert_called_once()


@pytest.mark.parametrize("name", ["OracleScheduler", "ShadowScheduler"])
def test_errors_are_told_in_vllms_words(config: SchedulerConfig, name: str) -> None:
    """A request whose grammar cannot be compiled ends with the error that the real scheduler gives."""
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler
    from tests.adapters.pairs import Driver

    config = attrs.evolve(config, log_request_events=True)
    told = []
    for driver in (Driver(build_scheduler(config), config), make_driver(config, name)):
        add(driver, "a")
        driver.apply(GrammarFailed("a", "it makes no sense"))
        told.append(take_step(driver))

    assert told[0] == told[1]
    assert "Invalid structured outputs: it makes no sense" in str(told[1])


def test_several_errors(config: SchedulerConfig) -> None:
    """Where several cannot be compiled, the shadow sees no difference, and clients are told in order."""
    driver = make_driver(config, "ShadowScheduler")
    names = ["f", "b", "d", "a", "e", "c"]
    for name in names:
        add(driver, name)
        driver.apply(GrammarFailed(name, f"{name} makes no sense"))

    told = take_step(driver)

    assert driver.scheduler.report is None
    assert names == [output["request_id"] for output in told[0][1]["outputs"]]


def test_compiled_while_a_step_is_planned(config: SchedulerConfig) -> None:
    """A grammar that becomes ready just then counts from the next step on, on both sides."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvsched_fp.adapters.vllm.driving.requests import VllmGrammar

    future: Future[Any] = Future()

    class Compiling(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            if not future.done():
                future.set_result(VllmGrammar(ONES_THEN_TWO))
            return super().schedule(throttle_prefills)

    driver = make_driver(config, "ShadowScheduler", Compiling)
    add(driver, "a").structured_output_request.grammar = future
    batches = [list(driver.scheduler.schedule().num_scheduled_tokens) for _ in range(2)]

    assert [[], ["a"]] == batches
    assert driver.scheduler.report is None


def test_rejection(config: SchedulerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A sampled token that is not allowed ends the request on both sides; a trace ends in front of it."""
    trace = tmp_path / "trace.jsonl"
    driver = make_driver(config, "ShadowScheduler", trace=trace)
    add(driver, "a")
    driver.apply(GrammarReady("a", ONES_THEN_TWO))
    take_step(driver, 1)
    with caplog.at_level(logging.ERROR, logger="kvsched_fp.trace"):
        told = take_step(driver, 0)
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert "error" == str(told[0][1]["outputs"][0]["finish_reason"])
    assert driver.scheduler.report is None
    assert "a grammar rejected tokens" in caplog.text
    assert (5, None) == (verdict.num_events, verdict.divergence)


def test_drafts_are_recorded_as_they_were_cut(config: SchedulerConfig, tmp_path: Path) -> None:
    """What the grammar did not allow of the drafts is not in the trace, which passes the check."""
    trace = tmp_path / "trace.jsonl"
    config = attrs.evolve(config, num_spec_tokens=3)
    driver = make_driver(config, "RecordingScheduler", trace=trace)
    add(driver, "a")
    driver.apply(GrammarReady("a", ONES_THEN_TWO))
    take_step(driver, 1)
    driver.apply(UpdateDrafts({"a": (1, 2, 1)}))
    take_step(driver, 1, 2, 2)
    driver.scheduler.shutdown()
    with open_trace_reader(trace) as reader:
        events = [record.event for record in reader.records()]
    with open_trace_reader(trace) as reader:
        verdict = check_trace(reader)

    assert [UpdateDrafts({"a": (1, 2)})] == [event for event in events if isinstance(event, UpdateDrafts)]
    assert verdict.divergence is None


def test_a_failed_update_can_be_asked_again(config: SchedulerConfig) -> None:
    """A result that is refused behind a row that was taken in leaves that row's grammar where it was."""
    from kvsched_fp.adapters.vllm.driving.requests import to_model_runner_output

    driver = make_driver(config, "OracleScheduler")
    for name in "ab":
        add(driver, name)
        driver.apply(GrammarReady(name, ONES_THEN_TWO))
    driver.apply(Schedule())
    output = driver._in_flight[0]

    def fail_at_b(results: Any, step: Any, request_id: str, *arguments: Any, **named: Any) -> None:
        if request_id == "b":
            raise InvalidEvent("sampled_token_ids", request_id, "nothing, for once")
        take_in_row(results, step, request_id, *arguments, **named)

    bad = to_model_runner_output(output.num_scheduled_tokens, {"a": (2,), "b": (2,)})
    with mock.patch("kvsched_fp.update.take_in_row", fail_at_b), pytest.raises(InvalidEvent):
        driver.scheduler.update_from_output(output, bad)
    good = to_model_runner_output(output.num_scheduled_tokens, {"a": (1,), "b": (1,)})
    told = driver.scheduler.update_from_output(output, good)

    assert [None, None] == [output.finish_reason for output in told[0].outputs]
