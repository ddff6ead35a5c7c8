"""Runs the commands of a scenario against a scheduler and answers with what they print.

| command | what it does |
|---|---|
| `config key=value ...` | start again with an empty scheduler; keys of `SchedulerConfig` over `WORLD` |
| `add ID prompt=N ...` | add a request; options below |
| `schedule [throttle]` | plan a step |
| `update [ID=tokens ...] [step=N]` | answer the oldest step (or step N) |
| `step N` | schedule and update, N times, each on one line |
| `finish ID ... [status=aborted]` or `finish all` | end requests from outside |
| `pause new`, `pause all`, `pause off` | change the pause state |
| `reset [running]` | reset the prefix cache |
| `show queues`, `blocks`, `cache`, `requests`, `stats`, `output` or `events` | print a part of the state |

Options of `add`: `prompt` (its length) or `tokens=1,2,3` (the prompt itself), `prefix=NAME:N` (the first N
tokens of the prompt come from a text that requests share by name), `max_tokens` (16), `eos`, `stop=1,2`,
`min_tokens`, `repetition=MAX:COUNT`, `priority`, `arrival`, `client`, `salt`, `skip_reading`.

Token ids tell where they come from: position p of the k-th request is token 1000*k + p, of the k-th
shared text 1000000*k + p. `update` answers every row that finished its prompt with the next token of its
request, unless it is named: `ID=7,8` samples those tokens, `ID=-` samples none.
"""

from collections.abc import Callable
from typing import Any

from kvsched_fp import (
    InvalidConfig,
    InvalidEvent,
    PauseState,
    RepetitionDetection,
    Request,
    RequestStatus,
    SamplingParams,
    SchedulerConfig,
    SchedulerOutput,
    SchedulerState,
    StepResult,
    add_request,
    finish_requests,
    initial_state,
    reset_prefix_cache,
    schedule,
    set_pause_state,
    update,
)
from kvsched_fp.ids import BlockHash, RequestId, StepId
from kvsched_fp.request import num_known_tokens
from tests.scenarios import render
from tests.scenarios.language import Command

WORLD: dict[str, Any] = {
    "max_model_len": 64,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "num_blocks": 17,
    "block_size": 4,
}
"""What `config` starts from."""

PAUSES = {"new": PauseState.PAUSED_NEW, "all": PauseState.PAUSED_ALL, "off": PauseState.UNPAUSED}

PLAIN: dict[str, Callable[[SchedulerState], str]] = {
    "queues": render.render_queues,
    "blocks": render.render_blocks,
    "requests": render.render_requests,
    "stats": render.render_stats,
}
LABELLED: dict[str, Callable[[SchedulerState, render.Labels], str]] = {
    "cache": render.render_cache,
    "events": render.render_events,
}
"""What `show` can print: from the state alone, and with names for the block hashes."""


class CommandError(Exception):
    """A command that makes no sense."""


class Session:
    """One scheduler under a scenario's commands."""

    def __init__(self) -> None:
        self._start(None)

    def _start(self, state: SchedulerState | None) -> None:
        """Forget everything, and go on from `state`."""
        self._state = state
        self._output: SchedulerOutput | None = None
        self._numbers: dict[RequestId, int] = {}
        self._texts: dict[str, int] = {}
        self._num_requests = 0
        self._samples: dict[StepId, dict[RequestId, tuple[int, ...]]] = {}
        self._labels: dict[BlockHash, str] = {}

    @property
    def state(self) -> SchedulerState:
        """The state to go on from."""
        if self._state is None:
            raise CommandError("no config yet")
        return self._state

    def run(self, command: Command) -> str:
        """Run one command; gives what it prints, an empty text for nothing."""
        method = getattr(self, f"do_{command.name}", None)
        if method is None:
            raise CommandError(f"unknown command {command.name!r}")
        options = dict(command.options)
        try:
            printed: str = method(command.words, options)
        except (InvalidConfig, InvalidEvent) as error:
            return f"error: {error}"
        if options:
            raise CommandError(f"unknown option {next(iter(options))!r} of {command.name}")
        self._remember_labels()
        return printed

    def do_config(self, _words: tuple[str, ...], options: dict[str, str]) -> str:
        """Start again with an empty scheduler."""
        values = {key: _value(text) for key, text in options.items()}
        options.clear()
        config = SchedulerConfig.from_mapping(WORLD | values)
        self._start(initial_state(config))
        return render.render_config(config)

    def do_add(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Add a request."""
        request_id = RequestId(_only(words))
        number = self._num_requests + 1
        prompt = self._prompt(number, options)
        params = SamplingParams(
            max_tokens=int(options.pop("max_tokens", 16)),
            min_tokens=int(options.pop("min_tokens", 0)),
            eos_token_id=_integer(options.pop("eos", None)),
            stop_token_ids=frozenset(_integers(options.pop("stop", ""))),
            repetition_detection=_repetition(options.pop("repetition", None)),
            skip_reading_prefix_cache=options.pop("skip_reading", "no") == "yes",
        )
        request = Request(
            request_id=request_id,
            prompt_token_ids=prompt,
            sampling_params=params,
            priority=int(options.pop("priority", 0)),
            arrival_time=float(options.pop("arrival", number)),
            client_index=int(options.pop("client", 0)),
            cache_salt=options.pop("salt", None),
        )
        self._state = add_request(self.state, request)
        self._num_requests = number
        self._numbers[request_id] = number
        return ""

    def _prompt(self, number: int, options: dict[str, str]) -> tuple[int, ...]:
        if "tokens" in options:
            return _integers(options.pop("tokens"))
        length = int(options.pop("prompt"))
        text, _, num_shared = options.pop("prefix", ":0").partition(":")
        if int(num_shared):
            self._texts.setdefault(text, len(self._texts) + 1)
        shared = [1_000_000 * self._texts[text] + position for position in range(int(num_shared))]
        return (*shared, *(1000 * number + position for position in range(int(num_shared), length)))

    def do_schedule(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Plan a step."""
        if words not in {(), ("throttle",)}:
            raise CommandError("schedule takes nothing, or throttle")
        before = self.state
        self._state, output = schedule(before, throttle_prefills=bool(words))
        self._output = output
        self._samples[output.step_id] = self._next_tokens(self._state, output)
        return render.render_step(before, self._state, output)

    def _next_tokens(
        self, state: SchedulerState, output: SchedulerOutput
    ) -> dict[RequestId, tuple[int, ...]]:
        """Sample the next token of every row that has nothing left to compute."""
        samples: dict[RequestId, tuple[int, ...]] = {}
        for request_id in output.num_scheduled_tokens:
            progress = state.progress[request_id]
            if not progress.is_prefill_chunk:
                position = num_known_tokens(state.requests[request_id], progress)
                samples[request_id] = (1000 * self._numbers[request_id] + position,)
        return samples

    def do_update(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Answer a step."""
        if words:
            raise CommandError("update takes ID=tokens and step=N")
        oldest = self.state.in_flight[0].step_id if self.state.in_flight else StepId(0)
        step_id = StepId(int(options.pop("step", oldest)))
        sampled = self._samples.get(step_id, {}) | {
            RequestId(request_id): _integers(text) for request_id, text in options.items()
        }
        options.clear()
        self._state = update(self.state, StepResult(step_id=step_id, sampled_token_ids=sampled))
        return render.render_emitted(self._state)

    def do_step(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Schedule and update so many times."""
        lines = []
        for _ in range(int(_only(words))):
            planned = self.do_schedule((), {})
            lines.append(f"{planned} -> {self.do_update((), {})}")
        return "\n".join(lines)

    def do_finish(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """End requests from outside."""
        request_ids = None if words == ("all",) else map(RequestId, words)
        status = RequestStatus[options.pop("status", "finished_aborted").upper()]
        self._state = finish_requests(self.state, request_ids, status)
        return ""

    def do_pause(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Change the pause state."""
        self._state = set_pause_state(self.state, PAUSES[_only(words)])
        return ""

    def do_reset(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Reset the prefix cache."""
        if words not in {(), ("running",)}:
            raise CommandError("reset takes nothing, or running")
        self._state, done = reset_prefix_cache(self.state, reset_running_requests=bool(words))
        return "done" if done else "refused: blocks are held"

    def do_show(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Print a part of the state."""
        what = _only(words)
        if what == "output":
            if self._output is None:
                raise CommandError("no step yet")
            return render.render_output(self._output)
        if what in LABELLED:
            return LABELLED[what](self.state, self._labels)
        if what in PLAIN:
            return PLAIN[what](self.state)
        raise CommandError(f"nothing to show: {what}")

    def _remember_labels(self) -> None:
        """Name the hashes of the live requests' blocks, the first owner first."""
        if self._state is None:
            return
        block_size = self._state.config.block_size
        for request_id in self._numbers:
            progress = self._state.progress.get(request_id)
            for index, block_hash in enumerate(() if progress is None else progress.block_hashes):
                tokens = f"{index * block_size}:{(index + 1) * block_size}"
                self._labels.setdefault(block_hash, f"{request_id}[{tokens}]")


def _only(words: tuple[str, ...]) -> str:
    if len(words) != 1:
        raise CommandError(f"one argument wanted, got {' '.join(words) or 'none'}")
    return words[0]


def _value(text: str) -> object:
    """Read a config value as a file would give it."""
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part not in {"", "-"})


def _repetition(text: str | None) -> RepetitionDetection | None:
    if text is None:
        return None
    longest, _, count = text.partition(":")
    return RepetitionDetection(max_pattern_size=int(longest), min_count=int(count))
