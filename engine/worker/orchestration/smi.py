"""What nvidia-smi says of one card.

A process may see one card of several, and CUDA counts them in another order than nvidia-smi does: a
card is named by its UUID.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any


def named(card: Any) -> str:
    """The name of a card by its `torch.cuda` properties."""
    return f"GPU-{card.uuid}"


def query(card: str, fields: str, *options: str) -> list[str]:
    """The command that prints these fields of a card; empty where there is no nvidia-smi."""
    tool = shutil.which("nvidia-smi")
    return [tool, "-i", card, f"--query-gpu={fields}", *options] if tool else []


def asked(card: str, fields: str) -> str:
    """The fields of a card now, with their units; empty where nvidia-smi does not answer."""
    command = query(card, fields, "--format=csv,noheader")
    if not command:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
