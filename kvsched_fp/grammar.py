"""Grammars: what the output of a request has to look like.

A grammar is a value. It stands at some point of an output, says which tokens may follow, and gives the
grammar that stands behind them. How it was made (from a JSON schema, say) is not the scheduler's business;
an adapter hands in one that asks a real backend, or that answers from what was recorded.

Rules
-----
[G-01] A grammar accepts the longest prefix of some tokens that it allows; nothing else is asked of it.
[G-02] Padding (-1) and all behind it is no draft.

Upstream: `v1/structured_output/backend_types.py::StructuredOutputGrammar`,
`v1/structured_output/__init__.py::StructuredOutputManager.validate_tokens`, `accept_tokens`.
"""

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

import attrs

from kvsched_fp.errors import InvalidEvent


@runtime_checkable
class Grammar(Protocol):
    """A grammar at some point of an output. All methods are pure."""

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple[Self, bool]:
        """Go past `token_ids` as far as they are allowed; tell whether all were."""
        ...

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed [G-01]."""
        ...


@attrs.frozen
class GrammarError:
    """Why there is no grammar."""

    message: str
    """For the client."""


def strip_padding(token_ids: Sequence[int]) -> tuple[int, ...]:
    """Give the drafts in front of the padding [G-02]."""
    for index, token_id in enumerate(token_ids):
        if token_id < 0:
            return tuple(token_ids[:index])
    return tuple(token_ids)


@attrs.frozen
class AutomatonGrammar:
    """A finite automaton over token ids. A state without moves ends the output: it allows nothing more."""

    moves: tuple[tuple[tuple[int, int], ...], ...]
    """Per state, pairs (token id, next state), in ascending order of token ids."""
    state: int = 0
    """Where it stands."""

    def __attrs_post_init__(self) -> None:
        num_states = len(self.moves)
        allowed = f"a state from 0 to {num_states - 1}"
        if not 0 <= self.state < num_states:
            raise InvalidEvent("grammar.state", self.state, allowed)
        for moves in self.moves:
            token_ids = [token_id for token_id, _ in moves]
            if token_ids != sorted(set(token_ids)):
                raise InvalidEvent("grammar.moves", moves, "token ids in ascending order, each once")
            for _, following in moves:
                if not 0 <= following < num_states:
                    raise InvalidEvent("grammar.moves", following, allowed)

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple["AutomatonGrammar", bool]:
        """Go past `token_ids` as far as they are allowed; tell whether all were."""
        states = self._states_along(token_ids)
        return attrs.evolve(self, state=states[-1]), len(states) == len(token_ids) + 1

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed."""
        return len(self._states_along(token_ids)) - 1

    def _states_along(self, token_ids: Sequence[int]) -> list[int]:
        """List the states that `token_ids` lead through, from the one where it stands."""
        states = [self.state]
        for token_id in token_ids:
            following = dict(self.moves[states[-1]]).get(token_id)
            if following is None:
                break
            states.append(following)
        return states
