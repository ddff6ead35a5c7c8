"""The figures of a run."""

import pytest

from kvsched_fp import SchedulerConfig
from kvsched_fp.workloads.play import StepCost, play
from kvsched_fp.workloads.request import WorkloadRequest
from kvsched_fp.workloads.summary import Figures, Summary, figures_as_mapping
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config


def _figures(workload: list[WorkloadRequest], config: SchedulerConfig | None = None) -> Figures:
    summary = Summary()
    for played in play(config or make_config(), workload, step_cost=StepCost(base=1.0, per_token=0.5)):
        summary.record(played)
    return summary.figures()


def test_counts_requests_steps_and_tokens() -> None:
    """Two requests of 7 and 3 prompt tokens, together in the first step."""
    figures = _figures(make_workload((0.0, 7, 3), (0.0, 3, 2)))

    assert (2, 2, 10) == (figures.num_requests, figures.num_finished, figures.num_events)
    assert (3, 13, 10, 5) == (
        figures.num_steps,
        figures.num_scheduled_tokens,
        figures.num_prompt_tokens,
        figures.num_output_tokens,
    )
    assert (13 / 3, 5 / 3, 2) == (figures.mean_tokens_per_step, figures.mean_running, figures.peak_running)


def test_times_are_simulated_and_count_from_the_arrival() -> None:
    """A first token at the end of the step that computed the prompt, and one step per further token."""
    figures = _figures(make_workload((2.0, 7, 3), (3.0, 3, 1)))

    # r1: steps end at 6.5, then (1 + 3 tokens together with r2) at 9.5, then at 11.
    assert 11.0 == figures.simulated_seconds
    assert {"mean": 5.5, "p50": 4.53125, "p99": 6.5, "max": 6.5} == dict(figures.time_to_first_token)
    assert 2.25 == figures.time_between_tokens["mean"]
    assert 3.0 == figures.time_between_tokens["max"]


def test_counts_preemptions_and_the_peaks() -> None:
    """Two requests that outgrow the pool together."""
    config = make_config(usable_blocks=6)
    figures = _figures(make_workload((0.0, 8, 12), (0.0, 8, 12)), config)

    assert 1 == figures.num_preemptions
    assert (6, 1.0) == (figures.peak_used_blocks, figures.peak_block_usage)
    assert 24 == figures.num_output_tokens


def test_counts_prefix_hits_and_evictions() -> None:
    """The second prompt is the first one's, the third one needs the memory."""
    config = make_config(usable_blocks=6, enable_kv_cache_events=True)
    first, second, third = make_workload((0.0, 9, 1), (50.0, 9, 1), (100.0, 20, 1))
    workload = [
        first,
        WorkloadRequest(
            request_id=second.request_id,
            line=2,
            arrival_time=50.0,
            prompt_runs=first.prompt_runs,
            num_output_tokens=1,
        ),
        third,
    ]
    figures = _figures(workload, config)

    assert 8 / 38 == figures.prefix_cache_hit_rate
    assert 1 == figures.num_evicted_blocks


def test_what_the_configuration_does_not_keep_is_none() -> None:
    """Without statistics there is no hit rate, without events no count of evictions."""
    figures = _figures(make_workload((0.0, 7, 3)), make_config(log_stats=False))

    assert (None, None) == (figures.prefix_cache_hit_rate, figures.num_evicted_blocks)


def test_a_run_that_did_nothing_has_no_means() -> None:
    """Nothing is divided by zero."""
    figures = Summary().figures()

    assert (0, None, None, 0.0) == (
        figures.num_steps,
        figures.mean_tokens_per_step,
        figures.mean_running,
        figures.peak_block_usage,
    )


def test_memory_is_that_of_the_live_requests() -> None:
    """What is kept per request is dropped at its end."""
    summary = Summary()
    most = 0
    for played in play(make_config(), make_workload(*[(10.0 * index, 4, 2) for index in range(50)])):
        summary.record(played)
        most = max(most, len(summary._waiting_since), len(summary._has_output))

    assert 1 == most
    assert (0, 0) == (len(summary._waiting_since), len(summary._has_output))


def test_figures_become_plain_values() -> None:
    """Every field stands in the mapping, under its name."""
    values = figures_as_mapping(_figures(make_workload((0.0, 7, 3))))

    assert values["num_steps"] == 3
    assert pytest.approx(1.5) == values["time_between_tokens"]["mean"]
