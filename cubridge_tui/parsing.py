"""argparse as this program uses it: no abbreviations, and a typo is answered by what was meant."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from engine.errors import nearest

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the option or the choice that was most likely meant."""

    def __init__(self, **settings: object) -> None:
        super().__init__(allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def parse(self, words: list[str]) -> argparse.Namespace:
        """As `parse_args`, but that what may be left out is found after options too."""
        if self._subparsers is not None:
            return self.parse_args(words)
        return self.parse_intermixed_args(words)

    def error(self, message: str) -> NoReturn:
        near = self._meant(message)
        super().error(f"{message}; do you mean {near}?" if near else message)

    def _meant(self, message: str) -> str:
        choice = _CHOICE.search(message)
        if choice is not None:
            return nearest(choice[1], re.findall(r"[\w-]+", choice[2]))
        unknown = _UNKNOWN.search(message)
        words = unknown[1].split() if unknown is not None else []
        slip = next((w.split("=")[0] for w in words if w.startswith("--")), "")
        return nearest(slip, self._option_string_actions) if slip else ""
