"""A text in the person's own editor: only that text, in a file of its own, given back whole."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported

from engine.errors import InputError

LARGEST = 1_000_000


def edit_outside(app: Any, command: str, text: str) -> str:
    """`text` after the editor; the app gives the terminal away meanwhile.

    Raises:
        InputError: no editor, one that cannot start or fails, or a text that cannot be read back.
    """
    words = shlex.split(command) if command else []
    if not words:
        raise InputError("no editor is set", fix="export EDITOR=vim, or e edits here")
    with tempfile.TemporaryDirectory(prefix="cubridge-") as folder:
        path = Path(folder) / "hunk.cuir"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            with app.suspend():
                done = subprocess.run([*words, str(path)], check=False)
        except SuspendNotSupported:
            raise InputError("this terminal cannot be given away", fix="e edits here") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(
                f"{words[0]} cannot be started: {reason}", fix="set $EDITOR, or e edits here"
            ) from None
        finally:
            app.refresh(layout=True)
        if done.returncode:
            raise InputError(
                f"{words[0]} ended with {done.returncode}: the text is as it was",
                fix="e edits here",
            )
        if os.path.getsize(path) > LARGEST:
            raise InputError("the text that came back is over 1 MB: it was not taken")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the edited text cannot be read: {error}") from None
