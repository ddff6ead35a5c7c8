"""Run a whole vLLM engine on a CPU with one of four schedulers, and print the tokens it made as JSON.

    VLLM_TARGET_DEVICE=cpu python -m tests.live.engine {real,oracle,shadow,recording}
        [--requests 200] [--trace FILE] [--synchronous] [--drafts 3]

It schedules asynchronously, as is vLLM's default, unless told otherwise; drafts are made from n-grams of
what is known. The model is tiny and has dummy weights, the same in every run; sampling is greedy, so that
equal decisions give equal tokens. Prompts have mixed lengths and share prefixes, some requests are aborted
on the way, and the pool is so small that requests are preempted.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "torch_dtype": "float16",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
SCHEDULERS = {
    "real": None,
    "oracle": "kvsched_fp.adapters.vllm.OracleScheduler",
    "shadow": "kvsched_fp.adapters.vllm.ShadowScheduler",
    "recording": "kvsched_fp.adapters.vllm.RecordingScheduler",
}
ABORT_EVERY = 9
"""Of so many requests, one is aborted."""


def make_engine(scheduler: str, *, is_async: bool, num_drafts: int) -> Any:
    """Start an engine in this process."""
    # The wheel of torchvision does not match every torch, and a text model does not need it.
    sys.modules["torchvision"] = None  # type: ignore[assignment]
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import EngineArgs, LLMEngine

    _spread_dummy_weights()
    if is_async:
        _stay_asynchronous()
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(MODEL))
    arguments = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        max_model_len=512,
        enforce_eager=True,
        max_num_seqs=8,
        max_num_batched_tokens=96,
        block_size=32,
        num_gpu_blocks_override=20,
        async_scheduling=is_async,
        speculative_config=_drafter(num_drafts),
        disable_log_stats=False,
        scheduler_cls=SCHEDULERS[scheduler],
    )
    return LLMEngine.from_engine_args(arguments)


def _stay_asynchronous() -> None:
    """Let the CPU be asked for asynchronous scheduling: vLLM switches it off there, as not required."""
    from vllm.platforms.cpu import CpuPlatform

    update = CpuPlatform.check_and_update_config.__func__

    def update_and_stay(cls: Any, vllm_config: Any) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        update(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    CpuPlatform.check_and_update_config = classmethod(update_and_stay)


def _drafter(num_drafts: int) -> dict[str, Any] | None:
    if num_drafts == 0:
        return None
    return {
        "method": "ngram",
        "num_speculative_tokens": num_drafts,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }


def _spread_dummy_weights() -> None:
    """Make dummy weights so large that what stands in the KV cache decides the tokens.

    As they are, a token depends on hardly more than the one before it; then wrong blocks would give the
    right tokens.
    """
    from vllm.model_executor.model_loader import dummy_loader

    fill = dummy_loader.initialize_single_dummy_weight

    def fill_and_spread(weight: Any, *arguments: Any, **options: Any) -> None:
        fill(weight, *arguments, **options)
        if weight.dim() >= 2:
            weight.data.mul_(200.0)
        else:
            weight.data.fill_(1.0)

    dummy_loader.initialize_single_dummy_weight = fill_and_spread


def draw_prompts(num_requests: int) -> list[list[int]]:
    """Draw prompts of 1 to about 260 tokens; two in three begin with one of three prefixes."""
    rng = Random(0)
    prefixes = [[rng.randrange(3, 1000) for _ in range(96)] for _ in range(3)]
    prompts = []
    for index in range(num_requests):
        shared = rng.choice(prefixes)[: rng.randrange(97)] if index % 3 else []
        own = [rng.randrange(3, 1000) for _ in range(rng.choice((1, 5, 20, 60, 160)))]
        prompts.append(shared + own)
    return prompts


def serve(engine: Any, num_requests: int) -> dict[str, Any]:
    """Serve all requests; give the tokens of those that were not aborted, and what happened."""
    from vllm import SamplingParams

    scheduler = engine.engine_core.engine_core.scheduler
    accepted = count_accepted_drafts(scheduler)
    to_come = [(f"r{index}", prompt) for index, prompt in enumerate(draw_prompts(num_requests))]
    tokens: dict[str, list[int]] = {}
    num_steps = num_preemptions = 0
    seen: dict[str, int] = {}
    while to_come or engine.has_unfinished_requests():
        # Two arrive per step, as long as not too many are there.
        while to_come and len(scheduler.requests) < 24 and num_steps % 2 == 0:
            name, prompt = to_come.pop(0)
            params = SamplingParams(
                max_tokens=8 + len(prompt) % 90, temperature=0, ignore_eos=True, detokenize=False
            )
            engine.add_request(name, {"prompt_token_ids": prompt}, params)
        for output in engine.step():
            if output.finished:
                tokens[output.request_id] = list(output.outputs[0].token_ids)
        num_steps += 1
        for request in list(scheduler.requests.values()):
            num_preemptions += request.num_preemptions - seen.get(request.request_id, 0)
            seen[request.request_id] = request.num_preemptions
        aborted = [
            request
            for request in scheduler.requests.values()
            if _number(request) % ABORT_EVERY == 0 and request.num_output_tokens >= _number(request) % 20
        ]
        if aborted:
            engine.abort_request([_outer_id(request) for request in aborted])
    report = getattr(scheduler, "report", None)
    return {
        "scheduler": f"{type(scheduler).__module__}.{type(scheduler).__name__}",
        "num_requests": num_requests,
        "num_finished": len(tokens),
        "num_steps": num_steps,
        "num_preemptions": num_preemptions,
        "num_accepted_drafts": sum(accepted),
        "difference": None if report is None else str(report),
        "tokens": dict(sorted(tokens.items())),
    }


def count_accepted_drafts(scheduler: Any) -> list[int]:
    """Note from now on how many drafts each update accepted, as the clients are told."""
    accepted: list[int] = []
    update = scheduler.update_from_output

    def update_and_note(*arguments: Any) -> Any:
        told = update(*arguments)
        for client in told.values():
            stats = client.scheduler_stats
            if stats is not None and stats.spec_decoding_stats is not None:
                accepted.append(stats.spec_decoding_stats.num_accepted_tokens)
        return told

    # Past the guard of an oracle, which lets nobody replace its methods.
    vars(scheduler)["update_from_output"] = update_and_note
    return accepted


def _outer_id(request: Any) -> str:
    """Give the id that the request came with; the engine may put something behind it."""
    return str(request.request_id).partition("-")[0]


def _number(request: Any) -> int:
    return int(_outer_id(request)[1:])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scheduler", choices=SCHEDULERS)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--trace", help="where a shadow or a recorder writes what the real scheduler says")
    parser.add_argument("--synchronous", action="store_true", help="plan no step before the last is back")
    parser.add_argument("--drafts", type=int, default=0, help="tokens drafted per request and step")
    options = parser.parse_args()
    if options.trace:
        os.environ["KVSCHED_FP_TRACE"] = options.trace
    engine = make_engine(options.scheduler, is_async=not options.synchronous, num_drafts=options.drafts)
    result = serve(engine, options.requests)
    engine.engine_core.shutdown()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
