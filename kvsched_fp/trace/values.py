"""Codecs: a way to write a kind of value as JSON, and to read it back.

Rules
-----
Equal values give equal text: ASCII without white space, the order of keys is fixed, sets are sorted, and a
map whose order matters is a list of pairs. `decode(encode(value)) == value`; only `SORTED_TEXTS` forgets an
order. Decoding checks the shape of everything, and raises `CodecError`, which names the place in the
record. Every codec also describes what it writes as JSON Schema.

The text is put together directly: a trace has millions of values, and most of them are numbers and names.
"""

import enum
import json as json_format
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from json.encoder import encode_basestring_ascii
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from kvsched_fp.errors import MISSING, InvalidInputError
from kvsched_fp.ordered import OrderedMap
from kvsched_fp.trace.runs import MIN_RUN, write_integers

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A plain JSON value."""

Schema: TypeAlias = dict[str, Any]
"""A piece of JSON Schema."""

T = TypeVar("T")
U = TypeVar("U")

MAX_RUN_TOTAL = 2**23
"""The most integers that the runs of one record may stand for; they then take some 300 MB."""


class CodecError(InvalidInputError):
    """A JSON value that is not what stands there in a trace; `field` is the path to it."""


REQUIRED = object()
"""In place of a default: the field is always there."""


@attrs.frozen
class Codec(Generic[T]):
    """How one kind of value is written and read."""

    write: Callable[[T], str]
    """From the value to the text of its JSON."""
    decode: Callable[[Any, str], T]
    """From JSON to the value; the text is the path to it, for errors."""
    schema: Schema
    """What the JSON looks like, as JSON Schema."""
    default: Any = REQUIRED
    """For a field that may be left out: the value that it has then."""

    def encode(self, value: T) -> Any:
        """Give the value as JSON."""
        return json_format.loads(self.write(value))


def unless(default: Any, codec: Codec[Any]) -> Codec[Any]:
    """Leave a field out of its record while it is at `default`: what came later changes no older trace."""
    return attrs.evolve(codec if default is not None else optional(codec), default=default)


def _checked(expected: type[T], allowed: str, schema_type: str, write: Callable[[T], str]) -> Codec[T]:
    def decode(json: Any, path: str) -> T:
        if type(json) is not expected:
            raise CodecError(path, json, allowed)
        return json

    return Codec(write, decode, {"type": schema_type})


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


BOOLEAN: Codec[bool] = _checked(bool, "true or false", "boolean", _write_boolean)
INTEGER: Codec[int] = _checked(int, "an integer", "integer", str)
TEXT: Codec[str] = _checked(str, "a text", "string", encode_basestring_ascii)


def _write_number(value: float) -> str:
    # JSON has no infinities and no NaN, and the machine takes any arrival time.
    return repr(float(value)) if math.isfinite(value) else f'"{float(value)}"'


def _decode_number(json: Any, path: str) -> float:
    if type(json) is float and math.isfinite(json):
        return json
    if type(json) is int and abs(json) <= MAX_WHOLE_NUMBER:
        return float(json)
    if type(json) is str and json in _NAMED_NUMBERS:
        return float(json)
    raise CodecError(path, json, 'a number that a double can hold, or "inf", "-inf", "nan"')


MAX_WHOLE_NUMBER = 2**53
"""The largest number that may be written without a point where any number may stand."""
_NAMED_NUMBERS = ("inf", "-inf", "nan")

NUMBER: Codec[float] = Codec(
    _write_number, _decode_number, {"anyOf": [{"type": "number"}, {"enum": list(_NAMED_NUMBERS)}]}
)


def _decode_bytes(json: Any, path: str) -> bytes:
    if type(json) is str:
        try:
            value = bytes.fromhex(json)
        except ValueError:
            pass
        else:
            if value.hex() == json:
                return value
    raise CodecError(path, json, "bytes as hexadecimal digits, in lower case")


def _write_bytes(value: bytes) -> str:
    return f'"{value.hex()}"'


HEX: Codec[bytes] = Codec(_write_bytes, _decode_bytes, {"type": "string", "pattern": "^([0-9a-f]{2})*$"})


def optional(codec: Codec[T]) -> Codec[T | None]:
    """Write None as null, anything else by `codec`."""
    write_value = codec.write

    def write(value: T | None) -> str:
        return "null" if value is None else write_value(value)

    def decode(json: Any, path: str) -> T | None:
        return None if json is None else codec.decode(json, path)

    return Codec(write, decode, {"anyOf": [{"type": "null"}, codec.schema]})


def tuple_of(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """Write a tuple as a list."""
    write_item = codec.write

    def write(values: tuple[T, ...]) -> str:
        return f"[{','.join(map(write_item, values))}]"

    def decode(json: Any, path: str) -> tuple[T, ...]:
        items = enumerate(_require_list(json, path))
        return tuple(codec.decode(item, f"{path}[{index}]") for index, item in items)

    return Codec(write, decode, {"type": "array", "items": codec.schema})


def _write_sorted(texts: tuple[str, ...]) -> str:
    return tuple_of(TEXT).write(tuple(sorted(texts)))


def _decode_sorted(json: Any, path: str) -> tuple[str, ...]:
    texts = tuple_of(TEXT).decode(json, path)
    if list(texts) != sorted(set(texts)):
        raise CodecError(path, json, "texts in ascending order, each once")
    return texts


SORTED_TEXTS: Codec[tuple[str, ...]] = Codec(
    _write_sorted, _decode_sorted, {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
)
"""Texts whose order is not told: sorted by code point."""


def map_of(keys: Codec[T], values: Codec[U]) -> Codec[OrderedMap[T, U]]:
    """Write an ordered map as a list of [key, value] pairs."""
    write_key, write_value = keys.write, values.write

    def write(items: Mapping[T, U]) -> str:
        return f"[{','.join([f'[{write_key(key)},{write_value(value)}]' for key, value in items.items()])}]"

    decode_key, decode_value = keys.decode, values.decode

    def decode(json: Any, path: str) -> OrderedMap[T, U]:
        made: dict[T, U] = {}
        for index, pair in enumerate(_require_list(json, path)):
            if type(pair) is not list or len(pair) != 2:
                raise CodecError(f"{path}[{index}]", pair, "a pair [key, value]")
            try:
                key, value = decode_key(pair[0], path), decode_value(pair[1], path)
            except CodecError:  # once more, to say where: most maps are large, and right
                decode_key(pair[0], f"{path}[{index}][0]")
                decode_value(pair[1], f"{path}[{index}][1]")
                raise
            if key in made:
                raise CodecError(f"{path}[{index}][0]", key, "each key once")
            made[key] = value
        return OrderedMap.adopt(made)

    pair = {"type": "array", "prefixItems": [keys.schema, values.schema], "minItems": 2, "maxItems": 2}
    return Codec(write, decode, {"type": "array", "items": pair})


E_ = TypeVar("E_", bound=enum.Enum)


def enum_of(kind: type[E_]) -> Codec[E_]:
    """Write a member as its value."""
    texts = {member: json_format.dumps(member.value) for member in kind}

    def decode(json: Any, path: str) -> E_:
        for member in kind:
            if type(json) is type(member.value) and json == member.value:
                return member
        raise CodecError(path, json, "one of " + ", ".join(repr(member.value) for member in kind))

    return Codec(texts.__getitem__, decode, {"enum": [member.value for member in kind]})


def record(kind: type[T], **fields: Codec[Any]) -> Codec[T]:
    """Write an attrs record as an object with its fields, in the order given here.

    All fields of `kind` are named, so that one that is added later cannot be forgotten.
    """
    names = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]
    if set(names) != set(fields):
        raise TypeError(f"{kind.__name__}: a codec for {list(fields)}, but it has {names}")
    writers = [(f',"{name}":', name, codec.write, codec.default) for name, codec in fields.items()]
    may_be_left_out = {name for name, codec in fields.items() if codec.default is not REQUIRED}

    def write(value: T) -> str:
        text = ""
        for key, name, write_field, default in writers:
            item = getattr(value, name)
            if default is REQUIRED or item != default:
                text += key + write_field(item)
        return f"{{{text[1:]}}}"

    def decode(json: Any, path: str) -> T:
        require_keys(json, path, fields, may_be_left_out)
        values = {
            name: codec.decode(json[name], f"{path}.{name}" if path else name)
            for name, codec in fields.items()
            if name not in may_be_left_out or name in json
        }
        return _construct(kind, values, path)

    properties = {name: codec.schema for name, codec in fields.items()}
    return Codec(write, decode, object_schema(properties, may_be_left_out))


def object_schema(properties: Mapping[str, Schema], optional_keys: Iterable[str] = ()) -> Schema:
    """Describe an object with these keys and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [key for key in properties if key not in optional_keys],
        "additionalProperties": False,
    }


def union(**records: tuple[type[Any], Codec[Any]]) -> Codec[Any]:
    """Write a value of one of several records, with its name in front under the key `kind`."""
    names = {kind: name for name, (kind, _) in records.items()}
    codecs = {name: codec for name, (_, codec) in records.items()}

    def write(value: Any) -> str:
        name = names.get(type(value))
        if name is None:
            raise CodecError("kind", type(value).__name__, f"one of {', '.join(codecs)}")
        fields = codecs[name].write(value)
        return f'{{"kind":"{name}"' + ("}" if fields == "{}" else f",{fields[1:]}")

    def decode(json: Any, path: str) -> Any:
        kind = json.get("kind") if type(json) is dict else None
        codec = codecs.get(kind) if type(kind) is str else None
        if codec is None:
            allowed = f'an object whose "kind" is one of {", ".join(codecs)}'
            raise CodecError(path, json, allowed)
        return codec.decode({key: value for key, value in json.items() if key != "kind"}, path)

    members = [
        object_schema(
            {"kind": {"const": name}, **codec.schema["properties"]},
            codec.schema["properties"].keys() - set(codec.schema["required"]),
        )
        for name, codec in codecs.items()
    ]
    return Codec(write, decode, {"anyOf": members})


def _construct(kind: type[T], values: dict[str, Any], path: str) -> T:
    try:
        return kind(**values)
    except CodecError:
        raise
    except InvalidInputError as error:
        field = f"{path}.{error.field}" if path else error.field
        raise CodecError(field, error.value, error.allowed) from None


def _require_list(json: Any, path: str) -> list[Any]:
    if type(json) is not list:
        raise CodecError(path, json, "a list")
    return json


def require_keys(json: Any, path: str, keys: Iterable[str], optional_keys: Collection[str] = ()) -> None:
    """Raise `CodecError` unless `json` is an object with these keys, and no others; some may be missing."""
    needed = [key for key in keys if key not in optional_keys]
    if type(json) is dict and json.keys() <= set(keys) and len(needed) <= len(json):
        missing = [key for key in needed if key not in json]
        if not missing:
            return
    allowed = f"an object with the keys {', '.join(needed) or 'none'}"
    if optional_keys:
        allowed += f", and any of {', '.join(key for key in keys if key in optional_keys)}"
    if type(json) is dict:
        for key in needed:
            if key not in json:
                raise CodecError(f"{path}.{key}" if path else key, MISSING, allowed)
    raise CodecError(path, json, allowed)


@contextmanager
def one_record() -> Iterator[None]:
    """Read what stands in one record: a short text must not ask for endless memory, list by list."""
    token = _run_allowance.set(_Allowance())
    try:
        yield
    finally:
        _run_allowance.reset(token)


class _Allowance:
    """How many integers the runs of a record may still stand for."""

    def __init__(self) -> None:
        self.left = MAX_RUN_TOTAL

    def take(self, count: int) -> bool:
        self.left -= count
        return self.left >= 0


# Which list is one of integers is known where it is decoded, deep inside of a record: a parameter for it
# would go through every codec.
_run_allowance: ContextVar[_Allowance | None] = ContextVar("run_allowance", default=None)


def _decode_integers(json: Any, path: str) -> tuple[int, ...]:
    if type(json) is list and len(json) == 1 and type(json[0]) is int:
        return (json[0],)
    values: list[int] = []
    for index, item in enumerate(_require_list(json, path)):
        if type(item) is int:
            values.append(item)
        elif _is_run(item) and (_run_allowance.get() or _Allowance()).take(item[1]):
            values.extend(range(item[0], item[0] + item[1]))
        else:
            raise CodecError(
                f"{path}[{index}]",
                item,
                f"an integer, or a run [first, count] of {MIN_RUN} or more; runs of at most "
                f"{MAX_RUN_TOTAL} integers in all",
            )
    return tuple(values)


def _is_run(item: Any) -> bool:
    return (
        type(item) is list
        and len(item) == 2
        and type(item[0]) is int
        and type(item[1]) is int
        and item[1] >= MIN_RUN
    )


_RUN = {
    "type": "array",
    "prefixItems": [{"type": "integer"}, {"type": "integer", "minimum": MIN_RUN}],
    "minItems": 2,
    "maxItems": 2,
}
_INTEGERS_SCHEMA = {"type": "array", "items": {"anyOf": [{"type": "integer"}, _RUN]}}

INTEGERS: Codec[tuple[int, ...]] = Codec(write_integers, _decode_integers, _INTEGERS_SCHEMA)
"""A tuple of integers, its runs shortened."""


def _write_set(values: frozenset[int]) -> str:
    return write_integers(tuple(sorted(values)))


def _decode_set(json: Any, path: str) -> frozenset[int]:
    return frozenset(_decode_integers(json, path))


INTEGER_SET: Codec[frozenset[int]] = Codec(_write_set, _decode_set, _INTEGERS_SCHEMA)
"""A set of integers, sorted, its runs shortened."""
