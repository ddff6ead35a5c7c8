"""The order in which the reference ends several requests is known before."""

from random import Random
from types import SimpleNamespace

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

    config = make_config(block_hasher=VllmBlockHasher())
    names = ["f", "b", "d", "a", "e", "c"]
    requests = [AddRequest(make_request(name, needs_grammar=True)) for name in names]
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

        assert names == [output.request_id for output in last.clients[0].outputs]


class _Told:
    """What a client is told: outputs that have an id each."""

    def __init__(self, *names: str) -> None:
        self.outputs = [SimpleNamespace(request_id=name) for name in names]


@pytest.mark.usefixtures("_reference")
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (("r", "c", "b", "a"), ["r", "a", "b", "c"]),
        (("b",), ["b"]),
        (("c", "a", "r"), ["c", "a", "r"]),  # not where the reference puts them
        ((), []),
    ],
)
def test_errors_are_put_in_the_order_in_which_they_were_found(
    told: tuple[str, ...], expected: list[str]
) -> None:
    """For each client; what else it is told stays where it is."""
    from kvsched_fp.adapters.vllm.driving.calls import update_from_output

    scheduler = SimpleNamespace(
        grammar_compile_error_reqs=dict.fromkeys("abcd"),
        update_from_output=lambda *_: {0: _Told(*told), 1: _Told("d")},
    )
    clients = update_from_output(scheduler, None, None)  # type: ignore[arg-type]

    assert [expected, ["d"]] == [
        [output.request_id for output in client.outputs] for client in clients.values()
    ]
