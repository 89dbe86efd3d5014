"""Every op of CuIR, each declared once (see spec.py for what a declaration says)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.cuir.functions import FUNCTIONS
from engine.cuir.ops import host, lists, matmul, movement, pipeline, registers, views, work
from engine.cuir.ops.spec import Effect, Operand, OpSpec, Pending, Proxy, Who
from engine.cuir.ops.spelling import INDEXING, Spelling, of_function

_GROUPS = (
    views.OPS, registers.OPS, movement.OPS, matmul.OPS, pipeline.OPS, lists.OPS, work.OPS, host.OPS,
)  # fmt: skip


def _table() -> Mapping[str, OpSpec]:
    table: dict[str, OpSpec] = {}
    for spec in (s for group in _GROUPS for s in group):
        if spec.name in table:
            raise ValueError(f"op {spec.name} is declared twice")
        table[spec.name] = spec
    return MappingProxyType(table)


OPS: Mapping[str, OpSpec] = _table()

SPELLINGS: tuple[Spelling, ...] = (
    *(spec.spelling for spec in OPS.values()), *INDEXING,
    *(spelling for fn in FUNCTIONS.values() for spelling in of_function(fn)),
)  # fmt: skip
"""All of CuIR in C++, but for its words."""

__all__ = [
    "OPS", "SPELLINGS", "Effect", "OpSpec", "Operand", "Pending", "Proxy", "Who",
]  # fmt: skip
