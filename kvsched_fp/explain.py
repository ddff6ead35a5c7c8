"""Why each request gets what it gets: the same decisions as `schedule()`, with a recorder.

The phases tell the plan what they decide, in calls that do nothing in a real step. Here the plan listens,
and puts the numbers and the rule of each decision into a `Reason`. No decision is made in this file.
"""

from kvsched_fp.config import RunnerType, SchedulingPolicy
from kvsched_fp.events import PauseState
from kvsched_fp.grammar import GrammarError
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.allocation import count_missing_blocks
from kvsched_fp.outputs import BlockIds, Reason
from kvsched_fp.progress import Progress, num_known_tokens
from kvsched_fp.request import Request, RequestStatus
from kvsched_fp.schedule import run_phases
from kvsched_fp.schedule.canvases import is_sure_to_end
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.running import waits
from kvsched_fp.state import SchedulerState


def explain(state: SchedulerState, *, throttle_prefills: bool = False) -> tuple[Reason, ...]:
    """Give one reason per live request, for the step that `schedule(state)` would plan.

    Requests come in the order in which they are looked at; those that are not reached come last.
    Raises `InvalidEvent` if `throttle_prefills` is not a bool.
    """
    plan = _ExplainingPlan(state, throttle_prefills=throttle_prefills)
    run_phases(plan)
    for request_id in (*plan.running, *plan.kv_holding_waiting, *plan.waiting):
        if request_id not in plan.reasons:
            plan.explain_not_reached(request_id)
    return tuple(plan.reasons.values())


class _ExplainingPlan(Plan):
    """A plan that notes why."""

    __slots__ = ("phase_ended_by", "reasons")

    def __init__(self, state: SchedulerState, *, throttle_prefills: bool) -> None:
        super().__init__(state, throttle_prefills=throttle_prefills, time=0.0)
        self.reasons: dict[RequestId, Reason] = {}
        # The rule by which a waiting request ended the waiting phase, if one did.
        self.phase_ended_by: str | None = None

    def give(self, request_id: RequestId, num_new_tokens: int, block_ids: BlockIds) -> None:
        rule_id, text = self._why_so_many(request_id, num_new_tokens)
        self._note(request_id, num_new_tokens, rule_id, text)
        super().give(request_id, num_new_tokens, block_ids)

    def _why_so_many(self, request_id: RequestId, num_new_tokens: int) -> tuple[str, str]:
        """Find the limit that a request's tokens met."""
        request, progress = self.requests[request_id], self.progress[request_id]
        if request_id in self.scheduled_running:
            rule_id, behind = "S-RUN-02", ""
            num_drafts = len(progress.spec_token_ids)
            num_lacking = _num_lacking(request, progress)
        else:
            rule_id, behind = "S-WAIT-05", f", after {progress.num_computed_tokens} found or computed"
            num_drafts = 0
            num_lacking = num_known_tokens(request, progress) - progress.num_computed_tokens
        if num_new_tokens > num_lacking:
            num_padding = num_new_tokens - num_lacking
            return "S-DRAFT-04", f"gets its last token{behind}, padded with {num_padding} placeholders"
        drafts = f", {num_drafts} of them drafts" if num_drafts else ""
        lacks = f"{num_lacking} tokens that it lacks{drafts}{behind}"
        if num_new_tokens == num_lacking:
            return rule_id, f"gets all {lacks}"
        limit_rule, limit = self._limit_met(request, progress, num_new_tokens)
        return limit_rule or rule_id, f"gets {num_new_tokens} of the {lacks}: {limit}"

    def _limit_met(
        self, request: Request, progress: Progress, num_new_tokens: int
    ) -> tuple[str | None, str]:
        """Name the rule of the limit, if it has one of its own, and the limit."""
        limits = (
            ("S-LONG-01", "the long-prefill threshold", self.long_prefill_token_threshold),
            ("S-BUD-01", "what was left of the token budget", self.token_budget),
            ("S-BUD-02", "what was left of the input budget", self.input_budget - self.draft_slots),
        )
        for rule_id, name, limit in limits:
            if num_new_tokens == limit:
                return rule_id, f"{name} is {limit}"
        lookahead = self.config.num_prefill_lookahead_tokens
        num_remaining = num_known_tokens(request, progress) - progress.num_computed_tokens - num_new_tokens
        if lookahead and num_remaining == lookahead:
            return "S-DRAFT-03", f"the drafter reads {lookahead} known tokens ahead"
        return None, f"max_model_len is {self.config.max_model_len}"

    def passed_over(self, request_id: RequestId) -> None:
        request, progress = self.requests[request_id], self.progress[request_id]
        rule_id, text = self._why_passed_over(request, progress)
        self._note(request_id, 0, rule_id, text)

    def _why_passed_over(self, request: Request, progress: Progress) -> tuple[str, str]:
        match waits(self, request, progress):
            case "S-RUN-04":
                return "S-RUN-04", "is in the middle of its prompt, and prompts are held back"
            case "S-RUN-07":
                max_tokens = request.sampling_params.max_tokens
                return "S-RUN-07", f"its steps in flight are sure to reach max_tokens = {max_tokens}"
            case "S-RUN-08":
                return self._why_not_yet(request, progress)
        if _num_lacking(request, progress) <= 0:
            num_known = num_known_tokens(request, progress)
            return "S-RUN-03", f"all its {num_known} known tokens are computed or in flight"
        max_model_len = self.config.max_model_len
        if progress.num_computed_tokens + self.num_sampled_tokens >= max_model_len:
            return "S-RUN-02", f"a sampled token would not fit into max_model_len = {max_model_len}"
        lookahead = self.config.num_prefill_lookahead_tokens
        return "S-DRAFT-03", f"no piece would leave {lookahead} known tokens for the drafter to read ahead"

    def _why_not_yet(self, request: Request, progress: Progress) -> tuple[str, str]:
        """Tell why a request may not be decoded before a later step."""
        config = self.config
        if config.runner_type is RunnerType.DIFFUSION and is_sure_to_end(
            request, progress, config.num_spec_tokens
        ):
            text = f"all {request.max_denoise_steps} steps of its only canvas are in flight"
            return "S-CANVAS-02", text
        next_step = progress.next_decode_eligible_step
        text = f"may be decoded again from step {next_step} on, this is step {self.current_step}"
        return "S-RUN-08", text

    def kept_waiting(self, request_id: RequestId) -> None:
        text = "waits: its blocks do not fit, and all who would give way hold too few"
        self._note(request_id, 0, "S-PRE-07", text)

    def gave_way(self, victim_id: RequestId) -> None:
        text = "preempted: nobody who runs has the blocks to go on, and one that waits with blocks could"
        self._note(victim_id, 0, "S-PRE-08", text)

    def gave_back(self, holder_id: RequestId, for_id: RequestId) -> None:
        self._note(holder_id, 0, "S-PRE-09", f"gives its blocks back to {for_id!r}, since nobody runs")

    def preempted(self, victim_id: RequestId, for_id: RequestId, num_new_tokens: int) -> None:
        num_tokens = (
            self.progress[for_id].num_computed_tokens + num_new_tokens + self.config.num_lookahead_tokens
        )
        num_missing = sum(count_missing_blocks(self.kv, self.kv.tables[for_id], num_tokens) or ())
        need = f"{for_id} needed {num_missing} blocks, {self.kv.pool.num_free_blocks} free"
        if victim_id == for_id:
            self._note(victim_id, 0, "S-PRE-05", f"preempted itself: {need}")
        else:
            fcfs = self.config.policy is SchedulingPolicy.FCFS
            self._note(victim_id, 0, "S-PRE-01" if fcfs else "S-PRE-02", f"preempted: {need}")

    def refused(self, request_id: RequestId, rule_id: str) -> None:
        if rule_id in _ENDS_PHASE:
            self.phase_ended_by = rule_id
            text = f"ends the phase: {_ENDS_PHASE[rule_id]}"
        elif rule_id == "S-WAIT-12":
            text = f"skipped: {_what_it_waits_for(self.progress[request_id])}"
        else:
            text = f"skipped: {_SKIPS[rule_id]}"
        self._note(request_id, 0, rule_id, text)

    def explain_not_reached(self, request_id: RequestId) -> None:
        """Note why a request was not looked at."""
        num_active = len(self.running) + self.num_waiting_for_input
        if self.pause_state is PauseState.PAUSED_ALL:
            self._note(request_id, 0, "S-BUD-01", "not reached: everything is paused")
        elif request_id in self.running:
            self._note(request_id, 0, "S-RUN-01", "not reached: a budget is used up, or the phase ended")
        elif self.someone_preempted:
            self._note(request_id, 0, "S-WAIT-01", "not reached: the step preempted somebody")
        elif self.someone_lacks_blocks:
            self._note(request_id, 0, "S-WAIT-01", "not reached: a running request lacks blocks")
        elif self.someone_gave_back:
            self._note(request_id, 0, "S-PRE-09", "not reached: somebody gave blocks back in the step")
        elif self.phase_ended_by is not None:
            text = f"not reached: the phase ended at a request ahead of it [{self.phase_ended_by}]"
            self._note(request_id, 0, self.phase_ended_by, text)
        elif self.has_budget and num_active < self.config.max_num_active:
            self._note(request_id, 0, "S-WAIT-02", "not reached: new requests are paused")
        else:
            self._note(request_id, 0, "S-WAIT-03", "not reached: a budget or the active limit is used up")

    def _note(self, request_id: RequestId, num_tokens: int, rule_id: str, text: str) -> None:
        self.reasons.pop(request_id, None)
        self.reasons[request_id] = Reason(request_id, num_tokens, rule_id, text)


def _num_lacking(request: Request, progress: Progress) -> int:
    """Count what a running request may compute: what is known, will be known, or is a draft [S-RUN-02]."""
    num_known = num_known_tokens(request, progress)
    num_to_come = progress.num_output_placeholders + len(progress.spec_token_ids)
    return num_known + num_to_come - progress.num_computed_tokens


def _what_it_waits_for(progress: Progress) -> str:
    """Tell what from outside a request waits for [S-WAIT-12]."""
    if progress.status is RequestStatus.WAITING_FOR_INPUT:
        return "it waits for the next input of its session"
    if isinstance(progress.grammar, GrammarError):
        return "there is no grammar for it, and the next update ends it"
    return "it waits for its grammar"


_SKIPS = {
    "S-WAIT-04": "its stale output is still in flight and will be delivered",
    "S-WAIT-13": "its adapter would be one too many among the running requests",
    "S-DRAFT-03": "no piece of its prompt that fits leaves the drafter enough to read ahead",
}
"""Why a waiting request is skipped; those behind it go on."""

_ENDS_PHASE = {
    "S-WAIT-06": "its prompt does not fit whole, and chunked prefill is off",
    "S-WAIT-07": "its blocks do not fit",
    "S-WAIT-08": "it has a prompt to compute, and prompts are held back",
    "S-DRAFT-04": "padded to the rows of the decodes, it does not fit into what is left",
}
"""Why a waiting request ends the phase."""
