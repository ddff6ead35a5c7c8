"""The histories of the conformance suite keep every invariant, but for what is outside of the rules.

They are drawn from a wider world than the machine's: several groups, large pools, any mix of features.
"""

from random import Random

import attrs
from hypothesis import settings

from kvsched_fp import (
    AddRequest,
    Event,
    RequestStatus,
    Schedule,
    SchedulerState,
    Update,
    UpdateDrafts,
    initial_state,
    step,
)
from kvsched_fp.config import RunnerType
from kvsched_fp.ids import RequestId, StepId
from kvsched_fp.invariants import check_full, check_full_step
from kvsched_fp.kvcache.hashing import Blake2BlockHasher
from tests.conformance.histories import History
from tests.conformance.random_configs import draw_config
from tests.conformance.random_features import draw_features, with_features


def test_histories_with_features_keep_every_invariant() -> None:
    """Random histories with features keep every invariant, after every event."""
    for seed in range(settings().max_examples // 2):
        _play(seed)


def _play(seed: int) -> None:
    rng, own_rng = Random(seed), Random(f"features of {seed}")
    features = draw_features(own_rng)
    config = with_features(own_rng, draw_config(rng, Blake2BlockHasher()), features)
    state = initial_state(config)
    history = History(rng, state, features, own_rng)
    sampling: dict[StepId, list[RequestId]] = {}
    for drawn in history.events():
        event = _within_the_rules(state, drawn, sampling)
        after, outcome = step(state, event)
        check_full(after)
        check_full_step(state, event, after, outcome)
        if isinstance(event, Schedule):
            output = after.in_flight[-1]
            sampling[output.step_id] = [
                request_id
                for request_id in output.num_scheduled_tokens
                if not after.progress[request_id].is_prefill_chunk
            ]
        history.observe(after)
        state = after


def _within_the_rules(
    state: SchedulerState, event: Event, sampling: dict[StepId, list[RequestId]]
) -> Event:
    """Turn an event that the invariants do not speak of into one that they do."""
    match event:
        case AddRequest(request=request):
            # An id that something is pending of (deviation D-05).
            request_id = request.request_id
            is_pending = request_id in state.grammar_errors or any(
                request_id in output.num_scheduled_tokens for output in state.in_flight
            )
            if request_id not in state.requests and is_pending:
                new_id = RequestId(f"{request_id} again {state.num_added}")
                return attrs.evolve(event, request=attrs.evolve(request, request_id=new_id))
        case UpdateDrafts(draft_token_ids=drafts):
            return UpdateDrafts({name: drafts[name] for name in drafts if _can_be_drafted(state, name)})
        case Update(result=result):
            # A row with placeholders or drafts that samples and brings nothing.
            sampled = dict(result.sampled_token_ids)
            rows = sampling.pop(result.step_id)
            if state.config.runner_type is RunnerType.GENERATE:
                drafts = state.in_flight[0].scheduled_spec_token_ids
                for request_id in rows:
                    if state.config.async_scheduling or request_id in drafts:
                        sampled[request_id] = sampled.get(request_id) or (0,)
            return attrs.evolve(event, result=attrs.evolve(result, sampled_token_ids=sampled))
    return event


def _can_be_drafted(state: SchedulerState, request_id: RequestId) -> bool:
    """Tell whether somebody may draft: not behind a step in flight, unless it is planned ahead."""
    progress = state.progress[request_id]
    if state.config.async_scheduling:
        return True
    if state.requests[request_id].resumable and progress.status is not RequestStatus.RUNNING:
        return False
    return progress.num_in_flight_tokens == progress.num_stale_output_tokens
