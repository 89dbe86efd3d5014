"""Copying, honestly: the terminal is asked and never answers, so a file has the text too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cubridge_tui.places import state_dir

LARGEST = 74_000  # bytes: many terminals drop a longer OSC 52


def copy(app: Any, text: str) -> str:
    """Ask the terminal to copy `text` and keep it in a file; says what was done."""
    path = _keep(text)
    lines = text.count("\n") + 1
    what = f"{lines} line{'s' * (lines != 1)}"
    where = f"; also in {path}" if path is not None else ""
    if len(text.encode("utf-8", "surrogateescape")) > LARGEST:
        return f"{what} are too much for the terminal's clipboard{where}"
    app.copy_to_clipboard(text.encode("utf-8", "replace").decode("utf-8"))
    return f"{what} sent to the terminal's clipboard (it never answers){where}"


def _keep(text: str) -> Path | None:
    path = state_dir() / "copied.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    except OSError:
        return None
    return path
