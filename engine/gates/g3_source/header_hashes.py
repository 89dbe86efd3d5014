"""What a primitive comes from: the headers that define it and all that these include, as one hash.

The same rules as kernels/conformance/record.py, which runs where this package is not installed; a
test holds them equal on our headers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache

Headers = Mapping[str, bytes]  # by path below the include folder

_SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*$")
_BODY = re.compile(r"\s*(?:const\b\s*|noexcept\b\s*)*(?:->[^;{}]*)?\{")
_KEYWORDS = frozenset({"if", "for", "while", "switch", "catch", "constexpr"})


def depends(primitive: str, layout: str, headers: Headers) -> tuple[str, ...]:
    """The headers that define `primitive` or the struct `layout` and all that they include, sorted.

    None for a function of CUDA's own: no header decides what it does.
    """
    pending = [name for name, data in headers.items() if primitive in defined(data)]
    if pending and layout:
        shape = re.compile(rf"\bstruct\s+{layout}\b".encode())
        pending += [name for name, data in headers.items() if shape.search(data)]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _included(name, headers)
    return tuple(sorted(found))


def digest(hashes: Mapping[str, str]) -> str:
    """One hash of headers, given each one's SHA-256 by its path."""
    lines = [f"{name} {own}\n" for name, own in sorted(hashes.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=64)
def defined(data: bytes) -> frozenset[str]:
    """The names of the functions whose bodies stand in a source text, members among them."""
    text = data.decode("utf-8", errors="replace")
    text = _SILENT.sub(lambda m: '""' if m.group().startswith('"') else " ", text)
    names: set[str] = set()
    opened: list[int] = []
    for sign in re.finditer(r"[()]", text):
        if sign.group() == "(":
            opened.append(sign.start())
        elif opened:
            start = opened.pop()
            name = _NAME.search(text, max(0, start - 200), start)
            if name and name[1] not in _KEYWORDS and _BODY.match(text, sign.end()):
                names.add(name[1])
    return frozenset(names)


def _included(name: str, headers: Headers) -> list[str]:
    """Those of `headers` that the header `name` includes: beside it, else below the root."""
    folder = name.rpartition("/")[0]
    found = []
    for text in _INCLUDE.findall(headers[name].decode("utf-8", errors="replace")):
        beside = f"{folder}/{text}" if folder else text
        found.append(beside if beside in headers else text)
    return [path for path in found if path in headers]
