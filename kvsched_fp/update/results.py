"""The transient of one `update()`: the opened state, and what is to be told to whom."""

from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import EngineOutput, SpecDecodingStats
from kvsched_fp.state import SchedulerState
from kvsched_fp.transient import OpenState


class Results(OpenState):
    """The opened state, which step is taken in, the outputs per client and the requests that stopped."""

    __slots__ = (
        "continuing",
        "drafted",
        "in_flight",
        "outputs",
        "spec_decoding_stats",
        "step_id",
        "stopped",
    )

    def __init__(self, state: SchedulerState, time: float) -> None:
        super().__init__(state, time)
        self.in_flight = state.in_flight
        self.step_id = state.in_flight[0].step_id
        drafted = state.in_flight[0].scheduled_spec_token_ids
        self.drafted = drafted.thaw()  # a plain dict is asked faster
        self.outputs: dict[int, list[EngineOutput]] = {}
        self.stopped: set[RequestId] = set()
        self.continuing: list[RequestId] = []  # sessions among them that go on, in the order of the batch
        self.spec_decoding_stats: SpecDecodingStats | None = None

    def emit(self, client_index: int, output: EngineOutput) -> None:
        """Tell a client something, behind what it is told already."""
        outputs = self.outputs.get(client_index)
        if outputs is None:
            self.outputs[client_index] = [output]
        else:
            outputs.append(output)
