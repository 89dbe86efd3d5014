"""How a Python process of ours is started: on our own package, wherever it is started from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def child_command(module: str, *arguments: str) -> list[str]:
    """This Python running `module`; the current folder is not searched for modules (-P)."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """This process's environment, with our own package as the only folder put before the
    installed ones: a user's `engine/` or `torch.py` in the current folder is never imported, nor
    by a Python that the child starts."""
    return {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONSAFEPATH": "1"}
