"""The order in which the reference ends several requests is known before."""

from random import Random

import pytest

from kvsched_fp import AddRequest, GrammarFailed, Schedule, StepResult, Update
from kvsched_fp.ids import RequestId, StepId
from tests.unit.worlds import make_config, make_request

from .set_order import in_set_order


def test_order_reproduces_itself() -> None:
    """A set built from the order is gone through in that order."""
    rng = Random(1)
    for _ in range(200):
        order = in_set_order({RequestId(f"r{rng.randrange(10_000)}") for _ in range(rng.randint(0, 12))})

        assert order == tuple(set(order))


@pytest.mark.usefixtures("_reference")
@pytest.mark.parametrize("adapter", ["suite", "kit"])
def test_grammars_that_fail_together(adapter: str) -> None:
    """The reference goes through a set; the errors come in the order in which they were found."""
    from kvsched_fp.adapters.vllm.driving import VllmAdapter

    from .oracle import OracleScheduler
    from .reference import ReferenceScheduler
    from .vllm_hasher import VllmBlockHasher

    config = make_config(block_hasher=VllmBlockHasher(), include_finished_set=True)
    names = ["f", "b", "d", "a", "e", "c"]
    requests = [
        AddRequest(make_request(name, needs_grammar=True, client_index=number % 3))
        for number, name in enumerate(names)
    ]
    failures = [GrammarFailed(RequestId(name), "it makes no sense") for name in names]
    events = [*requests, *failures, Schedule(), Update(StepResult(step_id=StepId(1)))]
    if adapter == "suite":
        left, right = ReferenceScheduler(config), OracleScheduler(config)
        told = [(left.apply(event), right.apply(event)) for event in events][-1]

        assert told[0] == told[1]
    else:
        driver = VllmAdapter()
        driver.start(config)
        last = [driver.happen(event) for event in events][-1]

        assert [["f", "a"], ["b", "e"], ["d", "c"]] == [
            [output.request_id for output in told.outputs] for told in last.clients.values()
        ]
