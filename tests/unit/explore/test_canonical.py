"""The canonical form: situations of one form behave alike, and what makes a difference shows in it."""

import random

import pytest

from kvsched_fp.explore import World
from kvsched_fp.explore.presets import PRESETS
from kvsched_fp.explore.situation import Situation
from kvsched_fp.invariants.liveness import classify_standstill
from tests.unit.explore.coarser import FORGETTING, ForgetfulCanonicalizer
from tests.unit.explore.pairs import Searched
from tests.unit.explore.renaming import move_steps, rename_blocks

NUM_PAIRS = 100
MOST_STATES = 800


@pytest.fixture(scope="module", params=PRESETS)
def searched(request: pytest.FixtureRequest) -> Searched:
    """Search a preset, or the beginning of it."""
    return Searched(PRESETS[request.param], MOST_STATES)


def _behave_alike(searched: Searched, one: Situation, other: Situation) -> bool:
    """Tell whether two situations have the same moves, which lead to the same forms in the same order."""
    ones = [key for key, _ in searched.follow_all(one)]
    others = [key for key, _ in searched.follow_all(other)]
    kinds = {classify_standstill(situation.state).kind for situation in (one, other)}
    return ones == others and len(kinds) == 1


def test_one_form_behaves_alike(searched: Searched) -> None:
    """Random pairs of one form have the same moves, and those lead to the same forms."""
    pairs = searched.sample_pairs(NUM_PAIRS, seed=1)

    assert len(pairs) > 10
    assert all(one != other for one, other in pairs)
    assert all(_behave_alike(searched, one, other) for one, other in pairs)


def test_names_of_blocks_and_numbers_of_steps_make_no_difference(searched: Searched) -> None:
    """A situation under other names has the same form, and behaves alike."""
    chance = random.Random(2)
    for one in chance.sample(list(searched.first.values()), 60):
        names = [
            0,
            *chance.sample(range(1, one.state.kv.pool.num_blocks), one.state.kv.pool.num_blocks - 1),
        ]
        other = move_steps(rename_blocks(one, names), chance.randrange(1, 9))

        assert searched.canonicalizer.form(one) == searched.canonicalizer.form(other)
        assert _behave_alike(searched, one, other)


@pytest.mark.parametrize("forgotten", FORGETTING)
def test_a_form_that_forgets_is_found_out(forgotten: str) -> None:
    """Without what the scheduler reads, some pair of one form behaves differently."""
    name, forget = FORGETTING[forgotten]
    searched = _search_forgetfully(PRESETS[name], forget)
    pairs = [(searched.first[key], other) for key, other in searched.again]

    assert any(not _behave_alike(searched, one, other) for one, other in pairs)


def _search_forgetfully(world: World, forget: object) -> Searched:
    canonicalizer = type("Forgetful", (ForgetfulCanonicalizer,), {"forget": staticmethod(forget)})
    return Searched(world, 3000, canonicalizer)


def test_the_form_does_not_depend_on_the_hash_seed() -> None:
    """It holds integers, bytes and None, in tuples, and nothing else."""
    searched = Searched(PRESETS["session"], 300)
    kinds = set()
    for situation in searched.first.values():
        parts = [searched.canonicalizer.form(situation)]
        while parts:
            part = parts.pop()
            kinds.add(type(part))
            parts.extend(part if isinstance(part, tuple) else ())

    assert kinds <= {tuple, int, bool, bytes, type(None)}
