"""A small world: a configuration, the requests that may come, and what else may happen.

A `World` bounds what the outside may do: who may come, how many steps are in flight, which tokens are
sampled, whether requests are ended, the engine is paused, the cache is reset. Within these bounds
everything may happen, in every order.

No id is used twice (deviation D-05 in `specs/fidelity.md` is about what happens if one is).
"""

from collections.abc import Iterable

import attrs

from kvsched_fp.config import RunnerType, SchedulerConfig
from kvsched_fp.errors import InvalidConfig, InvalidInputError
from kvsched_fp.events import PauseState
from kvsched_fp.grammar import AutomatonGrammar
from kvsched_fp.ids import RequestId
from kvsched_fp.request import LoRA, Request, SamplingParams

PLAIN = 7
"""A token that ends nothing. Drafts are of it, too."""
STOP = 8
"""The end of sequence."""
SHARED = 1
"""The token that prompts begin with where they begin alike."""
OWN = 100
"""The tokens of the kinds' own prompts count up from here."""

GRAMMAR = AutomatonGrammar(moves=(((PLAIN, 1), (STOP, 2)), ((STOP, 2),), ()))
"""The grammar of all requests that need one: at most one `PLAIN`, then `STOP`."""

MAX_REQUESTS = 9
"""More requests make a world that nobody can search."""


@attrs.frozen(kw_only=True)
class RequestKind:
    """Requests that differ in their ids alone."""

    name: str
    """What their ids end with."""
    num_prompt_tokens: int
    """Tokens of the prompt."""
    num_shared_tokens: int = 0
    """Of those, how many at the front are alike in all kinds. The rest is alike within the kind."""
    max_tokens: int = 1
    """The most output tokens."""
    count: int = 1
    """How many of them may come."""
    priority: int = 0
    """Smaller is more important."""
    lora_id: int | None = None
    """The adapter that they need."""
    needs_grammar: bool = False
    """Whether they wait for a grammar; it comes, or fails."""
    num_inputs: int = 0
    """For sessions: how many inputs of one token follow the first; then comes the end. 0 for no session."""
    skip_reading_prefix_cache: bool = False
    """Whether they compute what is cached, too."""

    def __attrs_post_init__(self) -> None:
        for name, least in (
            ("num_prompt_tokens", 1),
            ("num_shared_tokens", 0),
            ("max_tokens", 1),
            ("count", 1),
            ("num_inputs", 0),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidInputError(f"{name} of request {self.name}", value, f"an integer >= {least}")
        if self.num_shared_tokens > self.num_prompt_tokens:
            allowed = f"at most num_prompt_tokens = {self.num_prompt_tokens}"
            raise InvalidInputError(
                f"num_shared_tokens of request {self.name}", self.num_shared_tokens, allowed
            )


def _freeze_kinds(kinds: Iterable[RequestKind]) -> tuple[RequestKind, ...]:
    return tuple(kinds)


@attrs.frozen(kw_only=True)
class World:
    """What may happen, in every order."""

    name: str
    """What it is called."""
    about: str = ""
    """What it is made for, in a line."""
    config: SchedulerConfig
    """The scheduler; one that generates tokens."""
    kinds: tuple[RequestKind, ...] = attrs.field(converter=_freeze_kinds)
    """Who may come."""
    max_in_flight: int = 1
    """The most steps in flight."""
    stops: bool = False
    """Whether any sampled token may be the end of sequence."""
    aborts: bool = False
    """Whether any live request may be ended from outside at any time."""
    pauses: tuple[PauseState, ...] = ()
    """To which states the engine may be paused at any time; from each, it may go on."""
    resets: tuple[bool, ...] = ()
    """Which resets of the prefix cache may come at any time: with or without the running requests."""
    throttles: bool = False
    """Whether any step may be asked to hold prompts back."""
    goals: tuple[str, ...] = ()
    """Names of situations that must be reached (`kvsched_fp/explore/goals.py`)."""

    def __attrs_post_init__(self) -> None:
        if self.config.runner_type is not RunnerType.GENERATE:
            raise InvalidConfig("runner_type", self.config.runner_type.value, "'generate', in a world")
        if type(self.max_in_flight) is not int or self.max_in_flight < 1:
            raise InvalidInputError("max_in_flight", self.max_in_flight, "an integer >= 1")
        names = [kind.name for kind in self.kinds]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("requests", names, "at least one kind, with a name of its own each")
        if self.num_requests > MAX_REQUESTS:
            raise InvalidInputError("requests", self.num_requests, f"at most {MAX_REQUESTS} in all")
        for kind in self.kinds:
            self._check_kind(kind)

    @property
    def num_requests(self) -> int:
        """How many requests may come in all."""
        return sum(kind.count for kind in self.kinds)

    def make_request(self, kind_index: int, number: int) -> Request:
        """Make the request that comes as the `number`-th, from 1.

        Ids sort in the order in which their requests come: where the scheduler breaks a tie by id, the
        earlier request wins, and the names of the others do not matter.
        """
        kind = self.kinds[kind_index]
        num_own = kind.num_prompt_tokens - kind.num_shared_tokens
        return Request(
            request_id=RequestId(f"{number}{kind.name}"),
            prompt_token_ids=(SHARED,) * kind.num_shared_tokens + (OWN + kind_index,) * num_own,
            sampling_params=self._sampling_params(kind),
            priority=kind.priority,
            lora=None if kind.lora_id is None else LoRA(f"adapter-{kind.lora_id}", kind.lora_id),
            needs_grammar=kind.needs_grammar,
            resumable=kind.num_inputs > 0,
        )

    def make_input(self, kind_index: int, request_id: RequestId, *, is_end: bool) -> Request:
        """Make the next input of a session, or its end."""
        kind = self.kinds[kind_index]
        return Request(
            request_id=request_id,
            prompt_token_ids=(OWN + kind_index,),
            sampling_params=self._sampling_params(kind),
            priority=kind.priority,
            resumable=not is_end,
        )

    def _sampling_params(self, kind: RequestKind) -> SamplingParams:
        return SamplingParams(
            max_tokens=kind.max_tokens,
            eos_token_id=STOP,
            skip_reading_prefix_cache=kind.skip_reading_prefix_cache,
        )

    def _check_kind(self, kind: RequestKind) -> None:
        num_tokens, most = kind.num_prompt_tokens, self.config.max_model_len
        if num_tokens > most:
            raise InvalidInputError(
                f"num_prompt_tokens of request {kind.name}", num_tokens, f"at most max_model_len = {most}"
            )
        if kind.lora_id is not None and self.config.max_loras is None:
            raise InvalidInputError(
                f"lora_id of request {kind.name}", kind.lora_id, "None: max_loras is not configured"
            )
        if kind.num_inputs and self.config.num_spec_tokens:
            # Drafts behind the token that stopped a session are refused with its next input.
            raise InvalidInputError(
                f"num_inputs of request {kind.name}", kind.num_inputs, "0, with num_spec_tokens"
            )
