"""What real servers do differently, in one place: reading chunks, their words about errors, how
long they ask to wait.

Every branch here is a server that exists: a usage chunk with no choices at the end, a null delta,
reasoning under two names, content as a list of parts, a refusal in its own field, errors under five
names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.llm.types import Ending, Usage

# finish_reason -> how the answer ended. What is not listed is no known good end.
_ENDINGS: Mapping[str, Ending] = {
    "stop": Ending.COMPLETE,
    "eos": Ending.COMPLETE,
    "end_turn": Ending.COMPLETE,
    "length": Ending.LENGTH,
    "max_tokens": Ending.LENGTH,
    "content_filter": Ending.FILTERED,
    "safety": Ending.FILTERED,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk of a stream brings."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str | None = None
    usage: Usage | None = None
    model: str = ""
    response_id: str = ""
    error: str = ""


def read_chunk(chunk: Mapping[str, Any]) -> Piece:
    """A chunk as plain JSON, read leniently: what is missing or null is nothing."""
    error = chunk.get("error")
    if error is None and "choices" not in chunk:  # some say it beside, not under, a name
        error = chunk.get("detail") or (chunk if chunk.get("object") == "error" else None)
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    first = first if isinstance(first, Mapping) else {}
    delta = first.get("delta") or first.get("message") or {}
    delta = delta if isinstance(delta, Mapping) else {}
    finish = first.get("finish_reason")
    return Piece(
        _text(delta.get("content")),
        _text(delta.get("reasoning_content")) or _text(delta.get("reasoning")),
        _text(delta.get("refusal")),
        finish if isinstance(finish, str) and finish else None,
        read_usage(chunk.get("usage")),
        _text(chunk.get("model")),
        _text(chunk.get("id")),
        _error_text(error),
    )


def read_usage(data: object) -> Usage | None:
    """Token counts under either of their names."""
    if not isinstance(data, Mapping):
        return None

    def count(*names: str) -> int | None:
        for name in names:
            value = data.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        return None

    usage = Usage(
        count("prompt_tokens", "input_tokens"), count("completion_tokens", "output_tokens")
    )
    return None if usage == Usage() else usage


def ending_of(finish: str | None, text: str, refused: bool) -> tuple[Ending, str]:
    """How an answer ended, and a note on what was unusual about it."""
    if refused:
        return Ending.FILTERED, "the model refused"
    if finish is None:
        return Ending.BROKEN, "the stream ended without a finish reason"
    ending = _ENDINGS.get(finish.lower())
    if ending is None:
        return Ending.BROKEN, f"finish reason {finish[:40]!r} is no end of an answer"
    if ending is Ending.COMPLETE and not text.strip():
        return Ending.EMPTY, "the answer is empty"
    return ending, ""


# Where servers put their words about an error, the most telling first.
_WORDS = ("message", "error", "detail", "msg", "error_message", "errors", "reason", "title", "code")
_NESTED = 5


def error_words(body: object, depth: int = _NESTED) -> str:
    """A server's own words in the body of an error; empty where it has none.

    They are a bare text, or stand under one of several names, or in a list (a validator's, each
    with the place that it is about).
    """
    if isinstance(body, str):
        return body.strip()
    if depth == 0:
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, (error_words(item, depth - 1) for item in body)))
    if not isinstance(body, Mapping):
        return ""
    words = next(filter(None, (error_words(body.get(name), depth - 1) for name in _WORDS)), "")
    place = body.get("loc")
    if words and isinstance(place, list):
        return f"{'.'.join(part for part in place if isinstance(part, str))}: {words}"
    return words


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, Mapping) else p for p in value]
        return "".join(p for p in parts if isinstance(p, str))
    return ""


def _error_text(error: object) -> str:
    return (error_words(error) or "an error without words")[:300] if error else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait; None where it does not say (0 says nothing)."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, "")) / scale
        except ValueError:
            continue
        if 0 < value < 1e6:
            return value
    return None


def said_in(error: Any) -> str:
    """A server's own words, short, on one line, without markup."""
    text = str(error.response.text)
    with contextlib.suppress(RecursionError, ValueError):
        text = error_words(json.loads(text)) or "an error without words"
    if "<html" in text.lower() or "<!doctype" in text.lower():
        text = "a web page instead of an answer"
    text = " ".join(text.split()) or "an error without words"
    return text if len(text) <= 300 else text[:297] + "..."


def connection_words(error: BaseException) -> str:
    """The innermost cause of a connection error in words."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    text = " ".join(str(inner).split()) or type(inner).__name__
    return f"no connection ({text[:200]})"


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error of this kind stands behind `error`."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, kind):
            return True
        inner = inner.__cause__ or inner.__context__
    return False
