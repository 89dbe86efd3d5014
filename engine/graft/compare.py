"""Whether probing finds in a patched source what it found in the author's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine.foreign.check import Asked
from engine.foreign.find import find
from engine.foreign.places import Found as Places
from engine.foreign.places import Hook
from engine.gates.outcome import Found
from engine.graft.edits import Edit


def same_hook(
    was: Places, edits: Sequence[Edit], patched: Asked, folder: Path, said: Callable[[str], None]
) -> Found:
    """Probes the patched source with its edits taken out of reach of the values: places stay, in
    the same lines but for those that the patch added, with the same coordinates, and hold each
    pair once."""
    now = find(patched, said)
    if not now.hooks:
        return Found(False, "probed again, the patched source has no place that holds every score "
                     "once: " + "; ".join(now.refused))  # fmt: skip
    old = was.hooks[0]
    for hook in now.hooks:
        if _same(old, hook):
            return Found(True, f"probed again, the scores stand where they stood: {hook.evidence}")
    return Found(False, "probed again, the scores of the patched source stand elsewhere: "
                 + now.hooks[0].evidence)  # fmt: skip


def _same(old: Hook, new: Hook) -> bool:
    return len(old.places) == len(new.places) and all(
        (a.function, a.variable, a.elements, a.coordinates)
        == (b.function, b.variable, b.elements, b.coordinates)
        for a, b in zip(old.places, new.places, strict=True)
    )
