"""The stub model and its drafter: what a step brings back.

Rules
-----
Every request whose known tokens are all computed samples one token, and one more per draft in front of the
first wrong one. The token says who sampled it and where: token ids count up with the position in the
output, in a range of their own per request, above all prompts (`request.py`). So no output is ever equal to
another's, an output in a trace is one run, and it is the same whatever was drafted.

The drafter is right about a position of an output if a hash of the request's id and the position falls
below the acceptance rate; where it is wrong, it takes the token that belongs one position further. So a
draft is accepted with that probability if those before it were, and nothing that a scheduler does changes
whether.

With asynchronous scheduling the drafts stay in the worker, and the scheduler counts with -1 in their place.
A request that is admitted with -1 for drafts has none: those are padding.
"""

import hashlib
from collections.abc import Iterator

import attrs

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import RequestStatus
from kvsched_fp.schedule.drafts import PLACEHOLDER
from kvsched_fp.state import SchedulerState
from kvsched_fp.workloads.request import OUTPUT_TOKEN_BASE

POSITIONS_PER_REQUEST = 2**26
"""The range of one request's output, in token ids."""
NUM_RANGES = 2**26
"""Ranges below 2**53; after so many requests the first range is used again."""
DEFAULT_ACCEPTANCE_RATE = 0.7
"""How often a draft is right."""

_HASH_BYTES = 8


@attrs.frozen
class StepInFlight:
    """A step that the model works on."""

    output: SchedulerOutput
    """What was scheduled."""
    sampling: frozenset[RequestId]
    """The rows that sample: with them, all that is known of their request is computed. For look-up only."""
    end: float = 0.0
    """When its result is there, in simulated seconds."""


def sampling_request_ids(state: SchedulerState, output: SchedulerOutput) -> frozenset[RequestId]:
    """Name the rows of `output` that sample; `state` is the one that scheduling it made."""
    return frozenset(
        [
            request_id
            for request_id in output.num_scheduled_tokens
            if not state.progress[request_id].is_prefill_chunk
        ]
    )


@attrs.frozen
class StubModel:
    """The model and its drafter."""

    acceptance_rate: float = DEFAULT_ACCEPTANCE_RATE
    """The probability that a draft is right, from 0.0 to 1.0."""

    def __attrs_post_init__(self) -> None:
        rate = self.acceptance_rate
        if type(rate) not in (int, float) or not 0 <= rate <= 1:
            raise InvalidInputError("acceptance rate", rate, "a number from 0 to 1")

    def answer(self, state: SchedulerState, step: StepInFlight) -> StepResult:
        """Answer the oldest step in flight in `state`.

        A request in the middle of its prompt, or one that has left, samples nothing.
        """
        drafted = step.output.scheduled_spec_token_ids
        admitted = _admitted_request_ids(step.output) if drafted else frozenset()
        sampled: dict[RequestId, tuple[int, ...]] = {}
        for request_id in step.output.num_scheduled_tokens:
            if request_id in step.sampling and request_id in state.progress:
                drafts = () if request_id in admitted else drafted.get(request_id, ())
                sampled[request_id] = tuple(self._sample(state, request_id, drafts))
        return StepResult(step_id=step.output.step_id, sampled_token_ids=sampled)

    def _sample(
        self, state: SchedulerState, request_id: RequestId, drafts: tuple[int, ...]
    ) -> Iterator[int]:
        """Give the tokens of one row: as long as the drafts are right, and one more."""
        number = state.add_numbers[request_id]
        position = len(state.progress[request_id].output_token_ids)
        for draft in drafts:
            token_id = output_token_id(number, position)
            yield token_id
            known = self._draft(request_id, number, position) if draft == PLACEHOLDER else draft
            if known != token_id:
                return
            position += 1
        yield output_token_id(number, position)

    def propose_drafts(self, state: SchedulerState, step: StepInFlight) -> dict[RequestId, tuple[int, ...]]:
        """Propose what follows the tokens of `step`, which was just taken in, for the scheduler to know.

        There is nothing to tell where the drafts stay in the worker, and none for a request that no longer
        runs.
        """
        output = step.output
        if state.config.async_scheduling or output.skip_drafts or not output.num_spec_tokens_to_schedule:
            return {}
        proposed = {}
        for request_id in output.num_scheduled_tokens:
            progress = state.progress.get(request_id)
            if (
                request_id in step.sampling
                and progress is not None
                and progress.status is RequestStatus.RUNNING
            ):
                number, start = state.add_numbers[request_id], len(progress.output_token_ids)
                positions = range(start, start + output.num_spec_tokens_to_schedule)
                proposed[request_id] = tuple([self._draft(request_id, number, at) for at in positions])
        return proposed

    def _draft(self, request_id: RequestId, add_number: int, position: int) -> int:
        """Give what the drafter expects at `position` of an output."""
        text = f"{request_id}:{position}".encode()
        drawn = int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest())
        is_right = drawn < self.acceptance_rate * 2 ** (8 * _HASH_BYTES)
        return output_token_id(add_number, position if is_right else position + 1)


def _admitted_request_ids(output: SchedulerOutput) -> frozenset[RequestId]:
    """Name the rows that were not running before the step."""
    new = [new.request_id for new in output.scheduled_new_requests]
    return frozenset([*new, *output.scheduled_cached_requests.resumed_request_ids])


def output_token_id(add_number: int, position: int) -> int:
    """Give the token at `position` of the output of the request that was the `add_number`-th added."""
    return OUTPUT_TOKEN_BASE + add_number % NUM_RANGES * POSITIONS_PER_REQUEST + position
