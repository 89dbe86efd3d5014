"""Recipes that many tests begin with, each read once in a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engine.resources import spec_path
from engine.spec import Recipe, read_recipe


@cache
def recipe_at(path: Path) -> Recipe:
    """The recipe of a spec that stays as it is, such as a kernel's reference."""
    return read_recipe(path, {})


def recipe_of(name: str) -> Recipe:
    """The recipe of a bundled spec."""
    return recipe_at(spec_path(name))
