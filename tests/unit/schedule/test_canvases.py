"""What asynchronous scheduling of diffusion does before a step."""

from typing import Any

import pytest

from kvsched_fp import SchedulerState, schedule, update
from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId, StepId
from tests.unit.worlds import batch, make_config, make_request, make_state, plan_steps

A = RequestId("a")


def diffusion_state(num_steps: int, **fields: Any) -> SchedulerState:
    """Make a state of one request with a canvas of 4 tokens, with so many steps planned."""
    config = make_config(runner_type="diffusion", num_spec_tokens=4, async_scheduling=True)
    return plan_steps(make_state(config, make_request("a", 7, **fields)), num_steps)


@pytest.mark.parametrize(("canvas_length", "width"), [(None, 4), (3, 3), (1, 1)])
def test_row_is_as_wide_as_its_canvas(canvas_length: int | None, width: int) -> None:
    """[S-CANVAS-01] Placeholders are made for the widest canvas, and cut before the next step."""
    state = diffusion_state(1, canvas_length=canvas_length)
    state, output = schedule(state)

    assert {A: (-1,) * width} == dict(output.scheduled_spec_token_ids)
    assert [("a", width)] == batch(output)
    assert width == state.progress[A].num_output_placeholders


@pytest.mark.parametrize(
    ("max_denoise_steps", "batches"), [(None, [4, 4, 4]), (1, [4, 0, 0]), (2, [4, 4, 0])]
)
def test_request_that_ends_with_its_canvas_takes_no_more_steps(
    max_denoise_steps: int | None, batches: list[int]
) -> None:
    """[S-CANVAS-02] Once all steps of the canvas are in flight, more would be thrown away."""
    state = diffusion_state(4, max_denoise_steps=max_denoise_steps)

    assert batches == [output.total_num_scheduled_tokens for output in state.in_flight[1:]]


def test_narrow_canvas_is_counted_by_its_own_width() -> None:
    """[S-CANVAS-01, S-CANVAS-02] Two steps of 3 tokens are all that a canvas of two steps needs."""
    state = diffusion_state(4, canvas_length=3, max_denoise_steps=2)

    assert [3, 3, 0] == [output.total_num_scheduled_tokens for output in state.in_flight[1:]]


def test_model_without_canvases_does_not_ask_for_their_width() -> None:
    """[S-CANVAS-01] What a request says of its canvas means something to a diffusion model alone."""
    config = make_config(num_spec_tokens=4, async_scheduling=True)
    state = plan_steps(make_state(config, make_request("a", canvas_length=1)), 2)

    assert {A: (-1,) * 4} == dict(state.in_flight[1].scheduled_spec_token_ids)


def test_request_goes_on_when_a_step_of_its_canvas_was_rejected() -> None:
    """[S-CANVAS-02] A step that brings no token gives its placeholders up, so one more can follow."""
    state = diffusion_state(4, max_denoise_steps=2)
    for step_id in (1, 2):
        state = update(state, StepResult(step_id=StepId(step_id)))

    assert 4 == state.progress[A].num_output_placeholders
    assert [("a", 4)] == batch(schedule(state)[1])
