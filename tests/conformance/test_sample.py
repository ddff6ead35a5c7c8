"""The beginning of the bundled workload, through the real scheduler; all of it: `tests.traces.record`."""

from itertools import islice
from pathlib import Path

import pytest

from kvsched_fp.trace import check_trace, open_trace, open_trace_reader
from kvsched_fp.workloads.formats import open_workload
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.sample import REPLAY_CONFIG, sample_path

NUM_EVENTS = 400


@pytest.mark.usefixtures("_reference")
def test_the_sample_gives_the_same_bytes(tmp_path: Path) -> None:
    """The real scheduler's trace and ours are the same, byte for byte."""
    from tests.traces.real_play import RealPlayer
    from tests.traces.recorder import RecordedScheduler

    real, ours = tmp_path / "real.jsonl", tmp_path / "ours.jsonl"
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
        open_trace(real, REPLAY_CONFIG) as writer,
    ):
        player = RealPlayer(RecordedScheduler(REPLAY_CONFIG), workload)
        for event, told in islice(player.play(), NUM_EVENTS):
            writer.write_told(event, told)
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
        open_trace(ours, REPLAY_CONFIG) as writer,
    ):
        for played in islice(play(REPLAY_CONFIG, workload), NUM_EVENTS):
            writer.write(played.event, played.after, played.outcome)

    assert real.read_bytes() == ours.read_bytes()


@pytest.mark.usefixtures("_reference")
def test_the_sample_records_itself(tmp_path: Path) -> None:
    """What the real scheduler writes down by itself is what comes here."""
    from tests.traces.real_play import RealPlayer
    from tests.traces.recorder import SelfRecordingScheduler

    path = tmp_path / "by_itself.jsonl"
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
    ):
        player = RealPlayer(SelfRecordingScheduler(REPLAY_CONFIG, path), workload)
        num_events = sum(1 for _ in islice(player.play(), NUM_EVENTS))
    player.recorded.scheduler.kv_event_publisher = None  # a double, which cannot shut down
    player.recorded.scheduler.shutdown()
    with open_trace_reader(path) as reader:
        verdict = check_trace(reader)

    assert verdict.divergence is None, str(verdict.divergence)
    assert num_events == verdict.num_events
