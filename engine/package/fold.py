"""A kernel's source and its headers as one file, and back: every judged byte stays in it.

Where a header is included for the first time its text stands in place of the line. Lines that the
one file cannot hold as they are become comments that say what stood there, so that `unfold` gives
the judged files again:

    //>> #include "cubridge/tile.cuh"    the header's text follows
    //<< cubridge/tile.cuh               and ends here ("~" after the name: without a line end)
    //== #include "tile.cuh"             it stands above already
    //== #pragma once
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from engine.errors import InputError

OPEN, CLOSE, KEPT = b"//>> ", b"//<< ", b"//== "
_INCLUDE = re.compile(rb'[ \t]*#[ \t]*include[ \t]+"([^"]+)"')
_ONCE = re.compile(rb"[ \t]*#[ \t]*pragma[ \t]+once\b")
_DIRECTIVE = re.compile(rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|\w+)\b[ \t]*(\S*)")


def fold(source: bytes, headers: Mapping[str, bytes]) -> bytes:
    """`source` with the `headers` that it includes, which are named by their path from the include
    folder.

    Raises:
        InputError: a source that cannot be told apart again, since it has lines like the markers.
    """
    lines = _Folding(headers).folded(source, "")
    made = b"\n".join(lines)
    kept = unfold(made)
    if kept[""] != source or any(kept[name] != headers[name] for name in kept if name):
        raise InputError(
            "the kernel's headers cannot be folded into one file",
            fix="remove lines that begin with //>>, //<< or //==",
        )
    return made


class _Folding:
    def __init__(self, headers: Mapping[str, bytes]) -> None:
        self.headers = headers
        self.seen: set[str] = set()

    def folded(self, text: bytes, name: str) -> list[bytes]:
        out: list[bytes] = []
        depth = -1 if name and _guarded(text) else 0
        for line in text.split(b"\n"):
            directive = _DIRECTIVE.match(line)
            word = directive[1] if directive else b""
            depth += (word in (b"if", b"ifdef", b"ifndef")) - (word == b"endif")
            found = _INCLUDE.match(line)
            header = self._named(found[1].decode(), name) if found else None
            if header is None:
                out.append(KEPT + line if name and _ONCE.match(line) else line)
            elif header in self.seen:
                out.append(KEPT + line)
            else:
                inner = self.headers[header]
                once = _ONCE.search(inner) is not None or _guarded(inner)
                if once and depth <= 0:  # one that an #if may skip is needed again elsewhere
                    self.seen.add(header)
                whole = inner.endswith(b"\n")
                body = self.folded(inner[:-1] if whole else inner, header)
                out += [OPEN + line, *body, CLOSE + header.encode() + (b"" if whole else b" ~")]
        return out

    def _named(self, included: str, includer: str) -> str | None:
        """The header that an include names: beside the includer, or from the include folder."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), included))
        return next((n for n in (beside, posixpath.normpath(included)) if n in self.headers), None)


def _guarded(text: bytes) -> bool:
    """Whether a header's own #ifndef keeps it from being read twice."""
    first = [m for m in map(_DIRECTIVE.match, text.split(b"\n")) if m][:2]
    words = [m[1] for m in first]
    return words == [b"ifndef", b"define"] and first[0][2] == first[1][2]


def unfold(folded: bytes) -> dict[str, bytes]:
    """The files that a folded one holds, by name; the source's own name is empty."""
    out: dict[str, bytes] = {}
    stack: list[list[bytes]] = [[]]
    for line in folded.split(b"\n"):
        if line.startswith(OPEN):
            stack[-1].append(line.removeprefix(OPEN))
            stack.append([])
        elif line.startswith(CLOSE) and len(stack) > 1:
            name, _, bare = line.removeprefix(CLOSE).decode().partition(" ")
            out[name] = b"\n".join(stack.pop()) + (b"" if bare else b"\n")
        else:
            stack[-1].append(line.removeprefix(KEPT))
    out[""] = b"\n".join(stack[0])
    return out
