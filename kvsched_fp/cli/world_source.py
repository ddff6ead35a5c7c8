"""The world that `explore` searches: a preset, and what the command line changes in it."""

import enum
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from kvsched_fp.cli.config_source import parse_assignment, read_config
from kvsched_fp.config import SchedulerConfig
from kvsched_fp.errors import InvalidInputError
from kvsched_fp.events import PauseState
from kvsched_fp.explore.goals import GOALS
from kvsched_fp.explore.world import RequestKind, World
from kvsched_fp.trace.codec import encode_config

OUTSIDE: dict[str, dict[str, Any]] = {
    "aborts": {"aborts": True},
    "stops": {"stops": True},
    "pauses": {"pauses": (PauseState.PAUSED_NEW, PauseState.PAUSED_ALL)},
    "resets": {"resets": (False, True)},
    "throttles": {"throttles": True},
}
"""What may happen besides, by name, as fields of a `World`."""

_KEYS = {
    "prompt": "num_prompt_tokens",
    "shared": "num_shared_tokens",
    "output": "max_tokens",
    "count": "count",
    "priority": "priority",
    "lora": "lora_id",
    "grammar": "needs_grammar",
    "inputs": "num_inputs",
}
"""The keys of `--request`, as fields of a `RequestKind`."""


@attrs.frozen(kw_only=True)
class WorldOptions:
    """What the command line asks for."""

    config_file: Path | None = None
    """A configuration in the place of the preset's."""
    assignments: tuple[str, ...] = ()
    """Single fields over that."""
    requests: tuple[str, ...] = ()
    """Kinds of request in the place of the preset's."""
    max_in_flight: int | None = None
    """The most steps in flight."""
    added: tuple[str, ...] = ()
    """What may happen besides."""
    removed: tuple[str, ...] = ()
    """What may not."""
    goals: tuple[str, ...] = ()
    """Goals in the place of the preset's."""


def make_world(preset: World, options: WorldOptions) -> World:
    """Change a preset. Raises `InvalidInputError` for what makes no world, or contradicts itself."""
    for name in options.added:
        if name in options.removed:
            raise InvalidInputError("--with", name, f"nothing that --without {name} takes away")
    changes: dict[str, Any] = {}
    if options.config_file is not None or options.assignments:
        changes["config"] = read_config(options.config_file, options.assignments, preset.config)
    if options.requests:
        changes["kinds"] = tuple(
            _read_kind(text, "abcdefghi"[index % 9]) for index, text in enumerate(options.requests)
        )
    if options.max_in_flight is not None:
        changes["max_in_flight"] = options.max_in_flight
    for name in options.added:
        changes |= OUTSIDE[name]
    for name in options.removed:
        changes |= {field: type(value)() for field, value in OUTSIDE[name].items()}
    changes = {field: value for field, value in changes.items() if value != getattr(preset, field)}
    if not changes and not options.goals:
        return preset
    # What was written for the preset need not be reachable in another world.
    changes["goals"] = _known_goals(options.goals) if options.goals else ()
    if len(changes) > 1:
        changes |= {"name": f"{preset.name}, changed", "about": ""}
    return attrs.evolve(preset, **changes)


def encode_changes(preset: World, world: World) -> dict[str, Any]:
    """Give what makes `world` out of `preset`, by option of the command line, as plain JSON values.

    A configuration file is among the fields that `--set` sets. What is as in the preset is left out.
    """
    is_added = {
        name: all(getattr(world, field) == value for field, value in fields.items())
        for name, fields in OUTSIDE.items()
        if any(getattr(world, field) != getattr(preset, field) for field in fields)
    }
    changes = {
        "set": _encode_config_changes(preset.config, world.config),
        "request": [] if world.kinds == preset.kinds else list(map(_write_kind, world.kinds)),
        "in-flight": None if world.max_in_flight == preset.max_in_flight else world.max_in_flight,
        "with": [name for name, added in is_added.items() if added],
        "without": [name for name, added in is_added.items() if not added],
        "goal": [] if world.goals == preset.goals else list(world.goals),
    }
    return {option: value for option, value in changes.items() if value}


def _encode_config_changes(before: SchedulerConfig, after: SchedulerConfig) -> dict[str, Any]:
    """Give the fields of `after` that differ, as `--set` reads them."""
    encoded = encode_config(after)  # which leaves fields out that have their default
    return {
        field.name: encoded.get(field.name, _encode_default(getattr(after, field.name)))
        for field in attrs.fields(SchedulerConfig)
        if getattr(after, field.name) != getattr(before, field.name)
    }


def _encode_default(value: object) -> object:
    """Give the default of a field as a plain JSON value."""
    if isinstance(value, tuple):
        return [_encode_default(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


def _known_goals(names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in GOALS:
            raise InvalidInputError("--goal", name, f"one of {', '.join(GOALS)}")
    return tuple(dict.fromkeys(names))


def _read_kind(text: str, name: str) -> RequestKind:
    """Read `prompt=3,output=2,count=2`."""
    fields: dict[str, Any] = {}
    for part in text.split(","):
        try:
            key, value = parse_assignment(part.strip())
        except InvalidInputError:
            raise InvalidInputError("--request", text, "KEY=VALUE, separated by commas") from None
        if key not in _KEYS:
            raise InvalidInputError(f"--request key {key!r}", value, f"one of {', '.join(_KEYS)}")
        if key == "grammar":
            is_allowed, allowed = type(value) is bool, "true or false"
        else:
            is_allowed, allowed = type(value) is int, "an integer"
        if not is_allowed:
            raise InvalidInputError(f"--request {key}", value, allowed)
        if _KEYS[key] in fields:
            raise InvalidInputError("--request", text, f"one value for {key}")
        fields[_KEYS[key]] = value
    if "num_prompt_tokens" not in fields:
        raise InvalidInputError("--request", text, "with prompt=N, the tokens of the prompt")
    return RequestKind(name=name, **fields)


def _write_kind(kind: RequestKind) -> str:
    """Write a kind of request as `_read_kind` reads it."""
    values = ((key, getattr(kind, field)) for key, field in _KEYS.items())
    defaults = attrs.fields_dict(RequestKind)
    return ",".join(
        f"{key}={json.dumps(value)}" for key, value in values if value != defaults[_KEYS[key]].default
    )
