"""The figures of a run."""

import attrs
import pytest

from kvsched_fp import SchedulerConfig, Update
from kvsched_fp.workloads.clock import StepCost
from kvsched_fp.workloads.play import play
from kvsched_fp.workloads.request import WorkloadRequest
from kvsched_fp.workloads.stub import StubModel
from kvsched_fp.workloads.summary import Figures, Summary, figures_as_mapping
from tests.unit.workloads.helpers import make_workload
from tests.unit.worlds import make_config


def _figures(
    workload: list[WorkloadRequest], config: SchedulerConfig | None = None, model: StubModel | None = None
) -> Figures:
    summary = Summary()
    cost = StepCost(base=1.0, per_token=0.5)
    for played in play(config or make_config(), workload, step_cost=cost, model=model):
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


def test_figures_of_features_that_are_off_are_left_out() -> None:
    """So what a plain run prints stays what it was."""
    values = figures_as_mapping(_figures(make_workload((0.0, 7, 3))))

    assert set() == {"steps_in_flight", "drafts"} & values.keys()
    assert {"steps_in_flight", "drafts"} == set(figures_as_mapping(Summary().figures())) ^ {
        field.name for field in attrs.fields(Figures)
    }


def test_tokens_that_come_together_have_no_time_between_them() -> None:
    """So the mean is the time of the output per token, with speculation as without."""
    config = make_config(num_spec_tokens=3)
    figures = _figures(make_workload((0.0, 7, 9)), config, StubModel(1.0))

    # The first token at 4.5, four at 7.5, four at 10.5.
    assert 9 == figures.num_output_tokens
    assert {"mean": 6.0 / 8, "p50": 0.0, "p99": 3.0, "max": 3.0} == dict(figures.time_between_tokens)


def test_counts_the_drafts() -> None:
    """Right at positions 1 and 3, wrong at 2 and 4: each of two rows of three drafts has one accepted."""
    config = make_config(num_spec_tokens=3)
    drafts = _figures(make_workload((0.0, 7, 4)), config, StubModel(0.5)).drafts

    assert drafts is not None
    assert {
        "num_draft_tokens": 6,
        "num_accepted_tokens": 2,
        "acceptance_rate": 2 / 6,
        "mean_acceptance_length": 2.0,
    } == dict(drafts)


@pytest.mark.parametrize("changes", [{}, {"async_scheduling": True}, {"pipeline_parallel_size": 2}])
def test_counts_the_drafts_as_the_statistics_of_the_scheduler_do(changes: dict[str, bool]) -> None:
    """Padding and drafts behind the end of an output included."""
    config = make_config(usable_blocks=16, num_spec_tokens=2, max_num_batched_tokens=24, **changes)
    summary, num_rows, num_drafts, num_accepted = Summary(), 0, 0, 0
    workload = make_workload(*[(0.5 * line, 5 + line % 9, 7 + line % 5) for line in range(12)])
    for played in play(config, workload):
        summary.record(played)
        if isinstance(played.event, Update):
            told = next(iter(played.after.emitted.clients.values()))
            stats = told.scheduler_stats and told.scheduler_stats.spec_decoding_stats
            if stats is not None:
                num_rows += stats.num_drafts
                num_drafts += stats.num_draft_tokens
                num_accepted += stats.num_accepted_tokens
    drafts = summary.figures().drafts

    assert num_accepted > 0
    assert drafts is not None
    assert (num_drafts, num_accepted, (num_rows + num_accepted) / num_rows) == (
        drafts["num_draft_tokens"],
        drafts["num_accepted_tokens"],
        drafts["mean_acceptance_length"],
    )


def test_counts_the_steps_in_flight() -> None:
    """Empty ones, which do nothing, not counted."""
    config = make_config(pipeline_parallel_size=3, max_num_batched_tokens=8)
    one = _figures(make_workload((0.0, 8, 2)), config).steps_in_flight
    two = _figures(make_workload((0.0, 8, 1), (0.0, 8, 1)), config).steps_in_flight

    assert ({"mean": 1.0, "max": 1}, {"mean": 1.5, "max": 2}) == (one, two)
