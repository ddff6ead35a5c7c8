"""For every invariant about drafts and overlapping steps, a step that breaks it and little else."""

from collections.abc import Callable
from typing import Any

import attrs

from kvsched_fp import AddRequest, Schedule, UpdateDrafts, UpdateDraftsInFlight
from kvsched_fp.invariants import Step
from kvsched_fp.ordered import OrderedMap
from tests.unit.worlds import make_config, make_request, run_together

from .good import (
    A,
    Changed,
    answer,
    change,
    change_output,
    change_told,
    run,
    with_progress,
    with_request,
)
from .good_features import (
    ahead_state,
    apply,
    drafting_state,
    lookahead_state,
    pipelined_state,
    verifying_state,
)


def _verifying() -> Step:
    """Make a step in which `a` verifies the drafts 1 and 2, beside `b`."""
    return run(drafting_state(), Schedule(time=2.0))


def _verified() -> Step:
    """Let the first draft of `a` be accepted."""
    return run(verifying_state(), answer(verifying_state(), a=(1, 9)))


def _ahead(**changes: Any) -> Step:
    """Make a step for `a` behind another one that is in flight."""
    return run(ahead_state(1, **changes), Schedule())


def _other_drafts_than_there_were() -> Changed:
    return change_output(_verifying(), scheduled_spec_token_ids=OrderedMap({A: (1, 1)}))


def _more_drafts_than_are_proposed() -> Changed:
    sound = _verifying()
    config = attrs.evolve(sound.before.config, num_spec_tokens=1)
    return change(sound, before=attrs.evolve(sound.before, config=config))


def _drafts_that_stay() -> Changed:
    sound = _verifying()
    return change(sound, after=with_progress(sound.after, A, spec_token_ids=(1, 2)))


def _fewer_drafts_than_the_batch_allows() -> Changed:
    return change_output(_verifying(), num_spec_tokens_to_schedule=1)


def _skipped_though_one_can_use_them() -> Changed:
    return change_output(_verifying(), skip_drafts=True)


def _ends_where_the_drafter_reads() -> Changed:
    sound = run(lookahead_state(), Schedule())
    # The row uses all of the budget, so that nothing else is wrong.
    config = attrs.evolve(sound.before.config, num_prefill_lookahead_tokens=4, max_num_scheduled_tokens=2)
    return change(sound, before=attrs.evolve(sound.before, config=config))


def _padded_though_the_size_depends_on_the_batch() -> Changed:
    prefix = tuple(range(8))
    state = run_together(make_config(num_spec_tokens=2), make_request("a", 9, tokens=prefix))
    sound = run(apply(state, AddRequest(make_request("b", 9, tokens=prefix))), Schedule())
    config = attrs.evolve(sound.before.config, num_spec_tokens_per_batch_size=((1, 9, 2),))
    return change(sound, before=attrs.evolve(sound.before, config=config))


def _hit_that_is_not_given_up() -> Changed:
    prefix = tuple(range(8))
    state = run_together(make_config(), make_request("a", 9, tokens=prefix))
    sound = run(apply(state, AddRequest(make_request("b", 9, tokens=prefix))), Schedule())
    config = attrs.evolve(sound.before.config, drop_eagle_block=True)
    return change(sound, before=attrs.evolve(sound.before, config=config))


def _placeholder_too_few() -> Changed:
    sound = _ahead()
    return change(sound, after=with_progress(sound.after, A, num_output_placeholders=1))


def _decoded_before_its_turn() -> Changed:
    sound = _ahead()
    return change(sound, before=with_progress(sound.before, A, next_decode_eligible_step=9))


def _planned_behind_its_end() -> Changed:
    sound = _ahead(num_lookahead_tokens=0)
    params = attrs.evolve(sound.before.requests[A].sampling_params, max_tokens=1)
    return change(sound, after=with_request(sound.after, A, sampling_params=params))


def _known_tokens_that_are_not_told() -> Changed:
    sound = run(pipelined_state(), Schedule())
    columns = attrs.evolve(sound.output.scheduled_cached_requests, new_token_ids=((77,),))
    return change_output(sound, scheduled_cached_requests=columns)


def _counted_twice() -> Changed:
    sound = _verified()
    stats = sound.after.emitted.clients[0].scheduler_stats
    assert stats is not None
    assert stats.spec_decoding_stats is not None
    twice = attrs.evolve(stats.spec_decoding_stats, num_accepted_tokens=2)
    return change_told(sound, 0, scheduler_stats=attrs.evolve(stats, spec_decoding_stats=twice))


def _verification_that_is_not_counted() -> Changed:
    sound = _verified()
    metrics = sound.before.progress[A].spec_decode_metrics
    return change(sound, after=with_progress(sound.after, A, spec_decode_metrics=metrics))


def _draft_that_nobody_proposed() -> Changed:
    sound = run(drafting_state(), UpdateDrafts({A: (4,)}))
    return change(sound, after=with_progress(sound.after, A, spec_token_ids=(4, 5)))


def _padding_that_is_not_counted() -> Changed:
    sound = run(ahead_state(), UpdateDraftsInFlight(ahead_state().in_flight[-1].step_id, {A: (4,)}))
    output = attrs.evolve(sound.after.in_flight[-1], num_invalid_spec_tokens=OrderedMap())
    return change(sound, after=attrs.evolve(sound.after, in_flight=(*sound.after.in_flight[:-1], output)))


BROKEN_DRAFTS: dict[str, Callable[[], Changed]] = {
    "INV-ROW-08": _known_tokens_that_are_not_told,
    "INV-DRAFT-01": _other_drafts_than_there_were,
    "INV-DRAFT-02": _more_drafts_than_are_proposed,
    "INV-DRAFT-03": _drafts_that_stay,
    "INV-DRAFT-04": _fewer_drafts_than_the_batch_allows,
    "INV-DRAFT-05": _skipped_though_one_can_use_them,
    "INV-DRAFT-06": _ends_where_the_drafter_reads,
    "INV-DRAFT-07": _padded_though_the_size_depends_on_the_batch,
    "INV-ADMIT-10": _hit_that_is_not_given_up,
    "INV-ASYNC-01": _placeholder_too_few,
    "INV-ASYNC-02": _decoded_before_its_turn,
    "INV-ASYNC-03": _planned_behind_its_end,
    "INV-SPEC-01": _counted_twice,
    "INV-SPEC-02": _verification_that_is_not_counted,
    "INV-PROPOSE-01": _draft_that_nobody_proposed,
    "INV-PROPOSE-02": _padding_that_is_not_counted,
}
"""Invariant id -> how to make the step."""
