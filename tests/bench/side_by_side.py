"""Time schedule + update against the real scheduler, on the same work, side by side.

    python -m tests.bench.side_by_side [--running 32 256 1024] [--steps 100]

Needs the reference environment (tests/conformance/reference-env.sh). Figures are microseconds per running
request and step, of processor time. Each machine lives in a process of its own, so that neither pays for
the other's garbage collection; they take turns, step by step, so that a noisy neighbour hits both. The
lower quartile over the steps is taken, and the ratio is what counts.
"""

import argparse
import gc
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import attrs

from kvsched_fp import (
    Request,
    SamplingParams,
    SchedulerConfig,
    SchedulerState,
    StepResult,
    add_request,
    initial_state,
    schedule,
    update,
)

WARM_UP_STEPS = 20
BLOCK_SIZE = 16
PREFILL_BUDGET = 8192


@attrs.frozen
class Work:
    """One kind of work: the prompts, and the config that shapes the steps."""

    name: str
    prompt_length: int
    config: SchedulerConfig
    num_running: int

    def prompts(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Give distinct prompts, so that no prefix is shared."""
        for index in range(self.num_running):
            first = index * self.prompt_length
            yield f"request-{index}", tuple(range(first, first + self.prompt_length))


def decode_only(num_running: int, num_steps: int) -> Work:
    """Every request decodes one token in every step."""
    num_tokens = 2 * BLOCK_SIZE + (num_steps + WARM_UP_STEPS + 1)
    return Work("decode only", BLOCK_SIZE, _config(num_running, num_tokens, 0), num_running)


def prefill_heavy(num_running: int, num_steps: int) -> Work:
    """Every request computes its share of a budget of 8,192 tokens of prompt in every step."""
    chunk = PREFILL_BUDGET // num_running
    prompt_length = (num_steps + WARM_UP_STEPS + 1) * chunk
    return Work(
        "prefill heavy", prompt_length, _config(num_running, prompt_length + 64, chunk), num_running
    )


def _config(num_running: int, num_tokens: int, threshold: int) -> SchedulerConfig:
    blocks_per_request = -(-num_tokens // BLOCK_SIZE) + 1
    return SchedulerConfig(
        max_model_len=num_tokens + BLOCK_SIZE,
        max_num_seqs=num_running,
        max_num_batched_tokens=max(PREFILL_BUDGET, num_running * BLOCK_SIZE),
        long_prefill_token_threshold=threshold,
        num_blocks=num_running * blocks_per_request + 64,
        block_size=BLOCK_SIZE,
    )


class Ours:
    """The pure machine on one piece of work."""

    def __init__(self, work: Work) -> None:
        self.state: SchedulerState = initial_state(work.config)
        for request_id, prompt in work.prompts():
            request = Request(
                request_id=request_id,
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=work.config.max_model_len),
            )
            self.state = add_request(self.state, request)

    def run(self, num_steps: int) -> float:
        """Do steps; give the seconds spent in schedule and update."""
        spent = 0.0
        for _ in range(num_steps):
            start = time.process_time()
            self.state, output = schedule(self.state)
            spent += time.process_time() - start
            progress = self.state.progress
            sampled = {r: (7,) for r in output.num_scheduled_tokens if not progress[r].is_prefill_chunk}
            result = StepResult(step_id=output.step_id, sampled_token_ids=sampled)
            start = time.process_time()
            self.state = update(self.state, result)
            spent += time.process_time() - start
        return spent


class Theirs:
    """The real scheduler on one piece of work."""

    def __init__(self, work: Work) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        from tests.bench.real import build, make_request

        init_none_hash(sha256)
        hasher = get_request_block_hasher(work.config.block_size, sha256)
        self.scheduler = build(work.config)
        for request_id, prompt in work.prompts():
            self.scheduler.add_request(make_request(request_id, prompt, work.config.max_model_len, hasher))

    def run(self, num_steps: int) -> float:
        """Do steps; give the seconds spent in schedule and update."""
        from vllm.v1.outputs import ModelRunnerOutput

        spent = 0.0
        for _ in range(num_steps):
            start = time.process_time()
            output = self.scheduler.schedule()
            spent += time.process_time() - start
            ids = list(output.num_scheduled_tokens)
            requests = self.scheduler.requests
            sampled = [[] if requests[r].is_prefill_chunk else [7] for r in ids]
            result = ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={r: i for i, r in enumerate(ids)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            )
            start = time.process_time()
            self.scheduler.update_from_output(output, result)
            spent += time.process_time() - start
        return spent


class Worker:
    """A machine in a process of its own."""

    def __init__(self, kind: type[Ours] | type[Theirs], work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(kind, work, far_end), daemon=True)
        self.process.start()

    def run(self, num_steps: int) -> float:
        """Do steps; give microseconds per running request and step."""
        self.pipe.send(num_steps)
        return float(self.pipe.recv())

    def stop(self) -> None:
        """End the process."""
        self.pipe.send(0)
        self.process.join()


def _serve(kind: type[Ours] | type[Theirs], work: Work, pipe: Connection) -> None:
    machine = kind(work)
    gc.collect()
    while num_steps := pipe.recv():
        pipe.send(machine.run(num_steps) / num_steps / work.num_running * 1e6)


def measure(work: Work, num_steps: int) -> tuple[float, float]:
    """Give the lower quartiles of ours and theirs, in microseconds per running request and step."""
    workers = (Worker(Ours, work), Worker(Theirs, work))
    for worker in workers:
        worker.run(WARM_UP_STEPS)
    times = [[worker.run(1) for worker in workers] for _ in range(num_steps)]
    for worker in workers:
        worker.stop()
    ours, theirs = (statistics.quantiles(column, n=4)[0] for column in zip(*times, strict=True))
    return ours, theirs


def main() -> None:
    """Print one row per kind of work and number of running requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, nargs="+", default=[32, 256, 1024])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    print(f"{'work':16}{'running':>8}{'ours us':>10}{'theirs us':>11}{'ratio':>8}")
    for make in (decode_only, prefill_heavy):
        for num_running in options.running:
            work = make(num_running, options.steps)
            ours, theirs = measure(work, options.steps)
            print(f"{work.name:16}{num_running:8}{ours:10.2f}{theirs:11.2f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
