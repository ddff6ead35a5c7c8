"""Faults in the order of those who wait."""

from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.request import Request

from .planting import Fault

QUEUES = (
    Fault(
        "a preempted request goes to the back",
        FCFSRequestQueue,
        "prepend_request",
        FCFSRequestQueue.add_request,
    ),
    Fault(
        "deferred requests go to the back",
        FCFSRequestQueue,
        "prepend_requests",
        lambda self, requests: self.extend(list(requests)[::-1]),
    ),
    Fault(
        "equal priorities are ordered by id, not by arrival",
        Request,
        "__lt__",
        lambda self, other: (self.priority, self.request_id) < (other.priority, other.request_id),
    ),
)
