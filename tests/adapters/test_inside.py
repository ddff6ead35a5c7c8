"""Code written for the real scheduler, which looks inside it, runs on `OracleScheduler` unchanged."""

from typing import Any

import pytest

from kvsched_fp import SchedulerConfig

pytestmark = pytest.mark.usefixtures("_reference")

EOS = 50


def make_scheduler(kind: str, config: SchedulerConfig) -> Any:
    """Build either scheduler, from the same arguments."""
    from kvsched_fp.adapters.vllm import OracleScheduler
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler
    from tests.adapters.pairs import build_like

    real = build_scheduler(config)
    return real if kind == "real" else build_like(real, OracleScheduler)


def make_requests(
    num_requests: int, num_tokens: int, *, same_prompt: bool = False, **params: Any
) -> list[Any]:
    """Make requests as a test of vLLM's would."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(4, sha256)
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=[0 if same_prompt else index] * num_tokens,
            sampling_params=SamplingParams(ignore_eos=True, max_tokens=8, **params),
            pooling_params=None,
            block_hasher=hasher,
        )
        for index in range(num_requests)
    ]


def answer(scheduler: Any, output: Any, token_id: int = 9) -> Any:
    """Take in one token for every request in the batch."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    result = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[token_id] for _ in names],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    return scheduler.update_from_output(output, result)


def assert_empty(scheduler: Any) -> None:
    """Look at everything that must be empty when nothing is there."""
    assert len(scheduler.requests) == 0
    assert len(scheduler.waiting) == 0
    assert len(scheduler.running) == 0
    assert len(scheduler.finished_req_ids) == 0
    assert len(scheduler.encoder_cache_manager.cached) == 0
    assert len(scheduler.encoder_cache_manager.freeable) == 0
    manager = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    assert len(manager.req_to_blocks) == 0
    assert len(manager.num_cached_block) == 0
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.free_block_queue.num_free_blocks == pool.num_gpu_blocks - 1
    assert all(block.ref_cnt == 0 for block in pool.blocks if not block.is_null)


@pytest.mark.parametrize("kind", ["real", "oracle"])
def test_lifecycle(kind: str, config: SchedulerConfig) -> None:
    """Requests come, run, finish and leave nothing behind."""
    from vllm.v1.request import RequestStatus

    scheduler = make_scheduler(kind, config)
    requests = make_requests(3, 5)
    for request in requests:
        scheduler.add_request(request)
    assert list(scheduler.waiting) == requests
    assert scheduler.waiting.peek_request() is requests[0]

    output = scheduler.schedule()
    assert scheduler.running == requests
    assert len(scheduler.waiting) == 0
    for new, request in zip(output.scheduled_new_reqs, requests, strict=True):
        assert scheduler.requests[new.req_id] is request
        assert new.block_ids == scheduler.kv_cache_manager.get_block_ids(request.request_id)
        assert request.status == RequestStatus.RUNNING

    answer(scheduler, output)
    assert [request.output_token_ids[-1] for request in requests] == [9, 9, 9]
    scheduler.finish_requests([request.request_id for request in requests], RequestStatus.FINISHED_ABORTED)
    assert scheduler.finished_req_ids == {"0", "1", "2"}
    answer(scheduler, scheduler.schedule())

    assert_empty(scheduler)


@pytest.mark.parametrize("kind", ["real", "oracle"])
def test_prefix_cache(kind: str, config: SchedulerConfig) -> None:
    """Blocks of a shared prefix are shared, have their hash, and are found under it."""
    scheduler = make_scheduler(kind, config)
    first, second = make_requests(2, 13, same_prompt=True)
    scheduler.add_request(first)
    answer(scheduler, scheduler.schedule())
    scheduler.add_request(second)
    scheduler.schedule()
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool

    blocks = manager.get_blocks(second.request_id).blocks[0]
    shared = blocks[:3]

    assert [block.ref_cnt for block in shared] == [2, 2, 2]
    assert [block.block_id for block in shared] == list(manager.get_block_ids(first.request_id)[0][:3])
    assert shared[0].block_hash is not None
    assert pool.cached_block_hash_to_block.get_one_block(shared[0].block_hash) is shared[0]
    assert pool.get_cached_block(first.block_hashes[0], [0]) == [shared[0]]
    assert pool.get_num_free_blocks() == len(pool.free_block_queue.get_all_free_blocks())
    assert 0 < manager.usage < 1


@pytest.mark.parametrize("kind", ["real", "oracle"])
def test_stop_token(kind: str, config: SchedulerConfig) -> None:
    """A stop token ends a request, says so everywhere, and is the stop reason."""
    from vllm.v1.engine import FinishReason
    from vllm.v1.request import RequestStatus

    scheduler = make_scheduler(kind, config)
    (request,) = make_requests(1, 5, stop_token_ids=[EOS])
    scheduler.add_request(request)

    told = answer(scheduler, scheduler.schedule(), EOS)[0].outputs[0]

    assert (FinishReason.STOP, EOS) == (told.finish_reason, told.stop_reason)
    assert (RequestStatus.FINISHED_STOPPED, EOS) == (request.status, request.stop_reason)
    assert request.request_id not in scheduler.requests
