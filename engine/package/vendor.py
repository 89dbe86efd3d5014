"""The part of the engine that a package carries where its spec makes tables, by its imports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from engine.closure import closure

SPEC_ROOTS = (
    "engine.spec.readings.derived_inputs",  # tables that a spec builds itself
    "engine.spec.recipes.recipe_json",  # the recipe from its JSON
)


@cache
def vendored(roots: tuple[str, ...] = SPEC_ROOTS) -> Mapping[str, bytes]:
    """Every file of the engine that the modules `roots` import, by its path above `engine/`; read
    once in a process, as the modules that it runs are."""
    return {name: path.read_bytes() for name, path in closure(roots).items()}
