"""Why each request gets what it gets: the same decisions as `schedule()`, with a recorder.

The phases tell the plan what they decide, in calls that do nothing in a real step. Here the plan listens,
and puts the numbers and the rule of each decision into a `Reason`. No decision is made in this file.
"""

from kvsched_fp.config import SchedulingPolicy
from kvsched_fp.events import PauseState
from kvsched_fp.ids import RequestId
from kvsched_fp.kvcache.allocation import count_missing_blocks
from kvsched_fp.outputs import BlockIds, Reason
from kvsched_fp.request import num_known_tokens
from kvsched_fp.schedule import run_phases
from kvsched_fp.schedule.plan import Plan
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
        progress = self.progress[request_id]
        num_lacking = num_known_tokens(self.requests[request_id], progress) - progress.num_computed_tokens
        rule_id, text = self._why_so_many(request_id, num_new_tokens, num_lacking)
        self._note(request_id, num_new_tokens, rule_id, text)
        super().give(request_id, num_new_tokens, block_ids)

    def _why_so_many(self, request_id: RequestId, num_new_tokens: int, num_lacking: int) -> tuple[str, str]:
        """Find the limit that a request's tokens met."""
        admitted = request_id not in self.scheduled_running
        rule_id = "S-WAIT-05" if admitted else "S-RUN-02"
        cached = (
            f", after {self.progress[request_id].num_computed_tokens} found or computed" if admitted else ""
        )
        if num_new_tokens >= num_lacking:
            return rule_id, f"gets all {num_lacking} tokens that it lacks{cached}"
        of = f"gets {num_new_tokens} of the {num_lacking} tokens that it lacks{cached}"
        limits = (
            ("S-LONG-01", "the long-prefill threshold", self.long_prefill_token_threshold),
            ("S-BUD-01", "what was left of the token budget", self.token_budget),
            ("S-BUD-02", "what was left of the input budget", self.input_budget),
        )
        for limit_rule, name, limit in limits:
            if num_new_tokens == limit:
                return limit_rule, f"{of}: {name} is {limit}"
        return rule_id, f"{of}: max_model_len is {self.config.max_model_len}"

    def passed_over(self, request_id: RequestId) -> None:
        progress = self.progress[request_id]
        num_known = num_known_tokens(self.requests[request_id], progress)
        if self.hold_prefills and progress.is_prefill_chunk:
            self._note(
                request_id, 0, "S-RUN-04", "is in the middle of its prompt, and prompts are held back"
            )
        elif num_known <= progress.num_computed_tokens:
            text = f"all its {num_known} known tokens are computed or in flight"
            self._note(request_id, 0, "S-RUN-03", text)
        else:
            text = f"a sampled token would not fit into max_model_len = {self.config.max_model_len}"
            self._note(request_id, 0, "S-RUN-02", text)

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
        self._note(request_id, 0, rule_id, _REFUSALS[rule_id])
        if rule_id != "S-WAIT-04":
            self.phase_ended_by = rule_id

    def explain_not_reached(self, request_id: RequestId) -> None:
        """Note why a request was not looked at."""
        if self.pause_state is PauseState.PAUSED_ALL:
            self._note(request_id, 0, "S-BUD-01", "not reached: everything is paused")
        elif request_id in self.running:
            self._note(request_id, 0, "S-RUN-01", "not reached: a budget is used up, or the phase ended")
        elif self.someone_preempted:
            self._note(request_id, 0, "S-WAIT-01", "not reached: the step preempted somebody")
        elif self.phase_ended_by is not None:
            text = f"not reached: the phase ended at a request ahead of it [{self.phase_ended_by}]"
            self._note(request_id, 0, self.phase_ended_by, text)
        elif (
            self.token_budget > 0
            and self.input_budget > 0
            and len(self.running) < self.config.max_num_active
        ):
            self._note(request_id, 0, "S-WAIT-02", "not reached: new requests are paused")
        else:
            self._note(request_id, 0, "S-WAIT-03", "not reached: a budget or the active limit is used up")

    def _note(self, request_id: RequestId, num_tokens: int, rule_id: str, text: str) -> None:
        self.reasons.pop(request_id, None)
        self.reasons[request_id] = Reason(request_id, num_tokens, rule_id, text)


_REFUSALS = {
    "S-WAIT-04": "skipped: its stale output is still in flight and will be delivered",
    "S-WAIT-06": "ends the phase: its prompt does not fit whole, and chunked prefill is off",
    "S-WAIT-07": "ends the phase: its blocks do not fit",
    "S-WAIT-08": "ends the phase: it has a prompt to compute, and prompts are held back",
}
