"""Grammars: what the output of a request has to look like.

A grammar is a value. It stands at some point of an output, says which tokens may follow, and gives the
grammar that stands behind them. How it was made (from a JSON schema, say) is not the scheduler's business;
an adapter hands in one that asks a real backend, or that answers from what was recorded.

Rules
-----
[G-ACC-01] A grammar accepts the longest prefix of some tokens that it allows; nothing else is asked of it.
[G-PAD-01] Padding (-1) and all behind it is no draft.

Upstream: `v1/structured_output/backend_types.py::StructuredOutputGrammar`,
`v1/structured_output/__init__.py::StructuredOutputManager.validate_tokens`, `accept_tokens`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, TypeAlias, runtime_checkable

import attrs

from kvsched_fp.errors import InvalidEvent


@runtime_checkable
class Grammar(Protocol):
    """A grammar at some point of an output. All methods are pure."""

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple[Self, bool]:
        """Go past `token_ids` as far as they are allowed; tell whether all were."""
        ...

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed [G-ACC-01]."""
        ...


@attrs.frozen
class PermissiveGrammar:
    """Allows everything. It stands for a grammar of somebody else, who has cut the drafts already."""

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple["PermissiveGrammar", bool]:  # noqa: ARG002
        """Go past all of `token_ids`."""
        return self, True

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count all of them."""
        return len(token_ids)


@attrs.frozen
class GrammarError:
    """Why there is no grammar."""

    message: str
    """For the client."""


def strip_padding(token_ids: Sequence[int]) -> tuple[int, ...]:
    """Give the drafts in front of the padding [G-PAD-01]."""
    for index, token_id in enumerate(token_ids):
        if token_id < 0:
            return tuple(token_ids[:index])
    return tuple(token_ids)


Moves: TypeAlias = tuple[tuple[int, int], ...]
"""Where an automaton may go from one state: pairs (token id, next state)."""


def _freeze_moves(moves: Iterable[Iterable[tuple[int, int]]]) -> tuple[Moves, ...]:
    try:
        return tuple(tuple((token_id, to) for token_id, to in pairs) for pairs in moves)
    except (TypeError, ValueError):
        raise InvalidEvent("grammar.moves", moves, "per state, pairs (token id, next state)") from None


@attrs.frozen
class AutomatonGrammar:
    """A finite automaton over token ids. A state without moves ends the output: it allows nothing more."""

    moves: tuple[Moves, ...] = attrs.field(converter=_freeze_moves)
    """Per state, in ascending order of token ids."""
    state: int = 0
    """Where it stands."""

    def __attrs_post_init__(self) -> None:
        self._check_state("grammar.state", self.state)
        for moves in self.moves:
            token_ids = [token_id for token_id, _ in moves]
            are_ints = all(type(token_id) is int for token_id in token_ids)
            if not are_ints or token_ids != sorted(set(token_ids)):
                raise InvalidEvent("grammar.moves", moves, "token ids in ascending order, each once")
            for _, to in moves:
                self._check_state("grammar.moves", to)

    def _check_state(self, field: str, state: int) -> None:
        num_states = len(self.moves)
        if type(state) is not int or not 0 <= state < num_states:
            raise InvalidEvent(field, state, f"a state from 0 to {num_states - 1}")

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple["AutomatonGrammar", bool]:
        """Go past `token_ids` as far as they are allowed; tell whether all were [G-ACC-01]."""
        states = self._states_along(token_ids)
        return attrs.evolve(self, state=states[-1]), len(states) == len(token_ids) + 1

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed."""
        return len(self._states_along(token_ids)) - 1

    def _states_along(self, token_ids: Sequence[int]) -> list[int]:
        """List the states that `token_ids` lead through, from the one where it stands."""
        states = [self.state]
        for token_id in token_ids:
            to = dict(self.moves[states[-1]]).get(token_id)
            if to is None:
                break
            states.append(to)
        return states
