"""In which order the real scheduler ends several requests at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def end_as_found(
    end: Callable[[Any, Any], Iterable[Any] | None],
    found: Sequence[str],
    request_ids: Any,
    finished_status: Any,
) -> list[Any]:
    """Let `end`, its own `finish_requests`, end requests; give those that it ended.

    Several that cannot have their grammar it hands over as a set, whose order changes with the hash seed of
    the process (deviation D-01). They end one by one, in the order in which that was `found` out: one that
    the set might have had. What else is in the set comes behind, by id.
    """
    if not isinstance(request_ids, set | frozenset) or len(request_ids) < 2:
        return list(end(request_ids, finished_status) or ())
    in_order = [request_id for request_id in found if request_id in request_ids]
    in_order += sorted(request_ids.difference(in_order))
    return [request for request_id in in_order for request in end(request_id, finished_status) or ()]
