"""Keeps a key out of every text: servers echo keys in errors, and models in answers."""

from __future__ import annotations

STARS = "***"
SHORTEST = 6  # shorter "keys" are placeholders, and would star ordinary words


class Scrubber:
    """Replaces a key in texts, also in a stream that splits it over chunks."""

    def __init__(self, key: str) -> None:
        self._key = key if len(key) >= SHORTEST else ""
        self._held = ""

    def whole(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self._key, STARS) if self._key else text

    def feed(self, text: str) -> str:
        """What of the stream may be shown now; the start of a possible key is held back."""
        if not self._key:
            return text
        text = self.whole(self._held + text)
        held = 0
        for size in range(min(len(text), len(self._key) - 1), 0, -1):
            if self._key.startswith(text[-size:]):
                held = size
                break
        self._held = text[len(text) - held :] if held else ""
        return text[: len(text) - held]

    def rest(self) -> str:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held
