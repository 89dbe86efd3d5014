"""A recipe in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from engine.spec.recipes.recipe import Clause, Recipe


def describe(recipe: Recipe) -> list[str]:
    """One line per clause, with the spec's lines that caused it."""
    return [_line(clause) for clause in recipe.clauses]


def _line(clause: Clause) -> str:
    if not clause.lines:
        return clause.words
    return f"{clause.words} ({at_lines(clause.lines)})"


def at_lines(lines: Sequence[int]) -> str:
    """Lines by number, `line 3` or `lines 3, 5`."""
    return f"line{'s' * (len(lines) != 1)} {', '.join(map(str, lines))}"
