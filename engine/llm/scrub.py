"""Makes a server's text safe to keep: without the key, and of whole characters alone.

Servers echo keys in errors, and models in answers. JSON may hold half of a surrogate pair, which no
file can; a character past U+FFFF may come as two halves in two chunks.
"""

from __future__ import annotations

STARS = "***"
SHORTEST = 6  # shorter "keys" are placeholders, and would star ordinary words


class Scrubber:
    """Replaces a key and joins surrogates, also in a stream that splits either over chunks."""

    def __init__(self, key: str) -> None:
        self._key = key if len(key) >= SHORTEST else ""
        self._held = ""

    def whole(self, text: str) -> str:
        """`text` without the key; a surrogate without its other half becomes U+FFFD."""
        text = _joined(text)
        return text.replace(self._key, STARS) if self._key else text

    def feed(self, text: str) -> str:
        """What of the stream may be shown now; the start of a pair or of a possible key is held
        back."""
        text = self._held + text
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = self.whole(text[: len(text) - len(half)])
        held = 0
        if not half:
            for size in range(min(len(text), len(self._key) - 1), 0, -1):
                if self._key.startswith(text[-size:]):
                    held = size
                    break
        self._held = text[len(text) - held :] + half
        return text[: len(text) - held]

    def rest(self) -> str:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return _joined(held)


def _joined(text: str) -> str:
    """`text` with the halves of each pair as one character, and U+FFFD for a half alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
