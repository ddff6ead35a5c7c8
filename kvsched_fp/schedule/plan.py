"""The plan of one step: what is left to give out, and what was given to whom.

Rules
-----
[S-BUD-01] A step computes at most `token_budget` tokens, and none while everything is paused.
[S-BUD-02] A step feeds at most `max_num_batched_tokens` positions to the model; that is a budget of
    its own (a drafter may need positions beyond the scheduled tokens).
    With `max_num_new_slots_for_drafting`, each row costs so many positions more, and one that could pay for
    no token of its own is not begun.
[S-BUD-03] What a victim was given earlier in the same step is given back, exactly.
[S-LONG-01] While more than one request is there (running or waiting), one request gets at most
    `long_prefill_token_threshold` tokens in a step. A request that is alone has no limit: there
    is nobody to share the step with.
[S-LONG-02] The adaptive threshold is never below an even share of the input budget.
[S-HOLD-01] On a step with `throttle_prefills`, prompts are held back while anything decodes, unless
    the last scan left requests behind for lack of capacity.
[S-HOLD-02] With `prefill_schedule_interval` n > 1, prompts are held back, on the same two conditions,
    in the n - 1 executed steps behind one that carried prompt. With several data-parallel ranks, the
    engine keeps the cadence for all of them, and this one does nothing.

Upstream: the head of `v1/core/sched/scheduler.py::Scheduler.schedule`.
"""

import sys

from kvsched_fp.events import PauseState, check_flag, check_time
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import BlockIds
from kvsched_fp.request import Request
from kvsched_fp.state import SchedulerState, num_waiting_requests
from kvsched_fp.transient import OpenState


class Plan(OpenState):
    """The transient of one `schedule()`: the opened state, the budgets, and the batch so far."""

    __slots__ = (
        "capacity_bound",
        "current_step",
        "draft_slots",
        "drafts_needed",
        "hold_prefills",
        "input_budget",
        "long_prefill_token_threshold",
        "lora_ids",
        "most_tokens_per_request",
        "new_block_ids",
        "num_sampled_tokens",
        "num_scheduled_tokens",
        "pause_state",
        "prefill_admitted",
        "prefill_scheduled",
        "scheduled_new",
        "scheduled_resumed",
        "scheduled_running",
        "scheduled_spec_token_ids",
        "someone_gave_back",
        "someone_lacks_blocks",
        "someone_preempted",
        "token_budget",
    )

    def __init__(self, state: SchedulerState, *, throttle_prefills: bool, time: float) -> None:
        check_flag("throttle_prefills", throttle_prefills)
        check_time("time", time)
        super().__init__(state, time)
        config = state.config
        self.pause_state = state.pause_state
        self.token_budget = config.token_budget
        if state.pause_state is PauseState.PAUSED_ALL:
            self.token_budget = 0  # [S-BUD-01]
        self.input_budget = config.max_num_batched_tokens  # [S-BUD-02]
        self.long_prefill_token_threshold = _long_prefill_token_threshold(state)
        self.most_tokens_per_request = self.long_prefill_token_threshold or sys.maxsize
        self.hold_prefills = _hold_prefills(state, throttle_prefills=throttle_prefills)
        self.current_step = state.current_step + 1
        self.num_sampled_tokens = config.num_sampled_tokens_per_step
        self.draft_slots = config.num_draft_slots

        self.num_scheduled_tokens: dict[RequestId, int] = {}
        self.new_block_ids: dict[RequestId, BlockIds] = {}
        self.scheduled_running: list[RequestId] = []
        self.scheduled_new: list[RequestId] = []
        self.scheduled_resumed: list[RequestId] = []

        self.scheduled_spec_token_ids: dict[RequestId, tuple[int, ...]] = {}

        # What the phases tell each other.
        self.lora_ids: set[int] = set()
        self.drafts_needed = not config.can_skip_drafts
        self.someone_preempted = False
        self.someone_lacks_blocks = False
        self.someone_gave_back = False
        self.prefill_scheduled = False
        self.prefill_admitted = False
        self.capacity_bound = state.prefill_capacity_bound

    def give(self, request_id: RequestId, num_new_tokens: int, block_ids: BlockIds) -> None:
        """Enter a request into the batch and pay for it."""
        self.num_scheduled_tokens[request_id] = num_new_tokens
        self.new_block_ids[request_id] = block_ids
        self.token_budget -= num_new_tokens
        self.input_budget -= num_new_tokens + self.draft_slots

    @property
    def has_budget(self) -> bool:
        """Whether anything is left for one more row [S-BUD-01, S-BUD-02]."""
        return self.token_budget > 0 and self.input_budget > self.draft_slots

    @property
    def row_budget(self) -> int:
        """The most tokens that the next row may get."""
        return min(self.token_budget, self.input_budget - self.draft_slots)

    def count_loras(self) -> None:
        """Count the adapters of all running requests, whether or not they are in this step [S-WAIT-13]."""
        if self.config.max_loras is not None:
            loras = [self.requests[request_id].lora for request_id in self.running]
            self.lora_ids = {lora.lora_id for lora in loras if lora is not None}

    def has_room_for_lora(self, lora_id: int) -> bool:
        """Tell whether a request with this adapter may run, too."""
        max_loras = self.config.max_loras
        return max_loras is None or lora_id in self.lora_ids or len(self.lora_ids) != max_loras

    def use_lora(self, request: Request) -> None:
        """Count the adapter of a request that was admitted."""
        if self.config.max_loras is not None and request.lora is not None:
            self.lora_ids.add(request.lora.lora_id)

    def passed_over(self, request_id: RequestId) -> None:
        """Hear that a running request gets nothing; for `explain`."""

    def kept_waiting(self, request_id: RequestId) -> None:
        """Hear that a running request waits for blocks and preempts nobody; for `explain`."""

    def gave_way(self, victim_id: RequestId) -> None:
        """Hear that a running request is about to give way to those who wait with blocks; for `explain`."""

    def gave_back(self, holder_id: RequestId, for_id: RequestId) -> None:
        """Hear that one who waits with blocks is about to give them back to another; for `explain`."""

    def preempted(self, victim_id: RequestId, for_id: RequestId, num_new_tokens: int) -> None:
        """Hear that a victim is about to make room for `num_new_tokens` of another; for `explain`."""

    def refused(self, request_id: RequestId, rule_id: str) -> None:
        """Hear that a waiting request is skipped or ends the phase, and by which rule; for `explain`."""

    def take_back(self, request_id: RequestId) -> None:
        """Undo `give` for a running request that became a victim [S-BUD-03]."""
        self.scheduled_running.remove(request_id)
        num_new_tokens = self.num_scheduled_tokens.pop(request_id)
        del self.new_block_ids[request_id]
        self.scheduled_spec_token_ids.pop(request_id, None)
        self.token_budget += num_new_tokens
        self.input_budget += num_new_tokens + self.draft_slots


def _long_prefill_token_threshold(state: SchedulerState) -> int:
    """Give the most tokens of one request in this step; 0 for no limit [S-LONG-01, S-LONG-02]."""
    config = state.config
    num_requests = len(state.running) + num_waiting_requests(state)
    threshold = config.long_prefill_token_threshold
    if threshold == 0 or num_requests <= 1:
        return 0
    if config.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, config.max_num_batched_tokens // num_requests)
    return threshold


def _hold_prefills(state: SchedulerState, *, throttle_prefills: bool) -> bool:
    """Tell whether prompts are held back in this step [S-HOLD-01, S-HOLD-02]."""
    interval = state.config.local_prefill_interval
    num_steps_since_prefill = state.num_executed_steps + 1 - state.last_prefill_step
    in_interval = interval > 1 and num_steps_since_prefill < interval
    return (
        (throttle_prefills or in_interval)
        and not state.prefill_capacity_bound
        and any(not state.progress[request_id].is_prefill_chunk for request_id in state.running)
    )
