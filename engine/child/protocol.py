"""Frames between parent and child: a 4-byte big-endian length, then one JSON object in UTF-8.

The functions are bound when this module is loaded: a spec that patches `json` in the process that
it runs in changes nothing about its answers.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

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
