"""What one update told the clients, in vLLM's words, and what it did to the requests."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest

from kvsched_fp.adapters.vllm import mirror
from kvsched_fp.adapters.vllm.outputs import to_client_outputs, to_engine_output, to_error_output
from kvsched_fp.events import StepResult
from kvsched_fp.ids import RequestId
from kvsched_fp.outputs import EngineOutput
from kvsched_fp.progress import Progress
from kvsched_fp.state import SchedulerState
from kvsched_fp.update import take_in
from kvsched_fp.update.checks import check_answer
from kvsched_fp.update.results import Results


class _ListeningResults(Results):
    """An update that keeps where the requests stood that it ends: the state has forgotten them."""

    __slots__ = ("last",)

    def __init__(self, state: SchedulerState, time: float) -> None:
        super().__init__(state, time)
        self.last: dict[RequestId, Progress] = {}

    def left(self, request_id: RequestId, progress: Progress) -> None:
        self.last[request_id] = progress


class Answer:
    """One update: the state before and after it, and what became of those that it ended."""

    def __init__(self, before: SchedulerState, result: StepResult, time: float) -> None:
        """Update. Raises `InvalidEvent` as `update()` does."""
        self._output = check_answer(before, result)
        results = _ListeningResults(before, time)
        self.before = before
        self.after = take_in(results, self._output, result)
        self._last = results.last
        self._ended: dict[RequestId, EngineOutput] = {}

    def tell(
        self, requests: Mapping[str, VllmRequest], returned: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Show the new tokens on the live `requests`, and give what the clients are told."""
        self._show_nans(requests, returned.num_nans_in_logits)
        return {
            client: to_client_outputs(
                outputs,
                [self._tell_one(requests[told.request_id], told, returned) for told in outputs.outputs],
                returned,
            )
            for client, outputs in self.after.emitted.clients.items()
        }

    def _show_nans(self, requests: Mapping[str, VllmRequest], num_nans: Mapping[str, int] | None) -> None:
        for request_id in self._output.num_scheduled_tokens if num_nans else ():
            was = self.before.progress.get(request_id)
            drops = was is not None and was.drop_stale_output and was.num_stale_output_tokens > 0
            if was is not None and not drops and num_nans and request_id in num_nans:
                vars(requests[request_id])["num_nans_in_logits"] = num_nans[request_id]

    def _tell_one(self, request: VllmRequest, told: EngineOutput, returned: ModelRunnerOutput) -> Any:
        if told.request_id in self._last:
            self._ended[told.request_id] = told
        if told.error is not None:
            return to_error_output(told, request)
        mirror.write_output_tokens(request, told.new_token_ids)
        return to_engine_output(
            told, request, returned, mirror.take_prefill_stats(request, told.prefill_stats)
        )

    def show(self, requests: Mapping[str, VllmRequest]) -> Iterator[RequestId]:
        """Show on the `requests` what became of them; give the ids of those that ended."""
        before, after = self.before, self.after
        for request_id in self._output.num_scheduled_tokens:
            was, now = before.progress.get(request_id), after.progress.get(request_id)
            if was is None or now is None or now is was:
                continue
            request = requests[request_id]
            mirror.write_progress(request, was, now)
            if len(now.chunks) < len(was.chunks):
                chunk, asked = mirror.take_chunk(request), after.requests[request_id]
                mirror.write_chunk(request, chunk, asked, after.config.block_size)
        for request_id, told in self._ended.items():
            request, last = requests[request_id], self._last[request_id]
            mirror.write_progress(request, before.progress[request_id], last)
            mirror.write_end(request, last, told)
            yield request_id
