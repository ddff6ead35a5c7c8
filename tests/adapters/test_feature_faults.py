"""A fault planted into what else the real scheduler does is seen by its shadow, where it shows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("_reference")

MOST_HISTORIES = 60
"""In how many random histories a fault has to show."""


def one_placeholder_too_many() -> type:
    """Expect one token more than the step can bring, in the fourth step."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def _update_after_schedule(self, output: Any) -> None:
            super()._update_after_schedule(output)
            if self.current_step == 4 and self.running:
                self.running[0].num_output_placeholders += 1

    return Fault


def decoded_too_early() -> type:
    """Let a request take its turn one step too early."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            for request in self.running:
                request.next_decode_eligible_step = max(0, request.next_decode_eligible_step - 1)
            return super().schedule(throttle_prefills)

    return Fault


def drafts_backwards() -> type:
    """Keep drafts in the wrong order."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def update_draft_token_ids(self, draft_token_ids: Any) -> None:
            super().update_draft_token_ids(draft_token_ids)
            for request in self.requests.values():
                request.spec_token_ids = request.spec_token_ids[::-1]

    return Fault


def invalid_drafts_not_counted() -> type:
    """Forget how many drafts the grammar did not allow, or were missing."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def update_draft_token_ids_in_output(self, draft_token_ids: Any, output: Any) -> None:
            super().update_draft_token_ids_in_output(draft_token_ids, output)
            output.num_invalid_spec_tokens = {}

    return Fault


def statistics_of_drafts() -> type:
    """Count every accepted draft twice."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def make_spec_decoding_stats(self, *arguments: Any, **named: Any) -> Any:
            stats = super().make_spec_decoding_stats(*arguments, **named)
            if stats is not None:
                stats.num_accepted_tokens += named["num_accepted_tokens"]
            return stats

    return Fault


def a_row_without_mask() -> type:
    """Leave the last row without its mask."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def get_grammar_bitmask(self, output: Any) -> Any:
            rows = super().get_grammar_bitmask(output)
            if rows is not None:
                rows.structured_output_request_ids.pop()
                rows.num_acceptable_drafts.pop()
            return rows

    return Fault


def a_session_keeps_its_limit() -> type:
    """Let the next input of a session keep the `max_tokens` of the first."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def _update_request_as_session(self, session: Any, update: Any) -> None:
            max_tokens = session.max_tokens
            super()._update_request_as_session(session, update)
            session.max_tokens = max_tokens

    return Fault


def one_adapter_too_many() -> type:
    """Admit one adapter more than configured."""
    from types import SimpleNamespace

    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def schedule(self, throttle_prefills: bool = False) -> Any:
            if self.lora_config is not None and self.current_step == 0:
                self.lora_config = SimpleNamespace(max_loras=self.lora_config.max_loras + 1)
            return super().schedule(throttle_prefills)

    return Fault


def a_preemption_at_another_time() -> type:
    """Write down a preemption with another time than that of the step."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def _preempt_request(self, request: Any, timestamp: float, drop_stale_output: bool = False) -> None:
            super()._preempt_request(request, timestamp + 0.5, drop_stale_output)

    return Fault


def pooled_requests_stay() -> type:
    """Do not end a request with its pooled output."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class Fault(Scheduler):
        def _handle_stopped_request(self, request: Any) -> bool:
            if request.pooling_params is None:
                return super()._handle_stopped_request(request)
            request.status = type(request.status).RUNNING
            return False

    return Fault


FAULTS: dict[str, tuple[Callable[[], type], str]] = {
    "async": (one_placeholder_too_many, "num_output_placeholders"),
    "pipeline": (decoded_too_early, ""),
    "drafts": (drafts_backwards, "spec_token_ids"),
    "drafts in flight": (invalid_drafts_not_counted, "num_invalid_spec_tokens"),
    "statistics": (statistics_of_drafts, "num_accepted_tokens"),
    "grammars": (a_row_without_mask, "grammar_rows"),
    "sessions": (a_session_keeps_its_limit, "max_tokens"),
    "adapters": (one_adapter_too_many, ""),
    "events": (a_preemption_at_another_time, "events"),
    "pooling": (pooled_requests_stay, ""),
}
"""By what it belongs to: the fault, and a word in the path of the first difference, if it has one place."""


def shadow_of(fault: type, real: type, **options: Any) -> Callable[..., Any]:
    """Make a shadow over a faulty scheduler of the kind that is there."""
    from kvsched_fp.adapters.vllm import ShadowScheduler

    bases = (ShadowScheduler, fault) if real in fault.__mro__ else (ShadowScheduler, fault, real)
    kind = type("FaultyShadow", bases, {})
    return lambda **named: kind(**named, **options)


def find(fault: type, folder: Path) -> Any:
    """Play random histories until the shadow sees a difference; give it, or None."""
    from kvsched_fp.adapters.vllm.driving.build import build_scheduler
    from tests.adapters.pairs import Driver, build_like, draw_events, draw_world, raises_as_known

    for seed in range(MOST_HISTORIES):
        config, features, own_rng = draw_world(seed, with_all_features=True)
        real = build_scheduler(config)
        make = shadow_of(fault, type(real), on_difference="record", folder=folder)
        driver = Driver(build_like(real, make), config)
        shadow = driver.scheduler
        for before, event in draw_events(seed, shadow, features, own_rng):
            try:
                driver.apply(event)
                driver.view()
            except (AssertionError, AttributeError, IndexError) as error:
                if shadow.report is None and not raises_as_known(before, event, error):
                    raise
                break
            if shadow.report is not None:
                break
        if shadow.report is not None:
            return shadow.report.divergence.difference
    return None


@pytest.mark.parametrize("area", FAULTS)
def test_fault_is_seen(area: str, tmp_path: Path) -> None:
    """The shadow sees it, and names the field."""
    make_fault, word = FAULTS[area]

    difference = find(make_fault(), tmp_path)

    assert difference is not None
    assert word in difference.path
