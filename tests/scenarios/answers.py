"""What the model of a scenario answers, where the script does not say it.

Position p of the k-th request is token 1000 * k + p. A row that finished its prompt samples the next token
of its request, and accepts none of its drafts.
"""

import attrs

from kvsched_fp import RunnerType, SchedulerOutput, SchedulerState
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.progress import num_known_tokens


def own_token(number: int, position: int) -> int:
    """Give the token of the `number`-th request at a position."""
    return 1000 * number + position


@attrs.frozen
class Row:
    """A row that samples."""

    number: int
    """The how many-th request it is."""
    position: int
    """Its known tokens when the step was planned."""
    drafts: tuple[int, ...]
    """Its drafts; -1 where only the worker knows."""


class Model:
    """A stub of a model."""

    def __init__(self) -> None:
        self.numbers: dict[RequestId, int] = {}
        self._rows: dict[StepId, dict[RequestId, Row]] = {}

    def run(self, state: SchedulerState, output: SchedulerOutput) -> None:
        """Note which rows of a step, just planned, have nothing left to compute."""
        self._rows[output.step_id] = {
            request_id: Row(
                self.numbers[request_id],
                num_known_tokens(state.requests[request_id], state.progress[request_id]),
                output.scheduled_spec_token_ids.get(request_id, ()),
            )
            for request_id in output.num_scheduled_tokens
            if not state.progress[request_id].is_prefill_chunk
        }

    def sample(
        self, state: SchedulerState, step_id: StepId, request_id: RequestId, num_accepted: int = 0
    ) -> tuple[int, ...]:
        """Accept some drafts of a row, and sample what stands behind them.

        Where only the worker knows a draft, it is the token that stands there anyway.
        """
        row = self._rows[step_id][request_id]
        position = row.position
        if request_id in state.requests and self.numbers[request_id] == row.number:
            # Steps before this one may have brought tokens since it was planned.
            position = num_known_tokens(state.requests[request_id], state.progress[request_id])
        own = [own_token(row.number, position + index) for index in range(num_accepted + 1)]
        drafts = enumerate(row.drafts[:num_accepted])
        accepted = [own[index] if draft < 0 else draft for index, draft in drafts]
        return (*accepted, *own[len(accepted) :])

    def answer(
        self, state: SchedulerState, step_id: StepId
    ) -> tuple[dict[RequestId, tuple[int, ...]], tuple[RequestId, ...]]:
        """Give the tokens of each row of a step, and the rows that bring a pooled output."""
        rows = self._rows.get(step_id, {})
        if state.config.runner_type is RunnerType.GENERATE:
            return {request_id: self.sample(state, step_id, request_id) for request_id in rows}, ()
        return {}, tuple(rows) if state.config.runner_type is RunnerType.POOLING else ()
