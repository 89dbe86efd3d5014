"""Runs `cubridge` beside the app, as a person would type it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.build.tools.process import Finished, run


def run_cubridge(
    words: Sequence[str], cancel: threading.Event, on_line: Callable[[str], None]
) -> Finished:
    """`cubridge WORDS` in the current folder, to its end; `on_line` sees what it says.

    Raises:
        Interrupted: `cancel` was set; nothing of the process is left.
    """
    argv = [sys.executable, "-P", "-m", "cubridge_tui", *words]
    return run(argv, cwd=Path.cwd(), environ=os.environ, cancel=cancel, on_line=on_line)


__all__ = ["Finished", "run_cubridge"]
