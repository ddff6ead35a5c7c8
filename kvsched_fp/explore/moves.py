"""What may happen next in a situation, and what comes of it.

What the model runner brings: every row that computes the last known token samples one token, and accepts
any number of the drafts that it verifies. A row of a request that has left brings nothing, which makes no
difference.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.explore.situation import Answers, Situation
from kvsched_fp.explore.world import GRAMMAR, PLAIN, STOP, World
from kvsched_fp.grammar import strip_padding
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.machine import Outcome
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.request import RequestStatus
from kvsched_fp.state import SchedulerState

StepFunction: TypeAlias = Callable[[SchedulerState, Event], tuple[SchedulerState, Outcome]]
"""The machine: `kvsched_fp.machine.step`, or one that is to be tried in its place."""


class Moves:
    """Everything that may happen in the situations of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kind_of: dict[RequestId, int] = {}
        """The kind of every request that may come, by id."""
        self._additions: dict[tuple[int, int], AddRequest] = {}
        for number in range(1, world.num_requests + 1):
            for index in range(len(world.kinds)):
                addition = AddRequest(world.make_request(index, number))
                self._additions[index, number] = addition
                self.kind_of[addition.request.request_id] = index
        self._finishes = {request_id: FinishRequests((request_id,)) for request_id in self.kind_of}
        self._schedules = [Schedule(), Schedule(throttle_prefills=True)][: 1 + world.throttles]
        self._resets = [ResetPrefixCache(running) for running in world.resets]
        self._pauses = {
            state: [SetPauseState(to) for to in (PauseState.UNPAUSED, *world.pauses) if to is not state]
            for state in PauseState
        }
        # By step and rows that sample, which are few: the same come back in many situations.
        self._answers: dict[tuple[StepId, Answers], list[Update]] = {}
        self._endings = ((PLAIN,), (STOP,)) if world.stops else ((PLAIN,),)

    def enabled(self, situation: Situation) -> list[Event]:
        """List what may happen next, always in the same order."""
        state = situation.state
        moves: list[Event] = []
        if len(state.in_flight) < self.world.max_in_flight:
            moves.extend(self._schedules)
        if state.in_flight:
            moves.extend(self._updates(situation))
        if self.world.config.num_spec_tokens:
            moves.extend(self._drafts(state))
        moves.extend(self._arrivals(situation))
        for request_id in sorted(state.requests):
            progress = state.progress[request_id]
            if progress.status is RequestStatus.WAITING_FOR_GRAMMAR and progress.grammar is None:
                moves.append(GrammarReady(request_id, GRAMMAR))
                moves.append(GrammarFailed(request_id, "cannot be compiled"))
            if self.world.aborts:
                moves.append(self._finishes[request_id])
        if self.world.pauses:
            moves.extend(self._pauses[state.pause_state])
        moves.extend(self._resets)
        return moves

    def _arrivals(self, situation: Situation) -> Iterator[Event]:
        number = self.world.num_requests - sum(situation.num_to_come) + 1
        for index, num_to_come in enumerate(situation.num_to_come):
            if num_to_come:
                yield self._additions[index, number]
        for request_id, num_left in situation.inputs_left:
            kind = self.kind_of[request_id]
            yield AddRequest(self.world.make_input(kind, request_id, is_end=num_left == 1))

    def _updates(self, situation: Situation) -> list[Update]:
        """Give every answer to the oldest step in flight."""
        progress = situation.state.progress
        rows = tuple([row for row in situation.answers[0] if row[0] in progress])
        step_id = situation.state.in_flight[0].step_id
        updates = self._answers.get((step_id, rows))
        if updates is None:
            updates = self._answers[step_id, rows] = list(self._make_updates(step_id, rows))
        return updates

    def _make_updates(self, step_id: StepId, rows: Answers) -> Iterator[Update]:
        for tokens in itertools.product(*[self._row_tokens(most) for _, most in rows]):
            sampled = {request_id: ids for (request_id, _), ids in zip(rows, tokens, strict=True)}
            yield Update(StepResult(step_id=step_id, sampled_token_ids=sampled))

    def _row_tokens(self, most: int) -> list[tuple[int, ...]]:
        return [(PLAIN,) * num_accepted + end for num_accepted in range(most) for end in self._endings]

    def _drafts(self, state: SchedulerState) -> Iterator[Event]:
        """Give the drafts that may come: between the steps, or for the last step in flight."""
        config = self.world.config
        if config.async_scheduling:
            yield from self._drafts_in_flight(state)
            return
        for request_id in state.running:
            progress = state.progress[request_id]
            is_decoding = not progress.is_prefill_chunk and progress.num_in_flight_tokens == 0
            if is_decoding and not progress.spec_token_ids:
                yield UpdateDrafts({request_id: (PLAIN,) * config.num_spec_tokens})

    def _drafts_in_flight(self, state: SchedulerState) -> Iterator[Event]:
        output = state.in_flight[-1] if state.in_flight else None
        if output is None or output.num_invalid_spec_tokens is not None:
            return
        drafts = {
            request_id: (PLAIN,) * len(row)
            for request_id, row in output.scheduled_spec_token_ids.items()
            if request_id in state.requests
        }
        if drafts:
            yield UpdateDraftsInFlight(output.step_id, drafts)

    def follow(self, situation: Situation, event: Event, step: StepFunction) -> tuple[Situation, Outcome]:
        """Let one of the moves happen. Raises what `step` does."""
        after, outcome = step(situation.state, event)
        _, num_to_come, answers, inputs_left = situation
        match event:
            case Schedule():
                assert isinstance(outcome, SchedulerOutput), f"Schedule gave {outcome!r}"
                answers = (*answers, self._rows_that_sample(situation.state, after, outcome))
            case Update():
                answers = answers[1:]
            case AddRequest(request=request):
                num_to_come, inputs_left = self._after_arrival(situation, request.request_id)
            case UpdateDraftsInFlight():
                answers = (*answers[:-1], _cut_to_valid(answers[-1], after.in_flight[-1]))
        if inputs_left:
            inputs_left = tuple([left for left in inputs_left if left[0] in after.requests])
        return Situation(after, num_to_come, answers, inputs_left), outcome

    def _rows_that_sample(
        self, before: SchedulerState, after: SchedulerState, output: SchedulerOutput
    ) -> Answers:
        rows = []
        for request_id in output.num_scheduled_tokens:
            if not after.progress[request_id].is_prefill_chunk:
                most = 1
                # The drafts of a row that did not run before are padding.
                if output.scheduled_spec_token_ids and request_id in before.running:
                    most += len(output.scheduled_spec_token_ids.get(request_id, ()))
                rows.append((request_id, most))
        return tuple(rows)

    def _after_arrival(
        self, situation: Situation, request_id: RequestId
    ) -> tuple[tuple[int, ...], tuple[tuple[RequestId, int], ...]]:
        """Give what the world remembers of who may come, after one came."""
        _, num_to_come, _, inputs_left = situation
        kind = self.kind_of[request_id]
        if request_id in situation.state.requests:
            counted = [
                (other, num_left - (other == request_id))
                for other, num_left in inputs_left
                if (other, num_left) != (request_id, 1)
            ]
            return num_to_come, tuple(counted)
        num_inputs = self.world.kinds[kind].num_inputs
        if num_inputs:
            inputs_left = (*inputs_left, (request_id, num_inputs + 1))
        less = num_to_come[kind] - 1
        return (*num_to_come[:kind], less, *num_to_come[kind + 1 :]), inputs_left


def _cut_to_valid(answers: Answers, output: SchedulerOutput) -> Answers:
    """Cut what a row may bring to its drafts that are no padding."""
    drafts = output.scheduled_spec_token_ids
    return tuple(
        (request_id, min(most, 1 + len(strip_padding(drafts.get(request_id, ())))))
        for request_id, most in answers
    )
