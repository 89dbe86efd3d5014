"""Recipes that many tests begin with, each read once in a run of the tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engine.resources import spec_path
from engine.spec import Recipe, read_recipe, recipe_from_json
from engine.spec.recipes.recipe_json import recipe_to_json
from tests.judged_once import told


@cache
def recipe_at(path: Path) -> Recipe:
    """The recipe of a spec that stays as it is, such as a kernel's reference."""
    asked = ["recipe", str(path), path.read_text()]
    return recipe_from_json(told(asked, lambda: recipe_to_json(read_recipe(path, {}))))


def recipe_of(name: str) -> Recipe:
    """The recipe of a bundled spec."""
    return recipe_at(spec_path(name))
