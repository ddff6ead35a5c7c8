"""Random requests of one history."""

from collections.abc import Sequence
from random import Random

import attrs

from kvsched_fp import RepetitionDetection, Request, SamplingParams
from kvsched_fp.ids import RequestId
from kvsched_fp.request import LoRA

from .habits import Habits, draw_tokens


def draw_request(rng: Random, habits: Habits, number: int, free_ids: Sequence[RequestId]) -> Request:
    """Draw the `number`-th request of a history; `free_ids` may be used again, the last best of all."""
    request = Request(
        request_id=_draw_id(rng, habits, number, free_ids),
        prompt_token_ids=_draw_prompt(rng, habits),
        sampling_params=_draw_sampling_params(rng, habits),
        arrival_time=_draw_arrival_time(rng, habits, number),
        priority=rng.randrange(habits.num_priorities) - 1 if habits.num_priorities else -number,
        client_index=rng.randrange(habits.num_clients),
        # An empty salt is no salt.
        cache_salt=rng.choice((None, None, None, None, "salt", "pepper", "")),
    )
    return _with_features(rng, habits, request) if habits.features else request


def _with_features(rng: Random, habits: Habits, request: Request) -> Request:
    """Let the request ask for some of what the engine can do."""
    features = habits.features
    changes: dict[str, object] = {}
    if "adapters" in features and rng.random() < 0.7:
        number = rng.randint(1, habits.max_loras + 2)
        changes["lora"] = LoRA(f"adapter{number}", number, f"store/{number}")
    if "grammars" in features and rng.random() < 0.5:
        changes["needs_grammar"] = True
    if "sessions" in features and rng.random() < 0.6:
        changes["resumable"] = True
    if "pooling" in features:
        changes["pooling"] = True
        changes["sampling_params"] = SamplingParams(
            max_tokens=1, skip_reading_prefix_cache=request.sampling_params.skip_reading_prefix_cache
        )
    if "diffusion" in features:
        changes["canvas_length"] = rng.choice((None, None, 1, 2))
        changes["max_denoise_steps"] = rng.choice((None, None, 1, 2, 3))
    return attrs.evolve(request, **changes)


def _draw_id(rng: Random, habits: Habits, number: int, free_ids: Sequence[RequestId]) -> RequestId:
    """Draw an id; new ones do not sort in the order in which they are made."""
    if free_ids and rng.random() < habits.reuse_rate:
        return free_ids[-1] if rng.random() < 0.7 else rng.choice(free_ids)
    return RequestId(f"{rng.choice('abcdef')}{number}")


def _draw_prompt(rng: Random, habits: Habits) -> tuple[int, ...]:
    """Draw a prompt that often shares its beginning, or all of it, with others."""
    shared = rng.choice(habits.prefixes)
    if rng.random() < 0.6:
        shared = shared[: rng.randint(0, len(shared))]
    own = draw_tokens(rng, habits.num_token_ids, rng.choice((0, 0, 1, 1, 2, 5, habits.max_prompt_len)))
    return (*shared, *own, 0)[: rng.randint(1, habits.max_prompt_len)]


def _draw_sampling_params(rng: Random, habits: Habits) -> SamplingParams:
    max_tokens = rng.randint(1, habits.max_output_len)

    def stops() -> bool:
        return rng.random() < habits.stop_rate

    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=rng.randint(0, max_tokens) if rng.random() < 0.3 else 0,  # vLLM refuses more
        eos_token_id=rng.randrange(habits.num_token_ids) if stops() else None,
        stop_token_ids=draw_tokens(rng, habits.num_token_ids, rng.randint(1, 2)) if stops() else (),
        repetition_detection=_draw_repetition_detection(rng) if stops() else None,
        skip_reading_prefix_cache=rng.random() < 0.07,
    )


def _draw_repetition_detection(rng: Random) -> RepetitionDetection:
    max_pattern_size = rng.randint(0, 4)
    return RepetitionDetection(
        max_pattern_size=max_pattern_size,
        min_pattern_size=rng.randint(0, max_pattern_size),
        min_count=rng.randint(2, 4),
    )


def _draw_arrival_time(rng: Random, habits: Habits, number: int) -> float:
    if habits.arrivals == "in order":
        return float(number)
    return 0.0 if habits.arrivals == "at once" else float(rng.randint(0, 3))
