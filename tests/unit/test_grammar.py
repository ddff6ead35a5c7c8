"""Grammars as values, and the automaton that comes with the package."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import AutomatonGrammar, Grammar, InvalidEvent
from kvsched_fp.grammar import GrammarError, PermissiveGrammar, strip_padding
from tests.unit.refusal import refused

ONES_THEN_TWO = AutomatonGrammar([[(1, 0), (2, 1)], []])
"""Any number of ones, then a two, then nothing."""

TOKENS = st.lists(st.integers(-1, 3), max_size=8)


@given(TOKENS)
def test_longest_allowed_prefix_is_accepted(token_ids: list[int]) -> None:
    """[G-ACC-01] What is counted is what is gone past, and nothing behind the first that is refused."""
    grammar, num_valid = ONES_THEN_TWO, 0
    for token_id in token_ids:
        grammar, accepted = grammar.accept_tokens([token_id])
        if not accepted:
            break
        num_valid += 1

    assert num_valid == ONES_THEN_TWO.count_valid_tokens(token_ids)
    assert (grammar, num_valid == len(token_ids)) == ONES_THEN_TWO.accept_tokens(token_ids)


@given(TOKENS, TOKENS)
def test_grammar_goes_on_where_it_stands(first: list[int], second: list[int]) -> None:
    """[G-ACC-01] Two pieces that are accepted one after the other are accepted as one."""
    between, first_accepted = ONES_THEN_TWO.accept_tokens(first)
    after, second_accepted = between.accept_tokens(second)
    if first_accepted:
        assert (after, second_accepted) == ONES_THEN_TWO.accept_tokens(first + second)


def test_asking_a_grammar_changes_nothing() -> None:
    """A grammar is a value: equal ones are equal, and stay so."""
    before = AutomatonGrammar([[(1, 0), (2, 1)], []])
    ONES_THEN_TWO.accept_tokens([1, 2])
    ONES_THEN_TWO.count_valid_tokens([1, 2])

    assert before == ONES_THEN_TWO
    assert hash(before) == hash(ONES_THEN_TWO)


@pytest.mark.parametrize(
    ("token_ids", "drafts"),
    [((), ()), ((5, 6), (5, 6)), ((5, -1, 6), (5,)), ((-1, 5), ()), ((0, -1), (0,))],
)
def test_padding_and_all_behind_it_is_no_draft(token_ids: tuple[int, ...], drafts: tuple[int, ...]) -> None:
    """[G-PAD-01] Drafts stand in front."""
    assert drafts == strip_padding(token_ids)


def test_permissive_grammar_allows_everything() -> None:
    """[G-ACC-01] It goes past any tokens, and is what it was."""
    grammar = PermissiveGrammar()

    assert (grammar, True) == grammar.accept_tokens((3, 1))
    assert 2 == grammar.count_valid_tokens((3, 1))


BAD = [
    (lambda: AutomatonGrammar(5), "grammar.moves", 5, "per state, pairs"),
    (lambda: AutomatonGrammar([[1, 2]]), "grammar.moves", [[1, 2]], "per state, pairs"),
    (lambda: AutomatonGrammar([[(2, 0), (1, 0)]]), "grammar.moves", ((2, 0), (1, 0)), "ascending"),
    (lambda: AutomatonGrammar([[(1, 0), (1, 0)]]), "grammar.moves", ((1, 0), (1, 0)), "each once"),
    (lambda: AutomatonGrammar([[("1", 0)]]), "grammar.moves", (("1", 0),), "token ids"),
    (lambda: AutomatonGrammar([[(1, 1)]]), "grammar.moves", 1, "a state from 0 to 0"),
    (lambda: AutomatonGrammar([[(1, None)]]), "grammar.moves", None, "a state from 0 to 0"),
    (lambda: AutomatonGrammar([[], []], 2), "grammar.state", 2, "a state from 0 to 1"),
    (lambda: AutomatonGrammar([[], []], True), "grammar.state", True, "a state from 0 to 1"),
]


@pytest.mark.parametrize(("build", "field", "value", "allowed"), BAD)
def test_automaton_that_makes_no_sense_is_refused(
    build: Any, field: str, value: object, allowed: str
) -> None:
    """Each state has its moves once, in order, to states that there are."""
    with refused(InvalidEvent, field, value, allowed):
        build()


@pytest.mark.parametrize(
    ("value", "is_grammar"), [(ONES_THEN_TWO, True), (GrammarError("no"), False), (None, False)]
)
def test_anything_with_the_methods_is_a_grammar(value: object, is_grammar: bool) -> None:
    """The events can tell a grammar from something else."""
    assert is_grammar == isinstance(value, Grammar)
