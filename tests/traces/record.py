"""Record traces from the real scheduler.

    python -m tests.traces.record sample [FILE]     play the bundled workload of `kvsched-fp run`
    python -m tests.traces.record bundled           write the traces that come with the package again
    python -m tests.traces.record faulty            write those of a scheduler with planted faults again

`sample` also plays the workload through this package, compares the two files byte for byte, lets the real
scheduler record itself once more as in an engine, checks both traces, and says how long each took. Run it
from the top of the repository, in an environment that `tests/conformance/reference-env.sh` made.
"""

import argparse
import filecmp
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from kvsched_fp.cli.checks import DEFAULT_INTERVAL, CheckMode
from kvsched_fp.cli.trace_checking import CheckOptions, check_file
from kvsched_fp.trace import open_trace
from kvsched_fp.workloads.formats import open_workload
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.sample import REPLAY_CONFIG, sample_path
from tests.conformance.pins import PINS, check_pins, find_reference, hash_files

BUNDLED = Path(__file__).parents[2] / "kvsched_fp" / "trace" / "data"
SAMPLE_DIGEST = Path(__file__).with_name("sample.sha256")


def record_sample(path: Path) -> int:
    """Record the sample at `path`, compare it with ours and check it; give the exit status."""
    real = _timed(lambda: _play_real(path))
    by_itself = path.with_suffix(".by_itself")
    made = _record_by_itself(by_itself)
    ours = _timed(lambda: _play_ours(path.with_suffix(".ours")))
    compared = _timed(lambda: _check(path, CheckMode.OFF))
    checked = _timed(lambda: _check(path, CheckMode.SAMPLED))
    checked_too = _timed(lambda: _check(by_itself, CheckMode.SAMPLED))
    by_itself.unlink()
    same = filecmp.cmp(path, path.with_suffix(".ours"), shallow=False)
    path.with_suffix(".ours").unlink()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"the real scheduler, recorded: {real[0]:.2f} s, of which in the scheduler {real[1]:.2f} s")
    print(f"this package, recorded:       {ours[0]:.2f} s")
    print(f"checked:                      {compared[0]:.2f} s; with invariants {checked[0]:.2f} s")
    print(f"{checked[1]}\nsha256 {digest}")
    print(f"the real scheduler, recording itself: {made:.2f} s")
    print(f"checked:                              {checked_too[0]:.2f} s with invariants\n{checked_too[1]}")
    print("the same bytes" if same else "DIFFERENT bytes")
    if same:
        SAMPLE_DIGEST.write_text(f"{digest}\n")
    return 0 if same else 1


def _timed(call: Callable[[], object]) -> tuple[float, object]:
    """Call, and give the processor time and the result."""
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def _play_real(path: Path) -> float:
    """Record the real scheduler; give the processor time of its own calls."""
    from .real_play import RealPlayer  # imports vLLM, which must be there by now
    from .recorder import RecordedScheduler

    folder = find_reference()
    assert folder is not None
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
    ):
        player = RealPlayer(RecordedScheduler(REPLAY_CONFIG), workload)
        with open_trace(path, REPLAY_CONFIG, hash_files(folder)) as writer:
            for event, told in player.play():
                writer.write_told(event, told)
    return player.recorded.seconds


def _record_by_itself(path: Path) -> float:
    """Let the real scheduler record itself; give the processor time of its calls, the writing included."""
    from .real_play import RealPlayer  # as above
    from .recorder import SelfRecordingScheduler

    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
    ):
        player = RealPlayer(SelfRecordingScheduler(REPLAY_CONFIG, path), workload)
        deque(player.play(), maxlen=0)
    return player.recorded.seconds


def _play_ours(path: Path) -> None:
    with (
        sample_path() as sample,
        open_workload(sample, None, max_model_len=REPLAY_CONFIG.max_model_len) as workload,
        open_trace(path, REPLAY_CONFIG) as writer,
    ):
        for played in play(REPLAY_CONFIG, workload):
            writer.write(played.event, played.after, played.outcome)


def _check(path: Path, mode: CheckMode) -> str:
    report = check_file(path, CheckOptions(mode=mode, interval=DEFAULT_INTERVAL), lambda _: None)
    verdict = report.verdict
    if verdict is None or verdict.divergence is not None:
        return str(report.error if verdict is None else verdict.divergence)
    return f"identical: {verdict.num_events:,} events, {verdict.num_decisions:,} decisions"


def record_bundled() -> int:
    """Write the bundled traces again; give the exit status."""
    from .selection import record_selection  # as above

    shutil.copyfile(PINS, BUNDLED / "reference.json")
    for path in BUNDLED.glob("*.jsonl"):
        path.unlink()
    record_selection(BUNDLED)
    return 0


def main() -> int:
    """Run the command; give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.traces.record", description=__doc__)
    parser.add_argument("what", choices=("sample", "bundled", "faulty"))
    parser.add_argument("file", type=Path, nargs="?", help="where the sample goes")
    options = parser.parse_args()
    check_pins()
    if options.what == "bundled":
        return record_bundled()
    if options.what == "faulty":
        from .faults import record_faults  # as above

        return record_faults(Path(__file__).with_name("faulty"))
    with tempfile.TemporaryDirectory() as folder:
        return record_sample(options.file or Path(folder) / "sample.jsonl")


def _fix_hash_seed() -> None:
    """Start again under a fixed hash seed, which ends several requests at once in a fixed order."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.traces.record", *sys.argv[1:]])


if __name__ == "__main__":
    _fix_hash_seed()
    sys.exit(main())
