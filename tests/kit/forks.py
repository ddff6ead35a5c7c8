"""Forks of vLLM's scheduler, each with one fault of the kind that a change brings in.

Importing this module imports vLLM.
"""

# ruff: noqa: D102  the docstring of the class says what its method does differently

import time
from collections.abc import Iterable
from time import monotonic
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request, RequestStatus


class PreemptedToTheBack(Scheduler):
    """A preempted request waits behind the others, not before them."""

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        super()._preempt_request(request, timestamp, drop_stale_output)
        self.waiting.remove_request(request)
        self.waiting.add_request(request)


class KeepsBlocksOfAborted(Scheduler):
    """A client that hangs up leaves its last block behind."""

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        ids: Iterable[str] = self.requests if request_ids is None else request_ids
        for request_id in list(ids):
            request = self.requests.get(request_id)
            if request is not None and request.status == RequestStatus.RUNNING:
                for manager in self.kv_cache_manager.coordinator.single_type_managers:
                    manager.req_to_blocks[request_id][-1:] = []
        ended: list[Request] = super().finish_requests(request_ids, finished_status)
        return ended


class OneTokenTooMany(Scheduler):
    """Tokens behind the one that stopped the output are delivered."""

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        all_token_ids = list(new_token_ids)
        _, stopped = super()._update_request_with_output(request, new_token_ids, is_stale)
        return all_token_ids, stopped


class AdmitsWhilePaused(Scheduler):
    """New requests are admitted while new ones are paused."""

    def set_pause_state(self, pause_state: PauseState) -> None:
        super().set_pause_state(
            PauseState.UNPAUSED if pause_state == PauseState.PAUSED_NEW else pause_state
        )


class ForgetsResumedTokens(Scheduler):
    """A resumed request is sent to the V2 runner without what it has said."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        output = super().schedule(throttle_prefills)
        for new in output.scheduled_new_reqs:
            if new.prefill_token_ids is not None:
                new.prefill_token_ids = list(new.prompt_token_ids)
        return output


class SharesAcrossSalts(Scheduler):
    """Requests with different salts share cached blocks."""

    def add_request(self, request: Request) -> None:
        request.cache_salt = None
        request.block_hashes = []
        request.update_block_hashes()
        super().add_request(request)


class KeepsDraftsOfChunks(Scheduler):
    """Drafts for a request in the middle of its prompt are kept."""

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        super().update_draft_token_ids(draft_token_ids)
        for request_id, drafts in zip(
            draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True
        ):
            if request_id in self.requests:
                self.requests[request_id].spec_token_ids = drafts


class StagesTooSoon(AsyncScheduler):
    """A decode is planned again one step too soon where the model runs in stages."""

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        for request_id in scheduler_output.num_scheduled_tokens:
            self.requests[request_id].next_decode_eligible_step -= 1


class EndsOneWithoutGrammar(Scheduler):
    """Where several grammars cannot be compiled, only the first of their requests ends."""

    def update_from_output(self, *arguments: Any) -> Any:
        for request_id in list(self.grammar_compile_error_reqs)[1:]:
            del self.grammar_compile_error_reqs[request_id]
        return super().update_from_output(*arguments)


FORKS = (
    PreemptedToTheBack,
    KeepsBlocksOfAborted,
    OneTokenTooMany,
    AdmitsWhilePaused,
    ForgetsResumedTokens,
    SharesAcrossSalts,
    KeepsDraftsOfChunks,
    StagesTooSoon,
    EndsOneWithoutGrammar,
)
"""All of them."""


class UnchangedFork(Scheduler):
    """A fork in which only the looks have changed."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Plan the next step."""
        return super().schedule(throttle_prefills)


class ReadsItsOwnClock(Scheduler):
    """A fork that reads the time itself, through the module."""

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        del timestamp
        super()._preempt_request(request, time.monotonic(), drop_stale_output)


class ReadsItsOwnClockByName(Scheduler):
    """A fork that reads the time itself, through a name of its own."""

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        del timestamp
        super()._preempt_request(request, monotonic(), drop_stale_output)


class TellsTooLate(Scheduler):
    """What happened to a request is told with a time that is still to come."""

    def update_from_output(self, *arguments: Any) -> Any:
        told = super().update_from_output(*arguments)
        for client in told.values():
            for event in (event for output in client.outputs for event in output.events or ()):
                event.timestamp += 100.0
        return told
