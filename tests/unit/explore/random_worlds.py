"""Random small worlds. Without the reference's quirks, no invariant is broken in any, and nobody is stuck.

    python -m tests.unit.explore.random_worlds --seed 1 --seconds 600

explores one world after the other and prints those in which something is wrong.
"""

import argparse
import random
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kvsched_fp.config import Quirk, SchedulerConfig
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.events import PauseState
from kvsched_fp.explore import Limits, RequestKind, World, explore
from kvsched_fp.explore.story import tell_story

MAX_STATES = 1200
"""Worlds that are larger are cut: the first states are enough to fill such a pool."""


def random_worlds(seed: int, quirks: Collection[Quirk] = ()) -> Iterator[World]:
    """Give worlds without end; the same for the same seed and quirks."""
    rng = random.Random(seed)
    for number in range(sys.maxsize):
        try:
            yield _world(rng, f"world {number} of seed {seed}", quirks)
        except InvalidConfig:
            continue  # drawn at random, not every configuration makes sense


def _world(rng: random.Random, name: str, quirks: Collection[Quirk]) -> World:
    theme = rng.choice(list(_THEMES))
    values = _config(rng) | _THEMES[theme](rng)
    if values.get("drop_eagle_block"):
        values["num_hash_lookahead_tokens"] = 0
    config = SchedulerConfig(quirks=quirks, **values)
    num_stages = config.pipeline_parallel_size + config.async_scheduling
    return World(
        name=name,
        config=config,
        kinds=tuple(_kind(rng, config, theme, kind_name) for kind_name in rng.choice(["a", "ab", "ab"])),
        max_in_flight=rng.choice([num_stages, num_stages, num_stages + 1]),
        stops=rng.random() < 0.4,
        aborts=rng.random() < 0.3,
        pauses=rng.choice([(), (), (), (PauseState.PAUSED_NEW,), (PauseState.PAUSED_ALL,)]),
        resets=rng.choice([(), (), (), (True,), (False,)]),
        throttles=rng.random() < 0.15,
    )


def _config(rng: random.Random) -> dict[str, Any]:
    """Draw what every world has: a pool for a request or two, and steps that may be too small for one."""
    num_blocks, block_size = rng.randint(3, 6), rng.choice([1, 2, 2, 3])
    max_model_len, max_num_seqs = rng.randint(2, (num_blocks - 1) * block_size), rng.choice([1, 2, 2, 3])
    chunked = rng.random() < 0.7
    least = max(max_num_seqs, 1 if chunked else max_model_len)
    max_num_batched_tokens = max(least, rng.randint(1, 8))
    return {
        "num_blocks": num_blocks,
        "block_size": block_size,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_active_seqs": rng.choice([None, None, None, rng.randint(1, max_num_seqs)]),
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_scheduled_tokens": rng.choice([None, None, None, rng.randint(1, max_num_batched_tokens)]),
        "enable_chunked_prefill": chunked,
        "policy": rng.choice(["fcfs", "priority"]),
        "long_prefill_token_threshold": min(max_model_len, rng.choice([0, 0, 0, 1, 2, 3])),
        "long_prefill_token_threshold_adaptive": rng.random() < 0.3,
        "enable_prefix_caching": rng.random() < 0.75,
        "scheduler_reserve_full_isl": rng.random() < 0.5,
        "watermark": rng.choice([0.0, 0.0, 0.1, 0.3]),
        "prefill_schedule_interval": rng.choice([1, 1, 1, 2, 3]),
        "use_v2_model_runner": rng.random() < 0.5,
        "num_lookahead_tokens": rng.choice([0, 0, 0, 1]),
    }


def _with_drafts(rng: random.Random) -> dict[str, Any]:
    num_spec_tokens = rng.randint(1, 3)
    fewer = ((1, 1, num_spec_tokens), (2, 4, num_spec_tokens - 1))
    return {
        "num_spec_tokens": num_spec_tokens,
        "num_spec_tokens_per_batch_size": rng.choice([None, None, None, fewer]),
        "max_num_new_slots_for_drafting": rng.choice([0, 0, 1, 2]),
        "num_prefill_lookahead_tokens": rng.choice([0, 0, 1, 2]),
        "drop_eagle_block": rng.random() < 0.3,
        "num_hash_lookahead_tokens": rng.choice([0, 0, 1]),
        "async_scheduling": rng.random() < 0.5,
    }


def _pipeline(rng: random.Random) -> dict[str, Any]:
    drafts = _with_drafts(rng) if rng.random() < 0.3 else {}
    return drafts | {"pipeline_parallel_size": 2, "async_scheduling": rng.random() < 0.5}


_THEMES = {
    "plain": lambda _: {},
    "asynchronous": lambda _: {"async_scheduling": True},
    "drafts": _with_drafts,
    "pipeline": _pipeline,
    "sessions": lambda rng: {"async_scheduling": rng.random() < 0.3},
    "adapters": lambda _: {"max_loras": 1},
    "grammars": lambda rng: _with_drafts(rng) if rng.random() < 0.5 else {},
}
"""What meets in a world, and what that asks of the configuration."""


def _kind(rng: random.Random, config: SchedulerConfig, theme: str, name: str) -> RequestKind:
    num_inputs = rng.choice([0, 1, 2]) if theme == "sessions" else 0
    max_tokens = rng.randint(1, 3)
    # A session's input that might not fit is refused (deviation D-11).
    longest = config.max_model_len - num_inputs * (max_tokens + 1)
    if longest < 1:
        longest, num_inputs = config.max_model_len, 0
    num_prompt_tokens = rng.randint(1, longest)
    return RequestKind(
        name=name,
        num_prompt_tokens=num_prompt_tokens,
        num_shared_tokens=rng.randint(0, num_prompt_tokens),
        max_tokens=max_tokens,
        count=rng.choice([1, 1, 2]),
        priority=rng.choice([0, 0, 1]),
        lora_id=rng.choice([None, 1, 2]) if theme == "adapters" else None,
        needs_grammar=theme == "grammars" and rng.random() < 0.7,
        num_inputs=num_inputs,
        skip_reading_prefix_cache=rng.random() < 0.1,
    )


def what_is_wrong(world: World, max_states: int = MAX_STATES) -> str | None:
    """Explore a world; give the story of what is wrong, or None."""
    found = explore(world, limits=Limits(max_states=max_states))
    if found.counterexample is None:
        return None
    return "\n".join([repr(world), *tell_story(world, found.counterexample)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore worlds for a while; the exit code is 1 if something is wrong in one."""
    parser = argparse.ArgumentParser(description="Explore random worlds without quirks.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args(arguments)
    end, num_worlds, num_wrong = time.monotonic() + options.seconds, 0, 0
    for world in random_worlds(options.seed):
        num_worlds += 1
        wrong = what_is_wrong(world)
        if wrong is not None:
            num_wrong += 1
            print(wrong, flush=True)
        if time.monotonic() > end:
            break
    print(f"{num_worlds} worlds, something is wrong in {num_wrong}")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
