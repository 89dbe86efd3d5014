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

# What JSON keeps a sentence of ours under; anything else may be somebody's text.
_SENTENCES = frozenset({"reason", "fix", "detail", "message", "steps", "notices"})


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
    """`text` with every `cubridge COMMAND` or `--OPTION` written as it is started on this machine.

    Texts name commands one way, by the program's own name, and so do sessions, which travel: all
    that is shown to a person here goes through this, on the terminal, in JSON and in the app.
    """
    if "cubridge" not in text:
        return text
    import re

    from cubridge_tui.commands import COMMANDS

    command = rf"--[a-z]|(?:{'|'.join(COMMANDS)})(?![\w-])"
    ours = rf"(?<![\w./-])cubridge (?={command})|(?<=`)cubridge(?=`)"
    return re.sub(ours, lambda m: own_command() + " " * m[0].endswith(" "), text)


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
    """One line of the command's result on standard output, in words of ours."""
    print(printable(typeable(text)))


def show_source(text: str) -> None:
    """A kernel's or a module's text on standard output: no word of it is changed."""
    print(printable(text))


def show_json(result: Mapping[str, Any]) -> None:
    """The command's whole result as one JSON object on standard output."""
    print(json.dumps(_told(result), indent=2, ensure_ascii=True))


def _told(value: Any, key: str = "") -> Any:
    """A result with the commands in its sentences as they are typed here; its texts as they are."""
    if isinstance(value, Mapping):
        return {k: _told(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_told(v, key) for v in value]
    return typeable(value) if isinstance(value, str) and key in _SENTENCES else value
