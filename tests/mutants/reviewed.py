"""Mutants that the gates are right to pass, and why, where neither PTX nor a proof says so."""

from __future__ import annotations

REVIEWED: tuple[tuple[str, str, str, str], ...] = ()
"""Function, statement, operator with the change, and the reason: none excuses another place."""


def reason_for(function: str, statement: str, operator: str, change: str) -> str | None:
    """Why this fault is none; None where nobody has said."""
    key = (function, statement, f"{operator}: {change}")
    return next((why for *place, why in REVIEWED if tuple(place) == key), None)
