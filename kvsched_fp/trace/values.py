"""Codecs: a way to write a kind of value as JSON, and to read it back.

Rules
-----
Equal values give equal JSON: the order of keys is fixed, sets are sorted, and a map whose order matters
is a list of pairs. `decode(encode(value)) == value`; only `SORTED_TEXTS` forgets an order. Decoding checks
the shape of everything, and raises `CodecError`, which names the place in the record. Every codec also
describes what it writes as JSON Schema.

Lists of integers are shortened: a run of at least `MIN_RUN` consecutive integers is written as the pair
[first, count] inside the list, so `[7, [100, 512]]` is 7 followed by 100 to 611.
"""

import enum
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from kvsched_fp.errors import InvalidInputError
from kvsched_fp.ordered import OrderedMap

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A plain JSON value."""

Schema: TypeAlias = dict[str, Any]
"""A piece of JSON Schema."""

T = TypeVar("T")
U = TypeVar("U")

MIN_RUN = 3
"""Shorter runs are written as the integers themselves."""
MAX_LIST_LENGTH = 2**25
"""The most integers that a list may stand for, so that a short text cannot ask for endless memory."""


class CodecError(InvalidInputError):
    """A JSON value that is not what stands there in a trace; `field` is the path to it."""


REQUIRED = object()
"""In place of a default: the field is always there."""


@attrs.frozen
class Codec(Generic[T]):
    """How one kind of value is written and read."""

    encode: Callable[[T], Any]
    """From the value to JSON."""
    decode: Callable[[Any, str], T]
    """From JSON to the value; the text is the path to it, for errors."""
    schema: Schema
    """What the JSON looks like, as JSON Schema."""
    default: Any = REQUIRED
    """For a field that may be left out: the value that it has then."""


def unless(default: Any, codec: Codec[T]) -> Codec[T]:
    """Leave a field out of its record while it is at `default`: what came later changes no older trace."""
    return attrs.evolve(codec, default=default)


def _checked(expected: type[T], allowed: str, schema_type: str) -> Codec[T]:
    def decode(json: Any, path: str) -> T:
        if type(json) is not expected:
            raise CodecError(path, json, allowed)
        return json

    return Codec(_same, decode, {"type": schema_type})


def _same(value: T) -> T:
    return value


BOOLEAN: Codec[bool] = _checked(bool, "true or false", "boolean")
INTEGER: Codec[int] = _checked(int, "an integer", "integer")
TEXT: Codec[str] = _checked(str, "a text", "string")


def _encode_number(value: float) -> float | str:
    # JSON has no infinities and no NaN, and the machine takes any arrival time.
    return float(value) if math.isfinite(value) else str(float(value))


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
    _encode_number, _decode_number, {"anyOf": [{"type": "number"}, {"enum": list(_NAMED_NUMBERS)}]}
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


HEX: Codec[bytes] = Codec(bytes.hex, _decode_bytes, {"type": "string", "pattern": "^([0-9a-f]{2})*$"})


def optional(codec: Codec[T]) -> Codec[T | None]:
    """Write None as null, anything else by `codec`."""
    encode_value = codec.encode

    def encode(value: T | None) -> Any:
        return None if value is None else encode_value(value)

    def decode(json: Any, path: str) -> T | None:
        return None if json is None else codec.decode(json, path)

    schema = {"anyOf": [{"type": "null"}, codec.schema]}
    return Codec(_same if encode_value is _same else encode, decode, schema)


def tuple_of(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """Write a tuple as a list."""
    encode_item = codec.encode

    def encode(values: tuple[T, ...]) -> list[Any]:
        return [encode_item(value) for value in values]

    def decode(json: Any, path: str) -> tuple[T, ...]:
        items = enumerate(_require_list(json, path))
        return tuple(codec.decode(item, f"{path}[{index}]") for index, item in items)

    plain = encode_item is _same
    return Codec(list if plain else encode, decode, {"type": "array", "items": codec.schema})


def _encode_sorted(texts: tuple[str, ...]) -> list[Any]:
    return sorted(texts)


def _decode_sorted(json: Any, path: str) -> tuple[str, ...]:
    texts = tuple_of(TEXT).decode(json, path)
    if list(texts) != sorted(set(texts)):
        raise CodecError(path, json, "texts in ascending order, each once")
    return texts


SORTED_TEXTS: Codec[tuple[str, ...]] = Codec(
    _encode_sorted, _decode_sorted, {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
)
"""Texts whose order is not told: sorted by code point."""


def map_of(keys: Codec[T], values: Codec[U]) -> Codec[OrderedMap[T, U]]:
    """Write an ordered map as a list of [key, value] pairs."""
    plain = keys.encode is _same and values.encode is _same

    def encode(items: Mapping[T, U]) -> list[Any]:
        if plain:
            return list(map(list, items.items()))
        return [[keys.encode(key), values.encode(value)] for key, value in items.items()]

    def decode(json: Any, path: str) -> OrderedMap[T, U]:
        made: dict[T, U] = {}
        for index, pair in enumerate(_require_list(json, path)):
            if type(pair) is not list or len(pair) != 2:
                raise CodecError(f"{path}[{index}]", pair, "a pair [key, value]")
            key = keys.decode(pair[0], f"{path}[{index}][0]")
            if key in made:
                raise CodecError(f"{path}[{index}][0]", key, "each key once")
            made[key] = values.decode(pair[1], f"{path}[{index}][1]")
        return OrderedMap.adopt(made)

    pair = {"type": "array", "prefixItems": [keys.schema, values.schema], "minItems": 2, "maxItems": 2}
    return Codec(encode, decode, {"type": "array", "items": pair})


E_ = TypeVar("E_", bound=enum.Enum)


def enum_of(kind: type[E_]) -> Codec[E_]:
    """Write a member as its value."""

    def encode(member: E_) -> Any:
        return member.value

    def decode(json: Any, path: str) -> E_:
        for member in kind:
            if type(json) is type(member.value) and json == member.value:
                return member
        raise CodecError(path, json, "one of " + ", ".join(repr(member.value) for member in kind))

    return Codec(encode, decode, {"enum": [member.value for member in kind]})


def record(kind: type[T], **fields: Codec[Any]) -> Codec[T]:
    """Write an attrs record as an object with its fields, in the order given here.

    All fields of `kind` are named, so that one that is added later cannot be forgotten.
    """
    names = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]
    if set(names) != set(fields):
        raise TypeError(f"{kind.__name__}: a codec for {list(fields)}, but it has {names}")
    # The values of most fields are written as they are, so all are fetched at once and the rest encoded.
    fetch = _fetcher(tuple(fields))
    defaults = {name: codec.default for name, codec in fields.items() if codec.default is not REQUIRED}
    encoders = [
        (name, codec.encode)
        for name, codec in fields.items()
        if codec.encode is not _same and name not in defaults
    ]

    def encode(value: T) -> dict[str, Any]:
        written = fetch(value)
        for name, encode_field in encoders:
            written[name] = encode_field(written[name])
        for name, default in defaults.items():
            if written[name] == default:
                del written[name]
            else:
                written[name] = fields[name].encode(written[name])
        return written

    def decode(json: Any, path: str) -> T:
        require_keys(json, path, fields, defaults)
        values = {
            name: codec.decode(json[name], f"{path}.{name}" if path else name)
            for name, codec in fields.items()
            if name not in defaults or name in json
        }
        return _construct(kind, values, path)

    properties = {name: codec.schema for name, codec in fields.items()}
    return Codec(encode, decode, object_schema(properties, defaults))


def _fetcher(names: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    """Make a function that gives these attributes of a value, by name."""
    if len(names) < 2:  # `attrgetter` gives a tuple from two names on
        return lambda value: {name: getattr(value, name) for name in names}
    fetch = operator.attrgetter(*names)
    return lambda value: dict(zip(names, fetch(value), strict=True))


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

    def encode(value: Any) -> dict[str, Any]:
        name = names.get(type(value))
        if name is None:
            raise CodecError("kind", type(value).__name__, f"one of {', '.join(codecs)}")
        return {"kind": name, **codecs[name].encode(value)}

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
    return Codec(encode, decode, {"anyOf": members})


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
    if type(json) is dict and json.keys() <= set(keys):
        missing = set(keys) - json.keys()
        if missing <= set(optional_keys):
            return
    needed = [key for key in keys if key not in optional_keys]
    allowed = f"an object with the keys {', '.join(needed) or 'none'}"
    if optional_keys:
        allowed += f", and any of {', '.join(optional_keys)}"
    raise CodecError(path, json, allowed)


def encode_integers(values: Sequence[int]) -> list[Any]:
    """Write integers with their runs shortened."""
    if len(values) < MIN_RUN:
        return list(values)
    encoded: list[Any] = []
    start = 0
    while start < len(values):
        count = _run_length(values, start)
        if count < MIN_RUN:
            encoded.append(values[start])
            start += 1
        else:
            encoded.append([values[start], count])
            start += count
    return encoded


def _run_length(values: Sequence[int], start: int) -> int:
    """Count the consecutive integers from `start` on; long runs are compared in C."""
    first, length = values[start], len(values)
    if values[-1] - first == length - 1 - start and _is_consecutive(values, start, length, first):
        return length - start  # most often all the rest is one run
    end, stride = start + 1, 1
    while _is_consecutive(values, end, end + stride, first + end - start):
        end += stride
        stride *= 2
    while stride > 1:
        stride //= 2
        if _is_consecutive(values, end, end + stride, first + end - start):
            end += stride
    return end - start


def _is_consecutive(values: Sequence[int], start: int, end: int, first: int) -> bool:
    return values[start:end] == tuple(range(first, first + end - start))


def _decode_integers(json: Any, path: str) -> tuple[int, ...]:
    values: list[int] = []
    for index, item in enumerate(_require_list(json, path)):
        if type(item) is int:
            values.append(item)
        elif _is_run(item) and len(values) + item[1] <= MAX_LIST_LENGTH:
            values.extend(range(item[0], item[0] + item[1]))
        else:
            raise CodecError(
                f"{path}[{index}]",
                item,
                f"an integer, or a run [first, count] of {MIN_RUN} or more; {MAX_LIST_LENGTH} in all",
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

INTEGERS: Codec[tuple[int, ...]] = Codec(encode_integers, _decode_integers, _INTEGERS_SCHEMA)
"""A tuple of integers, its runs shortened."""


def _encode_set(values: frozenset[int]) -> list[Any]:
    return encode_integers(tuple(sorted(values)))


def _decode_set(json: Any, path: str) -> frozenset[int]:
    return frozenset(_decode_integers(json, path))


INTEGER_SET: Codec[frozenset[int]] = Codec(_encode_set, _decode_set, _INTEGERS_SCHEMA)
"""A set of integers, sorted, its runs shortened."""
