"""Git objects, and a pack of them: what one `git unpack-objects` writes into a repository.

Pure. An object's name is the SHA-1 of its kind, size and content (git's gitformat-pack(5)); a pack
is a header, each object's kind and size (7 bits a byte, the lowest first, 4 in the first) with its
content deflated, and the SHA-1 of all that.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_KINDS = {"commit": 1, "tree": 2, "blob": 3}


@dataclass(frozen=True, slots=True)
class Object:
    """What git stores: a blob, tree or commit."""

    kind: str
    content: bytes

    @property
    def oid(self) -> str:
        """The name that git gives it: 40 hexadecimal digits."""
        head = f"{self.kind} {len(self.content)}\0".encode()
        return _sha1(head + self.content).hex()


def blob_oid(content: bytes) -> str:
    """The name that git gives a file of this content."""
    return Object("blob", content).oid


def pack_of(objects: Sequence[Object]) -> bytes:
    """The pack (version 2, no deltas) that holds these objects."""
    parts = [b"PACK", struct.pack(">II", 2, len(objects))]
    for item in objects:
        parts += [_head(_KINDS[item.kind], len(item.content)), zlib.compress(item.content, 1)]
    body = b"".join(parts)
    return body + _sha1(body)


def _head(kind: int, size: int) -> bytes:
    out = bytearray()
    low, rest = kind << 4 | size & 15, size >> 4
    while rest:
        out.append(low | 128)
        low, rest = rest & 127, rest >> 7
    out.append(low)
    return bytes(out)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
