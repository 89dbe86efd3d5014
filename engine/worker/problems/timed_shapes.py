"""Which shapes are timed, as a person names them and as a row does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.worker.problems.problem_sizes import Case

FORM = "BATCHxHEADSxLENGTH, such as 2x32x8192, 1x64/8x8192 (query/key heads) or 16x32/8x1:4096 \
(query:key rows)"
_SHAPE = re.compile(r"(\d+)x(\d+)(?:/(\d+))?x(\d+)(?::(\d+))?")
ROWS = 16384  # batch x length, where the batch is not named


def parse_shape(text: str) -> tuple[int, int, int, int, int]:
    """(B, Hq, Hkv, Nq, Nk). Raises `ValueError` that says how a shape is written."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no shape: write {FORM}")
    b, hq, hkv, n_q, n_k = found.groups()
    shape = (int(b), int(hq), int(hkv or hq), int(n_q), int(n_k or n_q))
    if min(shape) < 1 or shape[1] % shape[2]:
        raise ValueError(f"{text!r}: sizes from 1 on, query heads a multiple of key heads")
    return shape


def cases_of(plan: Mapping[str, Any], d: int) -> list[Case]:
    """What a plan asks for: its `shapes`, else its `lengths` at 16,384 rows in all and 32 heads (16
    from D 192 on), as the rivals' own benches have them."""
    shapes: Sequence[str] = plan.get("shapes") or ()
    if shapes:
        return [Case(*shape, seed=12345 + shape[3]) for shape in map(parse_shape, shapes)]
    heads = int(plan.get("heads") or (16 if d >= 192 else 32))
    heads_kv = int(plan.get("heads_kv") or heads)
    return [
        Case(max(1, ROWS // n), heads, heads_kv, n, n, seed=12345 + n)
        for n in map(int, plan["lengths"])
    ]


def label(sizes: Mapping[str, int]) -> str:
    """The name of a timed case: `S 8192 B 2 heads 32 D 128`."""
    d = f"D {sizes['D']}" if sizes["D"] == sizes["Dv"] else f"D {sizes['D']}/{sizes['Dv']}"
    heads = f"{sizes['Hq']}" if sizes["Hq"] == sizes["Hkv"] else f"{sizes['Hq']}/{sizes['Hkv']}"
    rows = (
        f"S {sizes['Nq']}" if sizes["Nq"] == sizes["Nk"] else f"Nq {sizes['Nq']} Nk {sizes['Nk']}"
    )
    return f"{rows} B {sizes['B']} heads {heads} {d}"
