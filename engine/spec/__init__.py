"""From a PyTorch spec to the recipe that says what a kernel must compute.

`Recipe` and its JSON need no torch. What runs a spec does, and runs the user's code: it is
imported on first use, in a child process only. The spec in float64 is
`engine.spec.reference.oracle.oracle`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.spec.recipes.recipe import Clause, Input, Recipe, describe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json

if TYPE_CHECKING:
    from engine.spec.decks.deck_inputs import make_inputs
    from engine.spec.read import read_recipe
    from engine.spec.readings.derived_inputs import derive_inputs
    from engine.spec.reference.oracle import Expected, expected

_NEEDS_TORCH = {
    "read_recipe": "read", "expected": "reference.oracle", "Expected": "reference.oracle",
    "make_inputs": "decks.deck_inputs", "derive_inputs": "readings.derived_inputs",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NEEDS_TORCH:
        return getattr(import_module(f"engine.spec.{_NEEDS_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Clause", "Expected", "Input", "Recipe", "derive_inputs", "describe", "expected", "make_inputs",
    "read_recipe", "recipe_from_json", "recipe_to_json",
]  # fmt: skip
