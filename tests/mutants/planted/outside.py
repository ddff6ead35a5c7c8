"""Faults in drafts and grammars that come from outside, and in the machine around it all."""

from tests.mutants.mutant import Mutant

_GRAMMAR = "kvsched_fp.grammar"
_BITMASK = "kvsched_fp.bitmask"
_DRAFTING = "kvsched_fp.drafting"
_MACHINE = "kvsched_fp.machine"

OUTSIDE = (
    Mutant(
        name="a grammar accepts what it cannot",
        module=_GRAMMAR,
        old="return attrs.evolve(self, state=states[-1]), len(states) == len(token_ids) + 1",
        new="return attrs.evolve(self, state=states[-1]), True",
        stands_for="A token that the grammar does not allow is taken.",
        killers=("?",),
        features=("grammars",),
    ),
    Mutant(
        name="one draft too many is allowed",
        module=_GRAMMAR,
        old="        return len(self._states_along(token_ids)) - 1\n",
        new="        return len(self._states_along(token_ids))\n",
        stands_for="Off by one: states are counted for tokens.",
        killers=("?",),
        features=("grammars", "drafts"),
    ),
    Mutant(
        name="padding is taken for drafts",
        module=_GRAMMAR,
        old="        if token_id < 0:\n            return tuple(token_ids[:index])\n",
        new="        if token_id < -1:\n            return tuple(token_ids[:index])\n",
        stands_for="The token that stands for none is followed.",
        killers=("?",),
        features=("grammars", "drafts"),
    ),
    Mutant(
        name="a piece of prompt gets a mask",
        module=_BITMASK,
        old="        and not state.progress[request_id].is_prefill_chunk\n",
        new="",
        stands_for="A mask is made for a row that does not sample.",
        killers=("?",),
        features=("grammars",),
    ),
    Mutant(
        name="drafts in the middle of a prompt are kept",
        module=_DRAFTING,
        old="    if progress.is_prefill_chunk:\n        return ()\n",
        new="",
        stands_for="Drafts that continue a piece of a prompt are taken for its end.",
        killers=("?",),
        features=("drafts",),
        where=lambda config: not config.async_scheduling,
    ),
    Mutant(
        name="drafts are kept whatever the grammar says",
        module=_DRAFTING,
        old="    return drafts[: grammar.count_valid_tokens(drafts)]\n",
        new="    return drafts\n",
        stands_for="Drafts that cannot be right are verified.",
        killers=("?",),
        features=("grammars", "drafts"),
    ),
    Mutant(
        name="drafts beyond the canvas are kept",
        module=_DRAFTING,
        old="        drafts = drafts[: canvas_width(request, config.num_spec_tokens)]\n",
        new="        pass\n",
        stands_for="The width of one request's canvas is not looked at.",
        killers=("?",),
        features=("diffusion",),
        where=lambda config: not config.async_scheduling,
    ),
    Mutant(
        name="drafts in flight are not padded",
        module=_DRAFTING,
        old="        scheduled[request_id] = (*kept, *(PADDING,) * num_missing)\n",
        new="        scheduled[request_id] = kept\n",
        stands_for="The step was planned with more tokens than it gets.",
        killers=("?",),
        features=("async", "drafts"),
    ),
    Mutant(
        name="padding in flight is not counted",
        module=_DRAFTING,
        old="            num_invalid[request_id] = num_missing\n",
        new="            pass\n",
        stands_for="What was never a draft counts as one.",
        killers=("?",),
        features=("async", "drafts"),
    ),
    Mutant(
        name="drafts go to the oldest step",
        module=_DRAFTING,
        old="    return step_ids.index(step_id)\n",
        new="    return 0\n",
        stands_for="Several steps in flight are not thought of.",
        killers=("?",),
        features=("async", "drafts"),
    ),
    Mutant(
        name="events that have no outcome give one",
        module=_MACHINE,
        old="    outcome: Outcome = None\n",
        new="    outcome: Outcome = True\n",
        stands_for="A caller is told that something was done which nobody asked for.",
        killers=("?",),
    ),
    Mutant(
        name="a reset always preempts",
        module=_MACHINE,
        old="                state, reset_running_requests=reset_running_requests, time=time\n",
        new="                state, reset_running_requests=True, time=time\n",
        stands_for="A flag is not handed on.",
        killers=("?",),
    ),
    Mutant(
        name="a throttled step is not throttled",
        module=_MACHINE,
        old="schedule(state, throttle_prefills=throttle_prefills, time=time)",
        new="schedule(state, throttle_prefills=False, time=time)",
        stands_for="A flag is not handed on.",
        killers=("?",),
    ),
)
"""Of `grammar.py`, `bitmask.py`, `drafting.py` and `machine.py`."""
