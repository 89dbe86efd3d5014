"""What real servers do differently, in one place: reading chunks, and which options to drop.

Every branch here is a server that exists: a usage chunk with no choices at the end, a null delta,
reasoning under two names, content as a list of parts, a refusal in its own field, options answered
with 400.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
# In this order an option that a server may not know is left out or spelled the older way.
LADDER: Sequence[str] = (
    "stream_options", "store", "seed", "max_completion_tokens", "max_output_tokens", "temperature"
)  # fmt: skip


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


_INCOMPLETE: Mapping[str, str] = {"max_output_tokens": "length", "max_tokens": "length"}


def read_event(event: Mapping[str, Any]) -> Piece:
    """An event of a Responses stream, or the whole body of a server that does not stream."""
    kind = _text(event.get("type"))
    text = _text(event.get("delta"))
    if kind == "response.output_text.delta":
        return Piece(text=text)
    if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        return Piece(reasoning=text)
    if kind == "response.refusal.delta":
        return Piece(refusal=text)
    if kind == "error":
        return Piece(error=_error_text(event.get("error") or event))
    body = event.get("response", event if event.get("object") == "response" else None)
    if not isinstance(body, Mapping):
        return Piece()
    status = _text(body.get("status"))
    finish = {"completed": "stop", "incomplete": _why_incomplete(body)}.get(status)
    whole, refusal = ("", "") if kind else _output(body.get("output"))
    return Piece(
        text=whole,
        refusal=refusal,
        finish=finish,
        usage=read_usage(body.get("usage")),
        model=_text(body.get("model")),
        response_id=_text(body.get("id")),
        error=_error_text(body.get("error"))
        or ("the response failed" if status == "failed" else ""),
    )


def _why_incomplete(body: Mapping[str, Any]) -> str:
    details = body.get("incomplete_details")
    reason = _text(details.get("reason")) if isinstance(details, Mapping) else ""
    return _INCOMPLETE.get(reason, reason or "incomplete")


def _output(items: object) -> tuple[str, str]:
    """The text and the refusal of a whole body's output."""
    text = refusal = ""
    for item in items if isinstance(items, list) else []:
        parts = item.get("content") if isinstance(item, Mapping) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, Mapping):
                text += _text(part.get("text")) if part.get("type") == "output_text" else ""
                refusal += _text(part.get("refusal"))
    return text, refusal


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


def drop(options: Mapping[str, Any], message: str) -> tuple[dict[str, Any], str] | None:
    """The options without the one that a 400 is about, and its name; None when none can go.

    A message that names an option decides; one that names none costs the first of the ladder.
    """
    present = [name for name in LADDER if name in options]
    aliases = {"max_completion_tokens": "max_tokens"}
    named = [n for n in present if n in message]
    if "max_tokens" in options and "max_tokens" in message:
        # Newer models know only the new name, older servers only the old one.
        made = dict(options)
        value = made.pop("max_tokens")
        if "max_completion_tokens" in message:
            made["max_completion_tokens"] = value
        return made, "max_tokens"
    vague = not any(word in message.lower() for word in ("context", "token", "model", "message"))
    chosen = named[0] if named else (present[0] if present and vague else None)
    if chosen is None:
        return None
    made = dict(options)
    value = made.pop(chosen)
    if chosen in aliases:
        made[aliases[chosen]] = value
    return made, chosen


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, Mapping) else p for p in value]
        return "".join(p for p in parts if isinstance(p, str))
    return ""


def _error_text(error: object) -> str:
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or "an error without words")[:300]
    return str(error)[:300] if error else ""
