"""How small a history is, and what makes one event or a configuration simpler.

Everything here gives candidates; whether one still differs, and whether its events fit each other, is for
`shrink.py` to find out. A candidate may be no smaller, or make no sense.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs

from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidConfig
from kvsched_fp.events import AddRequest, Event, FinishRequests, ResetPrefixCache, Schedule, Update
from kvsched_fp.ids import RequestId
from kvsched_fp.request import Request, RequestStatus, SamplingParams

Size: TypeAlias = tuple[int, ...]
"""The first number that is smaller decides."""
Rows: TypeAlias = Mapping[RequestId, tuple[int, ...]]
"""What a step sampled for each request."""

MAX_TOKENS_ONE_BY_ONE = 24
"""Tokens of one request that are made zero one by one; of more, only all at once."""


# How small a history is.


def measure(config: SchedulerConfig, events: Sequence[Event]) -> Size:
    """Give the size of a history.

    That is: its events; the fields of the configuration that are not at their defaults; what is set in
    events; the tokens in prompts, outputs and results; the sum of the configuration's numbers; the sum of
    all token ids; how late requests arrive.
    """
    weights = [_weigh(event) for event in events]
    return (
        len(events),
        sum(1 for _ in _deviations(config)),
        sum(num_set for num_set, _, _ in weights),
        sum(num_tokens for _, num_tokens, _ in weights),
        _sum_numbers(config),
        sum(sum_of_ids for _, _, sum_of_ids in weights),
        sum(index for index, event in enumerate(events) if isinstance(event, AddRequest)),
    )


def _weigh(event: Event) -> tuple[int, int, int]:
    """Count what is set in an event, and its tokens; give the sum of its token ids, too."""
    match event:
        case AddRequest(request):
            params, prompt = request.sampling_params, request.prompt_token_ids
            num_set = len(_fields_set(request, _PLAIN_REQUEST)) + len(_fields_set(params, _PLAIN_PARAMS))
            return num_set, len(prompt) + params.max_tokens, sum(prompt)
        case Update(result):
            rows = result.sampled_token_ids.values()
            return len(rows), sum(map(len, rows)), sum(map(sum, rows))
        case FinishRequests(request_ids, status):
            num_named = 2 if request_ids is None else len(request_ids)
            return num_named + (status is not RequestStatus.FINISHED_ABORTED), 0, 0
        case Schedule(is_set) | ResetPrefixCache(is_set):
            return int(is_set), 0, 0
    return 0, 0, 0


def _fields_set(record: object, plain: Mapping[str, Any]) -> list[str]:
    return [name for name, value in plain.items() if getattr(record, name) != value]


def _defaults(kind: type) -> Mapping[str, Any]:
    fields = attrs.fields(kind)
    return {field.name: field.default for field in fields if field.default is not attrs.NOTHING}


_PLAIN_REQUEST = _defaults(Request)
_PLAIN_PARAMS = _defaults(SamplingParams)


# Simpler events.


def simpler_events(event: Event) -> Iterator[Event]:
    """Give the event with less in it."""
    match event:
        case AddRequest(request):
            yield from map(AddRequest, _simpler_requests(request))
        case Update(result):
            for rows in _simpler_rows(result.sampled_token_ids):
                yield Update(attrs.evolve(result, sampled_token_ids=rows))
        case FinishRequests(request_ids, status):
            for request_id in request_ids or ():
                yield FinishRequests((request_id,), status)
            yield FinishRequests(request_ids)
        case Schedule(throttle_prefills=True):
            yield Schedule()
        case ResetPrefixCache(reset_running_requests=True):
            yield ResetPrefixCache()


def _simpler_requests(request: Request) -> Iterator[Request]:
    prompt = request.prompt_token_ids
    half = len(prompt) // 2
    for shorter in dict.fromkeys((prompt[:half], prompt[half:], prompt[:-1], prompt[1:])):
        if 0 < len(shorter) < len(prompt):
            yield attrs.evolve(request, prompt_token_ids=shorter)
    for params in _simpler_params(request.sampling_params):
        yield attrs.evolve(request, sampling_params=params)
    for name in _fields_set(request, _PLAIN_REQUEST):
        yield attrs.evolve(request, **{name: _PLAIN_REQUEST[name]})
    for simpler in _with_zeros(prompt):
        yield attrs.evolve(request, prompt_token_ids=simpler)


def _simpler_params(params: SamplingParams) -> Iterator[SamplingParams]:
    for fewer in dict.fromkeys((params.max_tokens // 2, params.max_tokens - 1)):
        if fewer >= max(params.min_tokens, 1):
            yield attrs.evolve(params, max_tokens=fewer)
    for name in _fields_set(params, _PLAIN_PARAMS):
        yield attrs.evolve(params, **{name: _PLAIN_PARAMS[name]})


def _simpler_rows(rows: Rows) -> Iterator[Rows]:
    for request_id, token_ids in rows.items():
        yield {name: row for name, row in rows.items() if name != request_id}
        if len(token_ids) > 1:
            yield {**rows, request_id: token_ids[:-1]}
        for simpler in _with_zeros(token_ids):
            yield {**rows, request_id: simpler}


def _with_zeros(token_ids: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if any(token_ids):
        yield (0,) * len(token_ids)
    if len(token_ids) <= MAX_TOKENS_ONE_BY_ONE:
        for index, token_id in enumerate(token_ids):
            if token_id:
                yield (*token_ids[:index], 0, *token_ids[index + 1 :])


# Simpler configurations.


_DEFAULTS: Mapping[str, Any] = attrs.asdict(SchedulerConfig(), recurse=False)
_LEAST: Mapping[str, int] = {
    "num_blocks": 2,
    "block_size": 1,
    "max_model_len": 1,
    "max_num_seqs": 1,
    "max_num_active_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_num_scheduled_tokens": 1,
    "long_prefill_token_threshold": 1,
    "prefill_schedule_interval": 1,
    "num_lookahead_tokens": 0,
}
"""The numbers of a configuration that can be lowered, and how far."""


def _deviations(config: SchedulerConfig) -> Iterator[str]:
    """Name the fields that are not at their defaults."""
    for name, default in _DEFAULTS.items():
        value = getattr(config, name)
        if name == "kv_cache_groups":
            if len(value) > 1:  # their size of blocks is another field
                yield name
        elif value != default and name != "block_hasher":  # how blocks are named makes nothing simpler
            yield name


def _sum_numbers(config: SchedulerConfig) -> int:
    numbers: list[int] = [getattr(config, name) or 0 for name in _LEAST]
    return sum(numbers) + len(config.kv_cache_groups)


def simpler_configs(config: SchedulerConfig) -> Iterator[SchedulerConfig]:
    """Give the configuration with one field at its default, or with a lower number."""
    for name in _deviations(config):
        if name == "kv_cache_groups":
            yield from _evolved(config, kv_cache_groups=config.kv_cache_groups[:1])
        else:
            yield from _with_number(config, name, _DEFAULTS[name])
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value is not None:
            for lower in dict.fromkeys((least, value // 2, value - 1)):
                if least <= lower < value:
                    yield from _with_number(config, name, lower)


def with_fewer_blocks(config: SchedulerConfig, num_fewer: int) -> Iterator[SchedulerConfig]:
    """Give the configuration with a smaller pool, if there is one."""
    yield from _evolved(config, num_blocks=config.num_blocks - num_fewer)


def _with_number(config: SchedulerConfig, name: str, value: Any) -> Iterator[SchedulerConfig]:
    if name != "block_size":
        yield from _evolved(config, **{name: value})
        return
    groups = [attrs.evolve(cast("Any", group), block_size=value) for group in config.kv_cache_groups]
    yield from _evolved(config, block_size=value, kv_cache_groups=groups)


def _evolved(config: SchedulerConfig, **changes: Any) -> Iterator[SchedulerConfig]:
    """Give the changed configuration, unless it is none."""
    with contextlib.suppress(InvalidConfig):
        yield attrs.evolve(config, **changes)
