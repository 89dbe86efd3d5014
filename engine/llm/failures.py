"""What a failed request says: a server's own words, the cause below, how long to wait."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from engine.llm.quirks import error_words


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
