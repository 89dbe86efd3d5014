"""Plain JSON values, and reading them back with an error that says what is wrong.

Standard library only. What cannot be read raises `ValueError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1

JsonObject = dict[str, Any]


def plain_json(value: Any) -> Any:
    """A deep copy made of plain JSON values, such that `json` gives it back unchanged.

    Tuples become lists, mappings dicts, enums their value, non-finite floats "nan", "inf", "-inf".

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


def text_of(value: object) -> str:
    """The value, checked to be text."""
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {type(value).__name__}")
    return value


def strings(obj: JsonObject, key: str) -> tuple[str, ...]:
    """`obj[key]`, checked to be a list of texts."""
    return tuple(text_of(item) for item in read(obj, key, list))


def optional_text(obj: JsonObject, key: str) -> str | None:
    """`obj[key]` as text; None where it is null or absent."""
    if obj.get(key) is None:
        return None
    return str(read(obj, key, str))
