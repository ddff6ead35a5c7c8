"""Play random histories with what else a running engine does, until they differ.

    python -m tests.conformance.features --seconds 300 --seed 1

Asynchronous scheduling, drafts, pipelines, sessions, grammars, adapters and other models
(`random_features.py`), alone and together. It stops at the first difference; at the end it says how often
each situation and each pair of features occurred. Run it as `run.py`.
"""

import argparse
import sys
import time
from itertools import combinations

from .fixed_hash_seed import fix_hash_seed
from .known_crashes import KNOWN_CRASHES
from .pins import PinError, check_pins
from .random_features import FEATURES
from .situations_of_features import FEATURE_SITUATIONS


def main() -> int:
    """Run the command; give the exit status: 0 identical, 1 different, 2 no reference to compare with."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, at most")
    parser.add_argument("--seed", type=int, default=0, help="the first history; the next has the next seed")
    parser.add_argument("--histories", type=int, default=sys.maxsize, help="how many, at most")
    options = parser.parse_args()
    try:
        check_pins()
    except PinError as error:
        print(error, file=sys.stderr)
        return 2
    from .duel import Tally, play_history

    tally, started = Tally(), time.monotonic()
    for seed in range(options.seed, options.seed + options.histories):
        if time.monotonic() - started > options.seconds:
            break
        divergence = play_history(seed, tally, with_all_features=True)
        if divergence is not None:
            print(f"different: {divergence}")
            return 1
    for situation in (*FEATURE_SITUATIONS, *KNOWN_CRASHES):
        print(f"{tally.situations[situation]:10,}  {situation}")
    for pair in combinations(sorted(FEATURES), 2):
        print(f"{tally.pairs[pair]:10,}  {' and '.join(pair)}")
    print(
        f"identical: {tally.num_histories:,} histories, {tally.num_events:,} events, "
        f"{tally.num_decisions:,} decisions, {len(tally.configs):,} configurations"
    )
    return 0


if __name__ == "__main__":
    fix_hash_seed("tests.conformance.features")
    sys.exit(main())
