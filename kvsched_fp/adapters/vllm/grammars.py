"""vLLM's grammars, behind the pure interface of ours.

A backend's grammar is an object that moves along with the output. The machine wants a value that stands at
some point of an output. So a value here is the tokens that were accepted up to that point; whoever asks it
has the backend go there first, which nearly always is where it stands already.
"""

from collections.abc import Sequence
from typing import Any

import attrs
from pyrsistent import PVector, pvector
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.errors import UnsupportedFeature


class _Backend:
    """The grammar of one request of vLLM's, with the manager that asks it, and where it stands."""

    def __init__(self, request: VllmRequest, manager: Any) -> None:
        self._request = request
        self._manager = manager
        self._accepted: PVector[int] | None = pvector()

    def go_to(self, accepted: PVector[int]) -> None:
        """Let the backend stand behind these tokens."""
        if self._accepted is accepted or self._accepted == accepted:
            return
        grammar = self._request.structured_output_request.grammar
        grammar.reset()
        if accepted:
            grammar.accept_tokens(self._request.request_id, list(accepted))
        self._accepted = accepted

    def accept(self, accepted: PVector[int], token_ids: Sequence[int]) -> tuple[PVector[int], bool]:
        """Go on from `accepted` past `token_ids`; tell whether all were allowed."""
        self.go_to(accepted)
        all_accepted: bool = self._manager.accept_tokens(self._request, list(token_ids))
        further = accepted.extend(token_ids)
        # Where it stands after a rejection, the backend does not say.
        self._accepted = further if all_accepted else None
        return further, all_accepted

    def count_valid(self, accepted: PVector[int], token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed behind `accepted`."""
        self.go_to(accepted)
        return len(self._manager.validate_tokens(self._request, list(token_ids)))


@attrs.frozen
class BackendGrammar:
    """A grammar of vLLM's at some point of an output; a request whose tokens it rejects has ended."""

    backend: _Backend = attrs.field(repr=False)
    """Asked, and moved along."""
    accepted_token_ids: PVector[int] = pvector()
    """The output so far."""

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple["BackendGrammar", bool]:
        """Go past `token_ids`; tell whether all were allowed."""
        accepted, all_accepted = self.backend.accept(self.accepted_token_ids, token_ids)
        return BackendGrammar(self.backend, accepted), all_accepted

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens at the front of `token_ids` that are allowed."""
        return self.backend.count_valid(self.accepted_token_ids, token_ids)

    def settle(self) -> None:
        """Let the backend stand where this value does, for somebody who asks it directly."""
        self.backend.go_to(self.accepted_token_ids)


@attrs.frozen
class RejectingGrammar:
    """Allows nothing: the real one has just rejected what comes next."""

    def accept_tokens(self, token_ids: Sequence[int]) -> tuple["RejectingGrammar", bool]:  # noqa: ARG002
        """Go nowhere."""
        return self, False

    def count_valid_tokens(self, token_ids: Sequence[int]) -> int:  # noqa: ARG002
        """Count none."""
        return 0


def to_grammar(request: VllmRequest, manager: Any) -> BackendGrammar:
    """Make the value for the compiled grammar of a request."""
    return BackendGrammar(_Backend(request, manager))


def refuse_reasoning(request: VllmRequest, manager: Any) -> None:
    """Raise `UnsupportedFeature` where a grammar begins only behind some reasoning."""
    structured = request.structured_output_request
    if (
        structured is not None
        and manager.reasoner_cls is not None
        and not manager.enable_in_reasoning
        and not structured.reasoning_ended
    ):
        raise UnsupportedFeature("structured output behind reasoning", f"request {request.request_id!r}")
