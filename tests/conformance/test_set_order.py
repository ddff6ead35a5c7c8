"""The order in which the reference ends several requests is known before."""

from random import Random

from kvsched_fp.ids import RequestId

from .set_order import in_set_order


def test_order_reproduces_itself() -> None:
    """A set built from the order is gone through in that order."""
    rng = Random(1)
    for _ in range(200):
        order = in_set_order({RequestId(f"r{rng.randrange(10_000)}") for _ in range(rng.randint(0, 12))})

        assert order == tuple(set(order))
