"""What parent and child send: frames (a 4-byte big-endian length, then one JSON object in UTF-8),
and errors as JSON.

The functions are bound when this module is loaded: a spec that patches `json` in the process that
it runs in changes nothing about its answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import traceback
from typing import Any, BinaryIO

from engine import errors
from engine.errors import CuBridgeError, Where

MAX_MESSAGE = 4000


class ChildFailed(CuBridgeError):
    """The child came to no answer, or what it ran raised what it never should: an internal error,
    which says nothing of what it worked on."""

    exit_code = 70


class ChildEnded(ChildFailed):
    """The child was killed, hung or grew too large: the same work may be asked for again."""

    exit_code = 1


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


def failure_of(error: BaseException) -> CuBridgeError:
    """What a process of ours says of an exception that ended a command: never a verdict.

    What is no `CuBridgeError` is an internal error; its stack goes to standard error.
    """
    if isinstance(error, CuBridgeError):
        return error
    with contextlib.suppress(BaseException):  # a spec may have put anything in its place
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" (at {os.path.basename(last.filename)}:{last.lineno})" if last else ""
    # The place first: what an exception says may be cut short.
    kind = ChildEnded if isinstance(error, MemoryError) else ChildFailed
    return kind(f"internal error: {type(error).__name__}{where}: {_text(error)}")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its text cannot be had)"


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


def shortened(text: str) -> str:
    """A text that a person can read: what an exception says may be a whole tensor."""
    if len(text) <= MAX_MESSAGE:
        return text
    return f"{text[:MAX_MESSAGE]}... ({len(text) - MAX_MESSAGE} more characters)"


HEADER = struct.Struct(">I")
MAX_FRAME = 256 * 1024 * 1024

# Floats keep nan and inf (both ends are Python).
_to_text = json.JSONEncoder(ensure_ascii=False).encode
_from_text = json.JSONDecoder().decode


class Broken(ValueError):
    """What came is no frame."""


def encode(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = _to_text(message).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(body)) + body


def next_message(buffer: bytearray) -> dict[str, Any] | None:
    """Takes the first whole message from the buffer; None while it is not all there.

    Raises:
        Broken: the bytes are no frame.
    """
    if len(buffer) < HEADER.size:
        return None
    size = _size(bytes(buffer[: HEADER.size]))
    if len(buffer) < HEADER.size + size:
        return None
    body = bytes(buffer[HEADER.size : HEADER.size + size])
    del buffer[: HEADER.size + size]
    return _message(body)


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream.

    Raises:
        Broken: the bytes are no frame.
    """
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    size = _size(head)
    body = stream.read(size)
    if len(body) < size:
        return None
    return _message(body)


def _size(head: bytes) -> int:
    (size,) = HEADER.unpack(head)
    if size > MAX_FRAME:
        raise Broken(f"a frame of {size} bytes")
    return int(size)


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = _from_text(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Broken(str(error)) from None
    if not isinstance(message, dict):
        raise Broken("a frame that is no object")
    return message
