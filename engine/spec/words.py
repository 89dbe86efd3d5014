"""A recipe in plain words."""

from __future__ import annotations

from engine.spec.recipe import Clause, Recipe


def describe(recipe: Recipe) -> list[str]:
    """One line per clause, with the spec's lines that caused it."""
    return [_line(clause) for clause in recipe.clauses]


def _line(clause: Clause) -> str:
    if not clause.lines:
        return clause.words
    noun = "line" if len(clause.lines) == 1 else "lines"
    return f"{clause.words} ({noun} {', '.join(map(str, clause.lines))})"
