"""Plain JSON values and dataclasses, and reading them back with an error that says what is wrong.

Standard library only. What cannot be read raises `ValueError`.
"""

from __future__ import annotations

import math
import types
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

SCHEMA_VERSION = 1

JsonObject = dict[str, Any]
T = TypeVar("T")


def plain_json(value: Any) -> Any:
    """A deep copy made of plain JSON values, such that `json` gives it back unchanged.

    Tuples become lists, mappings dicts, enums their value, non-finite floats "nan", "inf", "-inf",
    dataclasses what their `to_json` says, else `object_of` them.

    Raises:
        ValueError: a value that JSON cannot hold, or a key that is not a string.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"JSON keys must be text: {list(value)!r}")
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if is_dataclass(value):
        return value.to_json() if hasattr(value, "to_json") else object_of(value)
    raise ValueError(f"not a JSON value: {value!r} ({type(value).__name__})")


def read_object(data: object, what: str) -> JsonObject:
    """`data` as a JSON object whose schema this version can read."""
    if not isinstance(data, dict):
        raise ValueError(f"{what}: expected a JSON object, got {type(data).__name__}")
    version = data.get("schema")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{what}: no schema version")
    if version > SCHEMA_VERSION:
        raise ValueError(f"{what}: written by a newer version (schema {version})")
    return data


def read(obj: JsonObject, key: str, kind: type | tuple[type, ...]) -> Any:
    """`obj[key]`, checked to be of `kind`."""
    if key not in obj:
        raise ValueError(f"missing {key!r}")
    value = obj[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{key!r} has the wrong type ({type(value).__name__})")
    return value


def object_of(made: Any) -> JsonObject:
    """The fields of a dataclass by name, in their order."""
    return {f.name: plain_json(getattr(made, f.name)) for f in fields(made)}


def made_of(kind: Callable[..., T], obj: Mapping[str, Any]) -> T:
    """The dataclass whose fields `obj` has by name, each checked to be of its declared type: text,
    numbers, enums, tuples (of lists), mappings (of objects), dataclasses, and None where it may."""
    made = {}
    for name, declared in _declared(kind).items():
        if name not in obj:
            raise ValueError(f"missing {name!r}")
        try:
            made[name] = _typed(declared, obj[name])
        except TypeError:
            found = type(obj[name]).__name__
            raise ValueError(f"{name!r} has the wrong type ({found})") from None
    return kind(**made)


@cache
def _declared(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _typed(declared: Any, value: Any) -> Any:
    """The value as a declared type has it. Raises `TypeError` for one of another."""
    inner = get_args(declared)
    outer: Any = get_origin(declared) or declared
    if outer is Any:
        return value
    if outer is types.UnionType:  # a type or None
        return None if value is None else _typed(inner[0], value)
    if outer is tuple:
        each = inner[:1] * len(_as(value, list)) if inner[-1] is Ellipsis else inner
        if len(each) != len(_as(value, list)):
            raise TypeError
        return tuple(map(_typed, each, value))
    if outer is abc.Mapping:
        return {_as(key, str): _typed(inner[1], item) for key, item in _as(value, dict).items()}
    if issubclass(outer, Enum):
        return outer(_as(value, str))
    if hasattr(outer, "from_json"):
        return outer.from_json(value)
    if is_dataclass(outer):
        return made_of(declared, _as(value, dict))
    return float(_as(value, (int, float))) if outer is float else _as(value, outer)


def _as(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return value
