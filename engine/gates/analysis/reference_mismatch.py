"""A lifted kernel that cannot be run as its reference: which statement makes it so.

The two matmuls say which input is q, k and v. Where a view of one input stands on the argument of
another, an argument is left that nothing fills, or a head is read that the reference does not read;
both are failures of G1 at a statement of the source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.cuir.nodes import Assign, Call, Do, Expr, Index, Module, Name, Path, walk
from engine.cuir.ops.traits import FIELD_VIEWS, TILE_LOADS
from engine.cuir.static.calls import fields_of
from engine.errors import CuBridgeError, TransferError
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.transfer.match import Attention, find_attention
from engine.transfer.rules.launches.head_map import heads_apart


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and the statement (or field of the argument struct) where it stands."""

    path: Path
    reason: str


def unfilled_field(module: Module, binding: Binding) -> Fault | None:
    """A tensor argument that the reference's inputs leave empty, since another is read twice."""
    filled = Counter(t.field for t in binding.tensors)
    for index, field in enumerate(module.fields):
        if field.type != "tensor" or field.name in filled:
            continue
        twice = frozenset(f for f, count in filled.items() if count > 1)
        found = _second_view(module, twice) if field.name not in _viewed(module) else None
        found = found or _foreign_load(module, twice)
        return found or Fault(
            ("Args", index), f"args.{field.name} holds none of the inputs that the matmuls read"
        )
    return None


def cannot_carry(module: Module, error: TransferError) -> Fault | None:
    """Where the kernel differs from its reference by `error`; None where the kernel is of a kind
    that cannot be compared at all."""
    try:
        found = find_attention(module)
    except CuBridgeError:
        return None
    return Fault(_place_of_heads(module, found), error.message)


def another_head(module: Module, recipe: Recipe) -> Fault | None:
    """Where the kernel reads another key/value head than its reference."""
    found = find_attention(module)
    apart = heads_apart(module, found, recipe)
    return None if apart is None else Fault(_place_of_heads(module, found), apart)


def _place_of_heads(module: Module, found: Attention) -> Path:
    """The statement that gives the key/value head its name; the kernel where it has none."""
    if isinstance(found.kv_head, Name):
        for path, stmt in walk(module):
            named = isinstance(stmt, Assign) and stmt.target == found.kv_head.id
            if named and path[0] == found.kernel:
                return path
    return (found.kernel,)


def _viewed(module: Module) -> frozenset[str]:
    return frozenset(field for _, _, field in _views(module))


def _views(module: Module) -> list[tuple[Path, str, str]]:
    """Path, name and field of every view of an argument."""
    return [
        (path, stmt.target, field)
        for path, stmt in walk(module)
        if isinstance(stmt, Assign)
        and isinstance(stmt.value, Call)
        and stmt.value.fn in FIELD_VIEWS
        and stmt.value.args
        for field in fields_of(stmt.value.args[0])
    ]


def _second_view(module: Module, twice: frozenset[str]) -> Fault | None:
    first: dict[str, str] = {}
    for path, name, field in _views(module):
        if field in twice and field in first:
            reason = f"{name} is a view of args.{field}, which {first[field]} is a view of already"
            return Fault(path, reason)
        first[field] = name
    return None


def _foreign_load(module: Module, twice: frozenset[str]) -> Fault | None:
    """A load into a shared tile that another load fills from another argument."""
    fields = {name: field for _, name, field in _views(module)}
    loads: dict[str, list[tuple[Path, str, str]]] = {}
    for path, stmt in walk(module):
        if isinstance(stmt, Do) and stmt.call.fn in TILE_LOADS and len(stmt.call.args) > 1:
            tile, source = (_base(e) for e in stmt.call.args[:2])
            loads.setdefault(tile, []).append((path, source, fields.get(source, "")))
    for tile, found in loads.items():
        if len({field for _, _, field in found}) > 1:
            other = next((source for _, source, field in found if field not in twice), "another")
            for path, source, field in found:
                if field in twice:
                    return Fault(
                        path, f"{tile} is loaded from {source} here and from {other} elsewhere"
                    )
    return None


def _base(expr: Expr) -> str:
    while isinstance(expr, Index):
        expr = expr.base
    return expr.id if isinstance(expr, Name) else ""
