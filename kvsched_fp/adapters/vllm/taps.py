"""What stands between the real scheduler and those that it asks, for the time of one call.

It passes everything on, and keeps what is answered.
"""

from collections.abc import Mapping
from typing import Any

from vllm.v1.request import Request as VllmRequest

from kvsched_fp.ids import RequestId
from kvsched_fp.ordered import OrderedMap


class PublisherTap:
    """Stands before a publisher of KV events."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self.seen: list[Any] = []
        """The events that were published."""

    def publish(self, batch: Any) -> None:
        """Keep the events, and pass them on."""
        self.seen.extend(batch.events)
        self._publisher.publish(batch)


class ManagerTap:
    """Stands before the manager of grammars."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._valid: dict[str, tuple[int, ...]] = {}
        self.rejected: list[RequestId] = []
        """The requests whose new tokens were not allowed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def accept_tokens(self, request: VllmRequest, new_token_ids: list[int]) -> bool:
        """Pass it on, and keep a rejection."""
        accepted: bool = self._manager.accept_tokens(request, new_token_ids)
        if not accepted:
            self.rejected.append(RequestId(request.request_id))
        return accepted

    def validate_tokens(self, request: VllmRequest, spec_tokens: list[int]) -> list[int]:
        """Pass it on, and keep what is allowed of the drafts of a request that has a grammar."""
        valid: list[int] = self._manager.validate_tokens(request, spec_tokens)
        if request.use_structured_output:
            self._valid[request.request_id] = tuple(valid)
        return valid

    def cut(self, drafts: Mapping[RequestId, tuple[int, ...]]) -> OrderedMap[RequestId, tuple[int, ...]]:
        """Give drafts as far as the grammars allowed them: the machine has no grammars to ask."""
        return OrderedMap.adopt(
            {request_id: self._valid.get(request_id, row) for request_id, row in drafts.items()}
        )
