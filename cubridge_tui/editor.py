"""A text in the person's own editor: only that text, in a file of its own, given back whole."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported

from engine.errors import InputError

LARGEST = 1_000_000


def edit_outside(app: Any, command: str, text: str) -> str:
    """`text` after the editor; the app gives the terminal away meanwhile.

    Raises:
        InputError: no editor, one that cannot start or fails, or a text that cannot be read back.
            The app has the terminal again then, and `text` is as it was.
    """
    words = _words(command)
    try:
        with tempfile.TemporaryDirectory(prefix="cubridge-") as folder:
            path = Path(folder) / "hunk.cuir"
            path.write_text(text, encoding="utf-8", newline="")
            _run(app, [*words, str(path)])
            if os.path.getsize(path) > LARGEST:
                raise InputError("the text that came back is over 1 MB: it was not taken")
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"{words[0]} and CuBridge cannot hand the text over: {error}", fix="e edits here"
        ) from None


def _words(command: str) -> list[str]:
    """The editor's command line, which a shell's quotes may part."""
    try:
        words = shlex.split(command) if command else []
    except ValueError as error:
        raise InputError(
            f"the editor's command line {command!r} cannot be read: {error}",
            fix="set $EDITOR, or e edits here",
        ) from None
    if not words:
        raise InputError("no editor is set", fix="export EDITOR=vim, or e edits here")
    return words


def _run(app: Any, words: list[str]) -> None:
    """Run the editor in the app's terminal, which the app takes back whatever happens.

    Nothing may be raised while the app is suspended: Textual takes the terminal back only where
    the block that it was given to ends by itself.
    """
    status, failure = 0, ""
    try:
        with app.suspend(), _interrupts_are_the_editors():
            try:
                status = subprocess.run(words, check=False).returncode
            except (OSError, ValueError) as error:  # not there, not allowed, a zero byte in a name
                failure = getattr(error, "strerror", None) or str(error)
    except SuspendNotSupported:
        raise InputError("this terminal cannot be given away", fix="e edits here") from None
    finally:
        app.refresh(layout=True)
    if failure:
        raise InputError(
            f"{words[0]} cannot be started: {failure}", fix="set $EDITOR, or e edits here"
        )
    if status:
        how = f"with {status}" if status > 0 else f"by signal {-status}"
        raise InputError(f"{words[0]} ended {how}: the text is as it was", fix="e edits here")


@contextlib.contextmanager
def _interrupts_are_the_editors() -> Iterator[None]:
    """ctrl+c in a cooked terminal reaches the app too: meanwhile it is meant for the editor.

    A handler, not "ignore": that would be inherited by the editor.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
