"""Texts that break terminal apps; each kind stands for public reports."""

from __future__ import annotations

BRACKETS = [
    "a[i] = b[0];",
    "smem[threadIdx.x][/ 2]",
    "[/]",
    "[[maybe_unused]] int x;",
    "[bold red]not markup[/bold red]",
    "[@click=app.bell]never a link[/]",
    "\\[escaped] \\\\[",
]
ESCAPES = [
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b[2J\x1b[1;1H",
    "\x1b[?1049l",
    "\x9b31m C1 control",
    "\x00 NUL \x07 BEL \x08 BS \x7f DEL",
    "lone \r return",
]
UNICODE = [
    "bidi \u202e override \u2066 isolate",
    "line\u2028separator\u2029and\x85next",
    "\ufeffbyte order mark",
    "zero\u200bwidth \u200djoiner",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 and 日本語 wide",
    "combining e\u0301\u0302\u0303",
    "surrogate \udcff\udc80 bytes",
]
CODE = [
    "<<<grid, block>>> not a conflict",
    "<<<<<<< HEAD",
    "--- a/kernel.cu",
    "+++ b/kernel.cu",
    "@@ -1,2 +3,4 @@",
    "-- sql comment",
    "\t\ttabs\tbetween\twords",
]
ALL = [*BRACKETS, *ESCAPES, *UNICODE, *CODE]


def unsafe(text: str) -> list[str]:
    """Characters of what was painted that a terminal would obey or hide."""
    import unicodedata

    return [
        repr(c) for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co")
    ]
