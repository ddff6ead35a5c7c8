"""What asynchronous scheduling of diffusion does before a step.

Rules
-----
[S-CANVAS-01] A request whose canvas is narrower than `num_spec_tokens` gets no more placeholders than
    its canvas has tokens.
[S-CANVAS-02] A request that ends with its only canvas is passed over once all steps of that canvas are
    in flight: what more there came would be thrown away.

Upstream: `v1/core/sched/diffusion_scheduler.py::DiffusionAsyncScheduler.schedule`.
"""

from kvsched_fp.config import RunnerType
from kvsched_fp.progress import Progress, evolve_progress
from kvsched_fp.request import Request, canvas_width
from kvsched_fp.schedule.plan import Plan


def prepare_canvases(plan: Plan) -> None:
    """Cut placeholders to the canvas, and hold back requests that are sure to be done."""
    if plan.config.runner_type is not RunnerType.DIFFUSION or not plan.config.async_scheduling:
        return
    for request_id in plan.running:
        request, progress = plan.requests[request_id], plan.progress[request_id]
        width = canvas_width(request, plan.config.num_spec_tokens)
        next_step = progress.next_decode_eligible_step
        if is_sure_to_end(request, progress, plan.config.num_spec_tokens):
            next_step = max(next_step, plan.current_step + 1)
        plan.progress[request_id] = evolve_progress(
            progress,
            spec_token_ids=progress.spec_token_ids[:width],  # [S-CANVAS-01]
            next_decode_eligible_step=next_step,
        )


def is_sure_to_end(request: Request, progress: Progress, num_spec_tokens: int) -> bool:
    """Tell whether all steps of a request's only canvas are in flight [S-CANVAS-02]."""
    max_steps = request.max_denoise_steps
    if max_steps is None:
        return False
    return progress.num_output_placeholders >= max_steps * canvas_width(request, num_spec_tokens)
