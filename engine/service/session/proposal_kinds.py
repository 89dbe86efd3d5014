"""What a proposal is about, told by how its id begins: the target, meanings of opaque ops in the
lifted module, or the lowered source."""

from __future__ import annotations

from collections.abc import Iterable

from engine.types import Proposal

ABOUT_MEANINGS = "meaning-"
ABOUT_LOWERINGS = "lowering-"


def edits(proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """Those that are about the target, in their order."""
    others = (ABOUT_MEANINGS, ABOUT_LOWERINGS)
    return tuple(p for p in proposals if not p.id.startswith(others))
