"""In which order the reference ends several requests at once.

It puts the ids into a Python set and goes through that. The order of a set of strings changes with
the hash seed of the process, and it is visible: it fixes the order in which blocks are freed. Our
event takes its order from the caller, so it is given the one that the set has in this process.
"""

from collections.abc import Iterable

from kvsched_fp.ids import RequestId


def in_set_order(request_ids: Iterable[RequestId]) -> tuple[RequestId, ...]:
    """Order `request_ids` so that a set built from them is gone through in that same order.

    Where two ids collide, a set's order depends on what went in first, so one pass may not be
    enough; if no order reproduces itself, one id alone is left.
    """
    order = tuple(request_ids)
    for _ in range(10):
        through_a_set = tuple(set(order))
        if through_a_set == order:
            return order
        order = through_a_set
    return order[:1]
