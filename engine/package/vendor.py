"""The part of the engine that a package carries, to run its spec: found by following imports."""

from __future__ import annotations

from collections.abc import Sequence

from engine.gpu.closure import closure

SPEC_ROOTS = (
    "engine.spec.derived",  # tables that a spec builds itself
    "engine.spec.inputs",  # inputs for a deck
    "engine.spec.oracle",  # the spec in float64
    "engine.spec.signature",  # what a spec declares, from its JSON
    "engine.spec.text",  # the recipe from its JSON
    "engine.spec.unread",  # inputs of a spec that no rule reads
)


def vendored(roots: Sequence[str] = SPEC_ROOTS) -> dict[str, bytes]:
    """Every file of the engine that the modules `roots` import, by its path above `engine/`."""
    return {name: path.read_bytes() for name, path in closure(roots).items()}
