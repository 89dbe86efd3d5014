"""What a level takes on trust, in words that stand beside the level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.types import Gate, Level, Verdict, level_of

SAME = "same"


def rests_on(verdicts: Iterable[Verdict]) -> str:
    """What nobody here has seen of a level; empty where nothing is.

    No result is signed: what a GPU run says of itself is its word, but for the outputs that it
    carries and that were computed again.
    """
    found = tuple(verdicts)
    last = {verdict.gate: verdict for verdict in found}
    if level_of(found) is not Level.GPU_VERIFIED:
        return ""
    return taken_on_trust(last[Gate.G4].details)


def taken_on_trust(details: Mapping[str, Any]) -> str:
    """`rests_on` from the details of a passed G4."""
    checks = _rows(details.get("checks"))
    if not checks:
        return "a GPU run's word is taken, and it names no check that it ran"
    cases = sum(n for row in checks if isinstance(n := row.get("cases"), int) and n > 0)
    again = sum(row.get("found") == SAME for row in _rows(details.get("recomputed")))
    kept = len(_rows(details.get("samples")))
    if not kept:
        return "the GPU run's word is taken: it carries no outputs to compute again"
    return f"the GPU run's word is taken: {min(again, kept)} of {cases} cases computed again here"


def _rows(value: object) -> Sequence[Mapping[str, Any]]:
    return [r for r in value if isinstance(r, Mapping)] if isinstance(value, list) else []


def beside(words: str) -> str:
    """`rests_on` as it follows a level: nothing, or after a semicolon."""
    return f"; {words}" if words else ""
