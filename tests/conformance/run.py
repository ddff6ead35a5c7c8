"""Play random histories against the reference and ours, until they differ.

    python -m tests.conformance.run --histories 1000

Run it from the top of the repository, in an environment that `reference-env.sh` made. It stops at the
first difference, and says how to see it again.
"""

import argparse
import importlib.util
import os
import sys
import time

from .known_crashes import KNOWN_CRASH
from .pins import PinError, check_pins
from .situations import SITUATIONS


def main(arguments: list[str] | None = None) -> int:
    """Run the command; give the exit status: 0 identical, 1 different, 2 no reference to compare with."""
    options = _parse(arguments)
    try:
        check_pins()
    except PinError as error:
        print(error, file=sys.stderr)
        return 2
    from .duel import Tally, play_history

    tally = Tally()
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.histories):
        if time.monotonic() - start > options.seconds:
            break
        divergence = play_history(seed, tally, options.shape)
        if divergence is not None:
            print(f"different: {divergence}")
            print(f"again: {_command(seed, options.shape)}")
            return 1
    for situation in (*SITUATIONS, KNOWN_CRASH):
        print(f"{tally.situations[situation]:10,}  {situation}")
    print(
        f"identical: {tally.num_histories:,} histories, {tally.num_events:,} events, "
        f"{tally.num_decisions:,} decisions, {len(tally.configs):,} configurations"
    )
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("--histories", type=int, help="how many, at most; 1000 if no --seconds are given")
    parser.add_argument("--seconds", type=float, help="how long, at most")
    parser.add_argument("--seed", type=int, default=0, help="the first history; the next has the next seed")
    parser.add_argument("--shape", choices=("v1", "v2", "both"), default="both", help="of the output")
    options = parser.parse_args(arguments)
    if options.histories is None:
        options.histories = 1000 if options.seconds is None else sys.maxsize
    if options.seconds is None:
        options.seconds = float("inf")
    return options


def _command(seed: int, shape: str) -> str:
    return f"python -m tests.conformance.run --histories 1 --seed {seed} --shape {shape}"


def _fix_hash_seed() -> None:
    """Start again under a fixed hash seed: the order of a set is part of a history (`set_order.py`)."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.conformance.run", *sys.argv[1:]])


if __name__ == "__main__":
    if importlib.util.find_spec("vllm") is not None:
        _fix_hash_seed()
    sys.exit(main())
