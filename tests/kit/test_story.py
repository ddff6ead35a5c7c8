"""A difference is told in sentences, whatever has happened before it."""

from pathlib import Path

import pytest

from kvsched_fp import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    Request,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.testing import PureAdapter
from kvsched_fp.testing.duel import play
from kvsched_fp.testing.reporting import report
from kvsched_fp.trace import check_trace, open_trace_reader
from kvsched_fp.trace.codec import Told

CONFIG = SchedulerConfig(
    max_model_len=16,
    max_num_seqs=4,
    max_num_batched_tokens=8,
    num_blocks=9,
    block_size=4,
    policy="priority",
    enable_kv_cache_events=True,
    num_spec_tokens=2,
    log_stats=False,
)


class FailsAtPause(PureAdapter):
    """A scheduler that can do everything but be paused entirely."""

    def happen(self, event: Event) -> Told:
        """Give up, or do what is right."""
        if event == SetPauseState(PauseState.PAUSED_ALL):
            raise RuntimeError("never")
        return super().happen(event)


def request(name: str, **fields: object) -> AddRequest:
    """Add a request."""
    params = SamplingParams(max_tokens=5, stop_token_ids=[9])
    return AddRequest(
        Request(request_id=name, prompt_token_ids=[1, 2, 3, 4], sampling_params=params, **fields)
    )


def answer(step_id: int, **sampled: list[int]) -> Update:
    """Let a step come back."""
    return Update(StepResult(step_id=step_id, sampled_token_ids=sampled))


STORY: tuple[tuple[Event, str], ...] = (
    (
        request("a", priority=3),
        "A client sends 'a': prompt (1, 2, 3, 4), at most 5 tokens, stop_token_ids [9], priority 3.",
    ),
    (request("b", needs_grammar=True), "needs_grammar True."),
    (request("c", needs_grammar=True), "A client sends 'c'"),
    (
        GrammarReady("b", AutomatonGrammar((((0, 0), (1, 0)),))),
        "The grammar of 'b' is there.",
    ),
    (GrammarFailed("c", "no such word"), "There is no grammar for 'c': no such word."),
    (
        Schedule(),
        "The next step is planned. Both: step 1: 'b' gets 4 in new blocks [[1]] [S-WAIT-05], "
        "'a' gets 4 in new blocks [[2]] [S-WAIT-05], 'c' gets nothing [",
    ),
    (
        answer(1, a=[7], b=[1]),
        "Step 1 comes back with [7] for 'a', [1] for 'b'. Both: 'b' hears [1], 'a' hears [7], 'c' hears [] "
        "and ends (error), events of the prefix cache: 2.",
    ),
    (UpdateDrafts({"a": [7, 9]}), "The drafter proposes [7, 9] for 'a'."),
    (
        Schedule(throttle_prefills=True),
        "The next step is planned, prompts held back. Both: step 2: 'b' gets 1",
    ),
    (UpdateDraftsInFlight(2, {"a": [7, 8]}), "The drafts of step 2 become known: [7, 8] for 'a'."),
    (answer(2, a=[7, 8, 9], b=[0]), "'a' hears [7, 8, 9] and ends (stop)"),
    (FinishRequests(["b"]), "Somebody ends 'b': finished_aborted."),
    (FinishRequests(None), "Somebody ends all requests: finished_aborted."),
    (ResetPrefixCache(True), "The prefix cache is reset, running requests too. Both: it was done."),
    (Schedule(), "Both: step 3: nobody gets anything."),
    (answer(3), "Step 3 comes back with nothing. Both: events of the prefix cache: 1."),
    (Schedule(), "Both: step 4: nobody gets anything."),
    (answer(4), "Both: nobody hears anything."),
    (SetPauseState(PauseState.PAUSED_ALL), "The engine is now paused_all."),
)


@pytest.fixture(scope="module")
def story() -> str:
    """Tell the whole story."""
    parting = play(FailsAtPause(), CONFIG, [event for event, _ in STORY])
    return report(parting, None, "it").story


@pytest.mark.parametrize(("number", "sentence"), list(enumerate((text for _, text in STORY), start=1)))
def test_a_sentence_for_each_event(number: int, sentence: str, story: str) -> None:
    """Each event has its sentence, with what came of it."""
    (line,) = [line for line in story.splitlines() if line.startswith(f"{number:3}. ")]

    assert sentence in line


def test_the_end(story: str) -> None:
    """The last event is told from both sides; the configuration is what is not at its default."""
    assert "       here:  done\n       there: failed: RuntimeError: never\n" in story
    assert "configuration: max_model_len=16, max_num_seqs=4, " in story
    assert "policy='priority'" in story
    assert "trace:" not in story


def test_the_trace_reads(tmp_path: Path) -> None:
    """The file has a name without odd letters, and the check reads it."""
    parting = play(FailsAtPause(), CONFIG, [event for event, _ in STORY])
    error = report(parting, tmp_path, "my / scheduler")
    with open_trace_reader(tmp_path / "my-scheduler.jsonl") as reader:
        verdict = check_trace(reader)

    assert (len(STORY), None) == (verdict.num_events, verdict.divergence)
    assert f"kvsched-fp explain {tmp_path}/my-scheduler.jsonl --step 4" in error.story
