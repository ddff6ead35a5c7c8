"""Read-only look-alikes of the real scheduler's queues and of its encoder cache.

Code that looks inside finds the same things under the same names. Whoever tries to change something here
gets an error: the state behind changes by calls of the scheduler only.
"""

from typing import Any, NoReturn

from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.request import Request as VllmRequest


class ReadOnlyError(AttributeError):
    """Somebody tried to change a view of a scheduler's state."""


def refuse_change(what: str) -> NoReturn:
    """Raise the error for a change of `what`."""
    raise ReadOnlyError(
        f"{what} is a read-only view of an immutable state, which changes by calls of the scheduler"
    )


class ReadOnly:
    """A view: nothing can be assigned, and what is missing says why."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_change(f"{type(self).__name__}.{name}")

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling ask for special methods that are not there; those are no part of a scheduler.
        raise AttributeError(
            f"{type(self).__name__} has no {name}: it shows what the real scheduler holds, "
            "but not how it changes it"
        )


class RequestList(list[VllmRequest]):
    """A list of requests that cannot be changed; as a waiting queue, it can be looked into."""

    def peek_request(self) -> VllmRequest:
        """Give the request that is served first."""
        if not self:
            raise IndexError("peek from an empty queue")
        return self[0]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        refuse_change("a list of the scheduler's requests")

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    add_request = pop_request = prepend_request = prepend_requests = _refuse
    remove_request = remove_requests = appendleft = popleft = _refuse


class EmptyEncoderCache(EncoderCacheManager):  # type: ignore[misc]  # untyped where vLLM is missing
    """The encoder cache of a model without encoder inputs: it has no room, and nothing in it."""

    def __init__(self) -> None:
        super().__init__(cache_size=0)
        self.__dict__["_is_made"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_is_made" in self.__dict__:
            refuse_change(f"encoder_cache_manager.{name}")
        object.__setattr__(self, name, value)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        refuse_change("encoder_cache_manager")

    allocate = check_and_update_cache = free_encoder_input = _refuse

    def free(self, request: VllmRequest) -> None:
        """Do nothing: no request holds anything."""

    def reset(self) -> None:
        """Do nothing: nothing is cached."""

    def get_freed_mm_hashes(self) -> list[str]:
        """Give what was evicted: nothing."""
        return []
