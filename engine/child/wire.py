"""Errors as JSON, from the child to the parent."""

from __future__ import annotations

from typing import Any

from engine import errors
from engine.errors import CuBridgeError, Where

MAX_MESSAGE = 4000


class ChildFailed(CuBridgeError):
    """The child came to no answer, or what it ran raised what it never should."""

    exit_code = 1


class ChildEnded(ChildFailed):
    """The child was killed, hung or grew too large: nothing is known of what it worked on, and
    the same work may be asked for again."""


_OURS = {kind.__name__: kind for kind in (ChildEnded, ChildFailed)}


def describe(error: CuBridgeError) -> dict[str, Any]:
    """An error as JSON, to be raised again on the other side.

    `types` are its class and that class's bases: a subclass that only the child knows arrives as
    the nearest one that both sides do.
    """
    where = error.where
    return {
        "types": [kind.__name__ for kind in type(error).__mro__],
        "message": shortened(error.message),
        "fix": None if error.fix is None else shortened(error.fix),
        "where": None if where is None else [where.file, where.line, where.column],
    }


def rebuild(data: object) -> CuBridgeError:
    """The error that `describe` wrote."""
    given = data if isinstance(data, dict) else {}
    kind: type[CuBridgeError] = ChildFailed
    for name in given.get("types") or ():
        found = _OURS.get(str(name)) or getattr(errors, str(name), None)
        if isinstance(found, type) and issubclass(found, CuBridgeError):
            kind = found
            break
    where = given.get("where")
    fix = given.get("fix")
    return kind(
        str(given.get("message", "")),
        where=Where(*where) if isinstance(where, list) else None,
        fix=None if fix is None else str(fix),
    )


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """A text that a person can read: what an exception says may be a whole tensor."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text) - limit} more characters)"
