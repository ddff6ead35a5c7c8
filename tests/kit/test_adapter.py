"""What an adapter may answer, and what its features leave out."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import (
    AddRequest,
    Emitted,
    FinishRequests,
    InvalidConfig,
    PauseState,
    Request,
    ResetPrefixCache,
    SamplingParams,
    Schedule,
    SchedulerConfig,
    SetPauseState,
    StepResult,
    Update,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.errors import UnsupportedFeature
from kvsched_fp.testing import AdapterError, Feature
from kvsched_fp.testing.adapter import read_answer
from kvsched_fp.testing.features import features_named, fits, needed_by_config, needed_by_event
from kvsched_fp.testing.strategies import World, asked, configs, worlds
from kvsched_fp.trace import encode_emitted
from tests.kit.schedulers import CalledAdapter

UPDATE = Update(StepResult(step_id=1))
REQUEST = Request(request_id="a", prompt_token_ids=[1], sampling_params=SamplingParams(max_tokens=1))
PLAIN = SchedulerConfig(enable_prefix_caching=False, scheduler_reserve_full_isl=False, log_stats=False)


@pytest.mark.parametrize("answer", [Emitted(), encode_emitted(Emitted())])
def test_an_answer_is_a_value_or_json(answer: object) -> None:
    """Both forms are the same."""
    assert Emitted() == read_answer(UPDATE, answer)


@pytest.mark.parametrize(
    ("event", "answer", "message"),
    [
        (UPDATE, None, "answered None to update: emitted: got None"),
        (UPDATE, {"clients": []}, "emitted.kv_events: missing"),
        (Schedule(), {"step_id": 1.5}, "answered {'step_id': 1.5} to schedule: output"),
        (ResetPrefixCache(), 1, "answered 1 to reset_prefix_cache: done: got 1"),
    ],
)
def test_an_answer_that_is_none(event: Any, answer: object, message: str) -> None:
    """The error names the event, the field and what is allowed."""
    with pytest.raises(AdapterError) as caught:
        read_answer(event, answer)

    assert message in str(caught.value)


def test_nothing_comes_of_some_events() -> None:
    """Whatever is answered to them is ignored."""
    assert read_answer(AddRequest(REQUEST), "thanks") is None


def test_an_event_without_a_method() -> None:
    """An event that an adapter has no method for is named, with what was asked."""

    class NeverPauses(CalledAdapter):
        """A scheduler that says it can pause, and cannot."""

        set_pause_state = CalledAdapter.__mro__[1].set_pause_state

    adapter = NeverPauses()
    adapter.start(PLAIN)
    with pytest.raises(UnsupportedFeature, match=r"set_pause_state\(<PauseState.PAUSED_ALL"):
        adapter.happen(SetPauseState(PauseState.PAUSED_ALL))


def test_features_have_names() -> None:
    """A feature may be given by its name."""
    assert frozenset({Feature.PAUSE, Feature.DRAFTS}) == features_named(["pause", Feature.DRAFTS])


NO_FEATURES = (
    (["pause", "magic"], "'magic'; allowed: any of priority, "),
    ([[]], r"\[\]; allowed: any of priority, "),
    ("pause", "'pause'; allowed: a set or a list of Feature"),
    (Feature.PAUSE, "<Feature.PAUSE: 'pause'>; allowed: a set or a list"),
    (None, "None; allowed: a set or a list"),
    (iter(["pause"]), "<list_iterator .*; allowed: a set or a list"),
)
"""What names no features, and what is said of it."""


@pytest.mark.parametrize(("features", "message"), NO_FEATURES)
@pytest.mark.parametrize("ask", [features_named, configs, worlds])
def test_what_names_no_features(ask: Any, features: Any, message: str) -> None:
    """Anything else is refused at once, by the strategies too, with what is allowed."""
    with pytest.raises(InvalidConfig, match=f"features: got {message}"):
        ask(features)


@given(configs(["priority"]), configs([]))
def test_strategies_take_names(by_name: SchedulerConfig, plain: SchedulerConfig) -> None:
    """Lists and names do what sets of features do."""
    assert needed_by_config(by_name) <= {Feature.PRIORITY}
    assert frozenset() == needed_by_config(plain)


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"policy": "priority"}, Feature.PRIORITY),
        ({"enable_prefix_caching": True}, Feature.PREFIX_CACHING),
        ({"max_num_scheduled_tokens": 9}, Feature.TOKEN_BUDGET),
        ({"num_spec_tokens": 2}, Feature.DRAFTS),
        ({"runner_type": RunnerType.POOLING}, Feature.POOLING),
        ({"kv_cache_groups": PLAIN.kv_cache_groups * 2, "num_blocks": 2000}, Feature.SEVERAL_GROUPS),
        ({"log_stats": True}, Feature.STATISTICS),
    ],
)
def test_what_a_configuration_needs(changes: dict[str, Any], feature: Feature) -> None:
    """Each field belongs to a feature."""
    assert frozenset() == needed_by_config(PLAIN)
    assert frozenset({feature}) == needed_by_config(attrs.evolve(PLAIN, **changes))


@pytest.mark.parametrize(
    ("event", "features"),
    [
        (AddRequest(REQUEST), set()),
        (
            AddRequest(attrs.evolve(REQUEST, resumable=True, client_index=1)),
            {"sessions", "several_clients"},
        ),
        (AddRequest(attrs.evolve(REQUEST, cache_salt="x")), {"prefix_caching"}),
        (Schedule(throttle_prefills=True), {"data_parallel"}),
        (SetPauseState(PauseState.UNPAUSED), {"pause"}),
        (ResetPrefixCache(), {"reset"}),
        (FinishRequests(None), set()),
    ],
)
def test_what_an_event_needs(event: Any, features: set[str]) -> None:
    """An event that needs a feature does not fit a scheduler without it."""
    needed = features_named(features)

    assert needed == needed_by_event(event)
    assert fits(PLAIN, [event], needed)
    assert fits(PLAIN, [event], frozenset()) == (not needed)


@given(configs(frozenset()))
def test_plain_configurations_need_nothing(config: SchedulerConfig) -> None:
    """Without features, every configuration that is drawn is a plain one."""
    assert frozenset() == needed_by_config(config)


@given(st.sets(st.sampled_from(list(Feature))).map(frozenset).flatmap(worlds), st.data())
def test_worlds_keep_to_the_features(world: World, data: st.DataObject) -> None:
    """Configuration and requests need only what is allowed."""
    requests = [world.make_request(number, wish) for number, wish in enumerate(data.draw(asked()))]

    assert fits(world.config, map(AddRequest, requests), world.allowed)
