"""What the command line writes: results on standard output, narration on standard error.

Both go through `printable`, since texts come from files, compilers and models.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

# Cc: control codes (escape sequences start with one); Cf: bidirectional overrides and invisible
# characters; Co, Cs: what no font shows the same way.
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs"})


def printable(text: str) -> str:
    """`text` with every character that could steer a terminal or hide text written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _HIDDEN
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def say(text: str) -> None:
    """One narration line on standard error; commands in it are such as can be typed here."""
    print(printable(typeable(text)), file=sys.stderr, flush=True)


def typeable(text: str) -> str:
    """`text` with `cubridge COMMAND` written as it is started on this machine."""
    if "cubridge " not in text:
        return text
    import re

    from cubridge_tui.cli import COMMANDS

    ours = rf"(?<![\w./-])cubridge (?=(?:{'|'.join(COMMANDS)})(?![\w-]))"
    return re.sub(ours, lambda _: own_command() + " ", text)


@cache
def own_command() -> str:
    """`cubridge` where the shell finds it; else `./dev run` of the checkout, else our Python."""
    import shlex
    import shutil
    from pathlib import Path

    from engine.resources import data_root

    if shutil.which("cubridge"):
        return "cubridge"
    root = data_root()
    if (root / "dev").is_file():
        return "./dev run" if root == Path.cwd() else f"{shlex.quote(str(root / 'dev'))} run"
    return f"{shlex.quote(sys.executable)} -m cubridge_tui"


def show(text: str) -> None:
    """One line of the command's result on standard output."""
    print(printable(text))


def show_json(result: Mapping[str, Any]) -> None:
    """The command's whole result as one JSON object on standard output."""
    print(json.dumps(result, indent=2, ensure_ascii=True))
