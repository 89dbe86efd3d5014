"""A kernel's source and its headers as one file, and back: every judged byte stays in it.

Where a header is included for the first time its text stands in place of the line. Lines that the
one file cannot hold as they are become comments that say what stood there, so that `unfold` gives
the judged files again:

    //>> #include "cubridge/tile.cuh"    the header's text follows
    //<< cubridge/tile.cuh               and ends here ("~" after the name: without a line end)
    //== #include "tile.cuh"             it stands above already
    //== #pragma once

A header of a `#pragma once` that a condition may skip is there again where it is included again;
a macro says whether it was read, in lines that end with `//++` and are not the kernel's own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from engine.errors import InputError

OPEN, CLOSE, KEPT, ADDED = b"//>> ", b"//<< ", b"//== ", b" //++"
_INCLUDE = re.compile(rb'[ \t]*#[ \t]*include[ \t]+"([^"]+)"')
_ONCE = re.compile(rb"[ \t]*#[ \t]*pragma[ \t]+once\b")
_DIRECTIVE = re.compile(rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|\w+)\b[ \t]*(\S*)")
_COMMENT = re.compile(
    rb"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.S
)  # and what may hold the signs of one


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
            fix="remove lines that begin with //>>, //<< or //==, or end with //++",
        )
    return made


class _Folding:
    def __init__(self, headers: Mapping[str, bytes]) -> None:
        self.headers = headers
        self.seen: set[str] = set()  # whatever the conditions are
        self.skipped: set[str] = set()  # where a condition may skip them

    def folded(self, text: bytes, name: str, outer: int = 0) -> list[bytes]:
        """The lines of a file that is included under `outer` conditions."""
        out: list[bytes] = []
        depth = outer - bool(name and _guarded(text))
        for line, code in zip(text.split(b"\n"), _code(text).split(b"\n"), strict=True):
            directive = _DIRECTIVE.match(code)
            word = directive[1] if directive else b""
            depth += (word in (b"if", b"ifdef", b"ifndef")) - (word == b"endif")
            found = _INCLUDE.match(code)
            header = self._named(found[1].decode(), name) if found else None
            if header is None:
                out.append(KEPT + line if name and _ONCE.match(code) else line)
            elif header in self.seen:
                out.append(KEPT + line)
            else:
                out += self._included(line, header, depth)
        return out

    def _included(self, line: bytes, header: str, depth: int) -> list[bytes]:
        """A header's text in the place of the line that includes it under `depth` conditions."""
        text = self.headers[header]
        once = any(map(_ONCE.match, _code(text).split(b"\n")))
        if depth > 0:  # it is needed again elsewhere
            self.skipped.add(header)
        elif once or _guarded(text):
            self.seen.add(header)
        whole = text.endswith(b"\n")
        body = self.folded(text[:-1] if whole else text, header, depth)
        if once and header in self.skipped:
            macro = b"CUBRIDGE_ONCE_%d" % list(self.headers).index(header)
            before = [b"#ifndef " + macro + ADDED, b"#define " + macro + ADDED]
            body = [*before, *body, b"#endif" + ADDED]
        return [OPEN + line, *body, CLOSE + header.encode() + (b"" if whole else b" ~")]

    def _named(self, included: str, includer: str) -> str | None:
        """The header that an include names: beside the includer, or from the include folder."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), included))
        return next((n for n in (beside, posixpath.normpath(included)) if n in self.headers), None)


def _code(text: bytes) -> bytes:
    """`text` with its lines and without its comments."""
    return _COMMENT.sub(
        lambda m: b"\n" * m[0].count(b"\n") if m[0].startswith((b"//", b"/*")) else m[0], text
    )


def _guarded(text: bytes) -> bool:
    """Whether a header's own #ifndef, from its first directive to its last, keeps it from being
    read twice."""
    found = [m for m in map(_DIRECTIVE.match, _code(text).split(b"\n")) if m]
    words = [m[1] for m in found]
    if words[:2] != [b"ifndef", b"define"] or found[0][2] != found[1][2]:
        return False
    depth = 0
    for n, word in enumerate(words, 1):
        depth += (word in (b"if", b"ifdef", b"ifndef")) - (word == b"endif")
        if depth == 0 or (depth == 1 and word in (b"else", b"elif")):
            return n == len(words) and depth == 0
    return False


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
        elif not line.endswith(ADDED):
            stack[-1].append(line.removeprefix(KEPT))
    out[""] = b"\n".join(stack[0])
    return out
