"""Inputs of a spec whose names this kernel uses itself, found before any rule runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.cuir.nodes import Module
from engine.errors import SpecError, TransferError, Where
from engine.spec.recipe import Input, Recipe
from engine.spec.source import read_source
from engine.spec.taken import RENAME
from engine.transfer.match import find_attention
from engine.transfer.rules.inputs import names_in


def refuse_taken_names(
    module: Module, recipe: Recipe, spec: Path, options: Mapping[str, object]
) -> None:
    """Raises `SpecError` with the line of an extra input that the kernel's own names leave no
    room for."""
    extra = recipe.extra()
    if not extra:
        return
    try:
        inside = names_in(module, find_attention(module))
    except TransferError:
        return  # the plan says why
    fields = {f.name for f in module.fields}
    for item in extra:
        if item.name in fields:
            owner = "has the name of a field of the kernel's Args"
        elif item.dims and item.name in inside:
            owner = "has the name of something that the kernel uses itself"
        else:
            continue
        line = _line(item, spec, options)
        message = f"the input {item.name} {owner}"
        raise SpecError(message, where=Where(str(spec), line), fix=RENAME)


def _line(item: Input, spec: Path, options: Mapping[str, object]) -> int | None:
    if item.derive is not None:
        first = item.derive.split(":")[0]
        return int(first) if first.isdigit() else None
    tensors = read_source(spec, options).tensors
    return next((t.line for t in tensors if t.name == item.name), None)
