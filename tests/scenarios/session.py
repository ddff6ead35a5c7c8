"""Runs the commands of a scenario against a scheduler and answers with what they print.

| command | what it does |
|---|---|
| `config key=value ...` | start again with an empty scheduler; keys of `SchedulerConfig` over `WORLD` |
| `config without=QUIRK ...` | the same, without one of the reference's quirks |
| `add ID prompt=N ...` | add a request; options below |
| `input ID prompt=N ...` | the next input of a session; options as for `add` |
| `end ID` | the end of a session |
| `schedule [throttle]` | plan a step |
| `update [ID=tokens ...] [pooled=ID,ID] [step=N]` | answer the oldest step (or step N) |
| `step N` | schedule and update, N times, each on one line |
| `drafts ID=tokens ... [step=N]` | drafts for the next step of each request, or for step N in flight |
| `grammar ID allows=1,2`, `then=1,2` or `error=why` | the grammar that a request waits for |
| `finish ID ... [status=aborted]` or `finish all` | end requests from outside |
| `pause new`, `pause all`, `pause off` | change the pause state |
| `reset [running]` | reset the prefix cache |
| `show queues`, `blocks`, `cache`, `requests`, `stats` or `events` | print a part of the state |
| `show output` or `mask` | print the last step, or its rows that sample under a grammar |
| `show flight` | print the drafts of the steps in flight |
| `show why` | print what each request would get in the next step, by which rule |

Options of `add`: `prompt` (its length) or `tokens=1,2,3` (the prompt itself), `prefix=NAME:N` (the first N
tokens of the prompt come from a text that requests share by name), `max_tokens` (16), `eos`, `stop=1,2`,
`min_tokens`, `repetition=MAX:COUNT`, `priority`, `arrival`, `client`, `salt`, `lora=NAME:ID`, `canvas`,
`denoise`; and `skip_reading`, `pooling`, `grammar`, `session`, each `yes` or `no`. `add`, `input`,
`schedule`, `update` and `reset` take `time`.

Token ids tell where they come from: position p of the k-th request or input is token 1000*k + p, of the
k-th shared text 1000000*k + p; what a session samples has the number of its first input. `update` answers
every row that finished its prompt with the next token of its request (or its pooled output), unless it is
named: `ID=7,8` samples those tokens, `ID=-` samples none, and `ID=+2` accepts two drafts and samples the
token behind them. `_` is -1, which pads drafts.
"""

from collections.abc import Callable
from typing import Any

from kvsched_fp import (
    InvalidConfig,
    InvalidEvent,
    PauseState,
    Request,
    RequestStatus,
    SamplingParams,
    SchedulerConfig,
    SchedulerOutput,
    SchedulerState,
    StepResult,
    add_request,
    fail_grammar,
    finish_requests,
    initial_state,
    reset_prefix_cache,
    schedule,
    set_grammar,
    set_pause_state,
    update,
    update_drafts,
    update_drafts_in_flight,
)
from kvsched_fp.config import Quirk
from kvsched_fp.ids import BlockHash, RequestId, StepId
from tests.scenarios import reading, render
from tests.scenarios.answers import Model, own_token
from tests.scenarios.language import Command
from tests.scenarios.reading import CommandError, integers, only

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
    "flight": render.render_flight,
    "why": render.render_reasons,
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


class Session:
    """One scheduler under a scenario's commands."""

    def __init__(self) -> None:
        self._start(None)

    def _start(self, state: SchedulerState | None) -> None:
        """Forget everything, and go on from `state`."""
        self._state = state
        self._output: SchedulerOutput | None = None
        self._model = Model()
        self._texts: dict[str, int] = {}
        self._num_requests = 0
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
        without = options.pop("without", None)
        values = {key: reading.config_value(text) for key, text in options.items()}
        if without is not None:
            values["quirks"] = [quirk for quirk in Quirk if quirk is not Quirk(without)]
        options.clear()
        config = SchedulerConfig.from_mapping(WORLD | values)
        self._start(initial_state(config))
        return render.render_config(config)

    def do_add(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Add a request."""
        request_id = RequestId(only(words))
        time = _time(options)
        self._state = add_request(self.state, self._request(request_id, options), time=time)
        self._num_requests += 1
        self._model.numbers[request_id] = self._num_requests
        return ""

    def do_input(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Add the next input of a session."""
        request_id = RequestId(only(words))
        number = self._model.numbers[request_id]
        options["session"] = "yes"
        printed = self.do_add(words, options)
        self._model.numbers[request_id] = number
        return printed

    def do_end(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """End a session."""
        self._state = add_request(self.state, self._request(RequestId(only(words)), {"prompt": "1"}))
        return ""

    def _request(self, request_id: RequestId, options: dict[str, str]) -> Request:
        number = self._num_requests + 1
        return Request(
            request_id=request_id,
            prompt_token_ids=self._prompt(number, options),
            sampling_params=SamplingParams(
                max_tokens=int(options.pop("max_tokens", 16)),
                min_tokens=int(options.pop("min_tokens", 0)),
                eos_token_id=reading.integer(options.pop("eos", None)),
                stop_token_ids=frozenset(integers(options.pop("stop", ""))),
                repetition_detection=reading.repetition(options.pop("repetition", None)),
                skip_reading_prefix_cache=reading.yes(options.pop("skip_reading", "no")),
            ),
            priority=int(options.pop("priority", 0)),
            arrival_time=float(options.pop("arrival", number)),
            client_index=int(options.pop("client", 0)),
            cache_salt=options.pop("salt", None),
            lora=reading.lora(options.pop("lora", None)),
            pooling=reading.yes(options.pop("pooling", "no")),
            needs_grammar=reading.yes(options.pop("grammar", "no")),
            resumable=reading.yes(options.pop("session", "no")),
            canvas_length=reading.integer(options.pop("canvas", None)),
            max_denoise_steps=reading.integer(options.pop("denoise", None)),
        )

    def _prompt(self, number: int, options: dict[str, str]) -> tuple[int, ...]:
        if "tokens" in options:
            return integers(options.pop("tokens"))
        length = int(options.pop("prompt"))
        text, _, num_shared = options.pop("prefix", ":0").partition(":")
        if int(num_shared):
            self._texts.setdefault(text, len(self._texts) + 1)
        shared = [1_000_000 * self._texts[text] + position for position in range(int(num_shared))]
        return (*shared, *(own_token(number, position) for position in range(int(num_shared), length)))

    def do_schedule(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Plan a step."""
        if words not in {(), ("throttle",)}:
            raise CommandError("schedule takes nothing, or throttle")
        before = self.state
        self._state, output = schedule(before, throttle_prefills=bool(words), time=_time(options))
        self._output = output
        self._model.run(self._state, output)
        return render.render_step(before, self._state, output)

    def do_update(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Answer a step."""
        if words:
            raise CommandError("update takes ID=tokens, pooled=ID and step=N")
        time = _time(options)
        oldest = self.state.in_flight[0].step_id if self.state.in_flight else StepId(0)
        step_id = StepId(int(options.pop("step", oldest)))
        sampled, pooled = self._model.answer(self.state, step_id)
        if "pooled" in options:
            pooled = tuple(RequestId(part) for part in options.pop("pooled").split(",") if part != "-")
        for name, text in options.items():
            request_id = RequestId(name)
            sampled[request_id] = (
                self._model.sample(self.state, step_id, request_id, int(text))
                if text.startswith("+")
                else integers(text)
            )
        options.clear()
        result = StepResult(step_id=step_id, sampled_token_ids=sampled, pooled_request_ids=pooled)
        self._state = update(self.state, result, time=time)
        return render.render_emitted(self._state)

    def do_drafts(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Take drafts in."""
        if words:
            raise CommandError("drafts takes ID=tokens and step=N")
        step_id = options.pop("step", None)
        drafts = {RequestId(request_id): integers(text) for request_id, text in options.items()}
        options.clear()
        if step_id is None:
            self._state = update_drafts(self.state, drafts)
        else:
            self._state = update_drafts_in_flight(self.state, StepId(int(step_id)), drafts)
        return ""

    def do_grammar(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Hand a request its grammar, or tell it that there is none."""
        request_id = RequestId(only(words))
        if "error" in options:
            self._state = fail_grammar(self.state, request_id, options.pop("error"))
        else:
            self._state = set_grammar(self.state, request_id, reading.grammar(options))
        return ""

    def do_step(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Schedule and update so many times."""
        lines = []
        for _ in range(int(only(words))):
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
        self._state = set_pause_state(self.state, PAUSES[only(words)])
        return ""

    def do_reset(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        """Reset the prefix cache."""
        if words not in {(), ("running",)}:
            raise CommandError("reset takes nothing, or running")
        self._state, done = reset_prefix_cache(
            self.state, reset_running_requests=bool(words), time=_time(options)
        )
        return "done" if done else "refused: blocks are held"

    def do_show(self, words: tuple[str, ...], _options: dict[str, str]) -> str:
        """Print a part of the state."""
        what = only(words)
        if what in {"output", "mask"}:
            if self._output is None:
                raise CommandError("no step yet")
            return (
                render.render_output(self._output)
                if what == "output"
                else render.render_mask(self.state, self._output)
            )
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
        for request_id in self._model.numbers:
            progress = self._state.progress.get(request_id)
            for index, block_hash in enumerate(() if progress is None else progress.block_hashes):
                tokens = f"{index * block_size}:{(index + 1) * block_size}"
                self._labels.setdefault(block_hash, f"{request_id}[{tokens}]")


def _time(options: dict[str, str]) -> float:
    return float(options.pop("time", 0.0))
