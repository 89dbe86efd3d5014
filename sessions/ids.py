"""Identifiers: time-ordered event ids, session ids made from titles, and what a name may be.

Titles, session ids and artifact names are data that a person or a file may bring; whatever ends up
in a ref or a path passes through here first.
"""

from __future__ import annotations

import re
import secrets
import time
import unicodedata

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_ID_LENGTH = 26  # 48 bits of milliseconds, 80 random bits (a ULID)
_EVENT_ID = re.compile(f"[{_ALPHABET}]{{{_ID_LENGTH}}}")
_SESSION_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SLUG_LENGTH = 40
_SUFFIX_LENGTH = 5
_LONGEST_ID = 64  # more than any has
LONGEST_TITLE = 200


def new_event_id(after: str | None = None, now_ms: int | None = None) -> str:
    """A fresh id that sorts after `after`, even when the clock went back.

    Where the clock has not moved on, the random part of `after` is counted up by a random step,
    so two writers that start from the same event still get different ids.
    """
    millis = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    value = (millis << 80) | secrets.randbits(80)
    if after is not None:
        last = _decode(after)
        if value >> 80 <= last >> 80:
            value = last + 1 + secrets.randbits(32)
    return _encode(value)


def is_event_id(text: str) -> bool:
    """Whether `text` has the form of an event id."""
    return _EVENT_ID.fullmatch(text) is not None


def new_session_id(title: str) -> str:
    """A session id: readable words from the title and a random tail.

    Any title works: what cannot stand in a ref (options, paths, `@{`, `.lock`, newlines, other
    scripts) is slugged away, so the id is letters, digits and inner dashes only.
    """
    return f"{slug_of(title)}-{''.join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))}"


def slug_of(title: str) -> str:
    """What an id says of a title."""
    ascii_title = unicodedata.normalize("NFKD", title[:400]).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_title.lower()).strip("-")
    return words[:_SLUG_LENGTH].strip("-") or "session"


def is_session_id(text: str) -> bool:
    """Whether `text` can be a session id, or the beginning of one."""
    return len(text) <= _LONGEST_ID and _SESSION_ID.fullmatch(text) is not None


def title_problem(title: str) -> str:
    """Why a session cannot be called this; empty where it can."""
    if not title.strip():
        return "a title is words"
    return f"a title has at most {LONGEST_TITLE} characters" if len(title) > LONGEST_TITLE else ""


def check_name(name: str, what: str) -> str:
    """`name`, if it can be a file's name inside the store.

    Raises:
        ValueError: anything but letters, digits and `_ . + -`, a leading dot or dash, `.lock`.
    """
    if _NAME.fullmatch(name) is None or name.endswith((".lock", ".")):
        raise ValueError(f"{what} cannot be named {name!r}: letters, digits and _ . + - only")
    return name


def check_sha256(text: str, what: str) -> str:
    """`text`, if it is a lower-case hex SHA-256."""
    if _SHA256.fullmatch(text) is None:
        raise ValueError(f"{what} is not a SHA-256: {text!r}")
    return text


def _encode(value: int) -> str:
    digits = [_ALPHABET[(value >> shift) & 31] for shift in range(0, 5 * _ID_LENGTH, 5)]
    return "".join(reversed(digits))


def _decode(text: str) -> int:
    if not is_event_id(text):
        return 0
    value = 0
    for char in text:
        value = (value << 5) | _ALPHABET.index(char)
    return value
