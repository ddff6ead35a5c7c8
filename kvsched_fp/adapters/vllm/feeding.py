"""What the schedulers here do to read vLLM's calls as events."""

from collections.abc import Iterator, Sequence

from vllm.v1.core.sched.output import SchedulerOutput as VllmSchedulerOutput
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm.requests import to_request
from kvsched_fp.errors import InvalidEvent
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.lifecycle import add_request
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState


def read_vllm_request(state: SchedulerState, request: VllmRequest) -> Request:
    """Read a request of vLLM's that may be added, or the next input of a session.

    Raises `UnsupportedFeature` or `InvalidEvent` for one that may not.
    """
    asked = to_request(request, state.config)
    add_vllm_request(state, request, asked)
    return asked


def add_vllm_request(
    state: SchedulerState, request: VllmRequest, asked: Request, time: float = 0.0
) -> SchedulerState:
    """Let a request of vLLM's in; `asked` is what it asks for, in our words.

    Raises `InvalidEvent` for one that names its blocks otherwise than the configuration says.
    """
    after = add_request(state, asked, time=time)
    is_new = asked.request_id not in state.requests
    if is_new and state.config.enable_prefix_caching:
        hashes = after.progress[asked.request_id].block_hashes
        if list(hashes) != list(request.block_hashes):
            raise InvalidEvent(
                f"request {request.request_id!r}.block_hashes",
                request.block_hashes[:1],
                "those of the hash function that cache_config.prefix_caching_hash_algo names, "
                "for blocks of hash_block_size tokens",
            )
    return after


def step_id_of(
    in_flight: Sequence[VllmSchedulerOutput], output: VllmSchedulerOutput, current_step: int
) -> StepId:
    """Give the number of a step that is in flight; raise `InvalidEvent` for any other."""
    for index, planned in enumerate(in_flight):
        if planned is output:
            return StepId(current_step - len(in_flight) + 1 + index)
    raise InvalidEvent("scheduler_output", output, "one of the steps in flight, as it was planned")


def oldest_step_id(
    in_flight: Sequence[VllmSchedulerOutput], answered: VllmSchedulerOutput, current_step: int
) -> StepId:
    """Give the number of the oldest step in flight; raise `InvalidEvent` unless it is the one answered."""
    if not in_flight:
        raise InvalidEvent("scheduler_output", answered, "nothing: no step is in flight")
    step_id = StepId(current_step - len(in_flight) + 1)
    batch, oldest = answered.num_scheduled_tokens, in_flight[0].num_scheduled_tokens
    if answered is not in_flight[0] and list(batch.items()) != list(oldest.items()):
        raise InvalidEvent(
            "scheduler_output.num_scheduled_tokens",
            batch,
            f"those of step {step_id}, the oldest in flight: {oldest}",
        )
    return step_id


def touched_by_step(
    before: SchedulerState, after: SchedulerState, output: SchedulerOutput
) -> Iterator[RequestId]:
    """Go through the requests that planning a step may have changed, each once.

    That are the batch, those that ran, and the waiting ones that were looked at: skipped ones, which are
    deferred, and the one that ended the scan.
    """
    batch = output.num_scheduled_tokens
    yield from batch
    yield from (request_id for request_id in before.running if request_id not in batch)
    ran = set(before.running)
    for queue in (after.kv_holding_waiting, after.waiting):
        for request_id in queue:
            if request_id not in ran:
                yield request_id
            if request_id not in after.deferred and request_id not in ran:
                break
