"""`schedule()`: which request computes how many tokens in which blocks, in the next step.

Rules
-----
[S-STEP-01] A step is planned in two phases: the running requests first, then the waiting ones.
[S-STEP-03] Every output is in flight until an update takes it, an empty one too.
[S-STEP-04] Only a step that scheduled something counts as executed; one that carried prompt restarts the
    prefill interval [S-HOLD-02], even if that prompt was then taken back from a victim.

Upstream: `v1/core/sched/scheduler.py::Scheduler.schedule`, `_update_after_schedule`.
"""

from kvsched_fp.ids import StepId
from kvsched_fp.outputs import SchedulerOutput
from kvsched_fp.schedule.advance import count_as_computed
from kvsched_fp.schedule.canvases import prepare_canvases
from kvsched_fp.schedule.holders import give_way_to_holders
from kvsched_fp.schedule.output import make_output
from kvsched_fp.schedule.plan import Plan
from kvsched_fp.schedule.running import schedule_running
from kvsched_fp.schedule.waiting import schedule_waiting
from kvsched_fp.state import SchedulerState

__all__ = ["run_phases", "schedule"]


def schedule(
    state: SchedulerState, *, throttle_prefills: bool = False, time: float = 0.0
) -> tuple[SchedulerState, SchedulerOutput]:
    """Plan the next step. A step in which nothing can be done is empty.

    `throttle_prefills` asks to hold prompts back in this step [S-HOLD-01]; `time` is put into the events of
    requests. Raises `InvalidEvent` if `throttle_prefills` is not a bool or `time` not finite, and for
    nothing else.
    """
    plan = Plan(state, throttle_prefills=throttle_prefills, time=time)
    run_phases(plan)
    output = make_output(plan, StepId(state.current_step + 1), state.prev_step_request_ids)
    output = count_as_computed(plan, output)
    return _close(plan, state, output), output


def run_phases(plan: Plan) -> None:
    """Decide who gets what [S-STEP-01]."""
    prepare_canvases(plan)
    schedule_running(plan)
    if plan.someone_lacks_blocks:
        give_way_to_holders(plan)
    schedule_waiting(plan)


def _close(plan: Plan, state: SchedulerState, output: SchedulerOutput) -> SchedulerState:
    """Freeze the plan into the next state [S-STEP-03, S-STEP-04]."""
    num_executed_steps = state.num_executed_steps + (output.total_num_scheduled_tokens > 0)
    carried_prompt = plan.prefill_scheduled or plan.prefill_admitted
    restarts_interval = carried_prompt and state.config.local_prefill_interval > 1
    keeps_batch = not state.config.use_v2_model_runner
    return plan.close(
        in_flight=(*state.in_flight, output),
        current_step=output.step_id,
        num_executed_steps=num_executed_steps,
        last_prefill_step=num_executed_steps if restarts_interval else state.last_prefill_step,
        prefill_capacity_bound=plan.capacity_bound,
        finished_request_ids=(),
        preempted_request_ids=(),
        prev_step_request_ids=(
            frozenset(output.num_scheduled_tokens) if keeps_batch else state.prev_step_request_ids
        ),
    )
