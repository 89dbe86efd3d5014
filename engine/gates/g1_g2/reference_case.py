"""What a reference wants of a kernel that runs as it is: inputs, O and LSE, and how far off they
may be by FlashAttention's rule.

Runs in the torch child only. Arrays come and go as .npy files: bits of inputs in the kernel's own
types, O and LSE in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.child.spec_process import SpecProcess
from engine.errors import InputError, SpecError
from engine.gates.g1_g2.marked_rows import MARKED, marked
from engine.gates.runs.output_comparison import roundoff
from engine.gates.runs.subject import as_declared
from engine.spec import recipe_from_json
from engine.spec.decks.deck_inputs import Kind, extent, make_inputs, with_own_sizes
from engine.spec.python.signature import Asked
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import (
    arithmetic_of_lse,
    expected,
    output_as_bhnd,
    rounding_of_lse,
)

ELEMENTS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
# The types that an input may have in a kernel, for what the reference declares.
_FITS = {
    "f32": (torch.float32,), "i32": (torch.int32, torch.int64), "i64": (torch.int64, torch.int32),
    "bool": (torch.uint8,),
}  # fmt: skip
_NAMED = ELEMENTS | {"i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}


def wanted(payload: Mapping[str, Any]) -> dict[str, Any]:
    """One case of a reference.

    Args:
        payload: the reference (`spec`, `options`, its `recipe` or None), `sizes`, how values are
            drawn (`values`, a kind of `deck_inputs` or "marked", and `seed`), the kernel's type of
            each tensor that it takes (`types`, by role or name), the unit roundoff of its
            arithmetic (`unit`), and the `folder` for NAME.npy of each, o.npy, and lse.npy where the
            reference has one, with bounds of their errors by row (o_bound.npy, lse_bound.npy,
            [B, Hq, Nq]); with `numbers` also products.npy, scores.npy and keep.npy, where O is the
            softmax's plain sum.

    Returns:
        All sizes of the case, or why the reference has nothing to compare with (`skipped`).

    Raises:
        SpecError: the reference gives another shape than it declares, or differs from itself.
    """
    spec, options = Path(payload["spec"]), payload.get("options") or {}
    read = payload["recipe"]
    asked = as_declared(spec, options) if read is None else recipe_from_json(read)
    types, folder = payload["types"], Path(payload["folder"])
    element = _element(asked, types)
    sizes = with_own_sizes(asked.inputs, payload["sizes"])
    mark = payload["values"] == MARKED
    rows = mark and isinstance(asked, Recipe) and asked.weight is None
    values: Kind = payload["values"] if not mark else "random" if rows else "peaked"
    inputs = make_inputs(asked, sizes, payload["seed"], values, element)
    kinds = torch.zeros([sizes[n] for n in ("B", "Hq", "Nq")], dtype=torch.int64)
    if rows and isinstance(asked, Recipe):
        inputs, kinds = marked(asked, inputs)
    wide = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    with SpecProcess(spec, options) as function:
        tables = {} if read is None else function.derived(asked, wide)
        given = inputs | tables
        for item in asked.inputs:
            name = item.role if item.role != "extra" else item.name
            if name in types:
                bits = _bits(given[item.name], name, types[name], item.dtype)
                np.save(folder / f"{name}.npy", bits)
        o, again = (_output(spec, asked, sizes, function.wide(wide)) for _ in range(2))
        plain = _output(spec, asked, sizes, function.low(inputs)).double()
        if not torch.allclose(o, again, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise SpecError(
                f"{spec.name} gives another output for the same inputs when it is called again",
                fix="draw nothing in it: what a kernel computes is a function of its inputs",
            )
        lse, lse_bound = None, torch.zeros(kinds.shape).double()
        # Without a recipe a row of NaN says that no key is kept, if PyTorch has it in both types.
        empty = o.isnan().all(-1) & plain.isnan().all(-1)
        if read is None and empty.numel() and bool(empty.all()):
            return {"skipped": "the reference is NaN in every row"}
        if read is not None:
            said = expected(asked, wide | tables)
            lse, empty = said.lse, said.empty
            if lse is not None:
                lse_bound = arithmetic_of_lse(asked, wide | tables, payload["unit"])
                live = ~torch.isneginf(lse)
                for kind in set(kinds.flatten().tolist()):
                    at = kinds == kind
                    off = rounding_of_lse(asked, inputs | tables, lse, live & at)
                    lse_bound[at] += 2 * off
            if payload.get("numbers") and _plain(asked):
                for name in ("products", "scores", "keep"):
                    np.save(folder / f"{name}.npy", getattr(said, name).contiguous().numpy())
    # Rows that keep no key are 0, whatever the reference makes of them.
    o, plain = (t.masked_fill(empty[..., None], 0.0) for t in (o, plain))
    if not bool(o.isfinite().all()):
        at = tuple(int(n) for n in (~o.isfinite()).nonzero()[0])
        place = ", ".join(f"{name}={n}" for name, n in zip("bhid", at, strict=True))
        return {"skipped": f"the reference is {float(o[at])} at {place}, where keys are kept"}
    o_bound = torch.zeros(kinds.shape).double()
    for kind in set(kinds.flatten().tolist()):
        at = kinds == kind
        most, sums = _largest(o[at]), 1.0 if lse is None else max(1.0, _largest(lse[at]))
        # A score is a float32 in every kernel: what its last places are is a share of a weight.
        places = 4 * torch.finfo(torch.float32).eps * sums if rows else 0.0
        o_bound[at] = 2 * _largest((plain - o)[at]) + (2 * roundoff(element) + places) * most
    saved = {"o": o, "o_bound": o_bound}
    saved |= {} if lse is None else {"lse": lse, "lse_bound": lse_bound}
    for name, value in saved.items():
        np.save(folder / f"{name}.npy", value.contiguous().numpy())
    return {"sizes": sizes}


def _output(spec: Path, asked: Asked, sizes: Mapping[str, int], o: Tensor) -> Tensor:
    """The reference's output as [B, Hq, Nq, Dv]."""
    declared = [extent(d, sizes) for d in asked.output_dims]
    if list(o.shape) != declared:
        raise SpecError(
            f"{spec.name} returns {list(o.shape)}, and {declared} is declared: "
            f"{' '.join(asked.output_dims)}", fix="return O in the declared shape",
        )  # fmt: skip
    return output_as_bhnd(asked, o)


def _plain(asked: Recipe) -> bool:
    """Whether O is sum_j softmax(scores)_j V_j and nothing else."""
    more = (asked.weight, asked.late, asked.sink, asked.other)
    return all(x is None for x in more) and not asked.changes_output


def _largest(values: Tensor) -> float:
    return float(values.nan_to_num(0.0, 0.0, 0.0).abs().max()) if values.numel() else 0.0


def _element(asked: Recipe, types: Mapping[str, str]) -> torch.dtype:
    """The one type of q, k and v in the kernel."""
    found = {types[name] for name in ("q", "k", "v") if name in types}
    if len(found) != 1 or not found <= ELEMENTS.keys():
        raise InputError(
            f"q, k and v have the types {', '.join(sorted(found)) or 'of none'} in the launcher",
            fix=f"take all of them, in one of {', '.join(ELEMENTS)}",
        )
    return ELEMENTS[found.pop()]


def _bits(value: Tensor, name: str, type: str, declared: str) -> np.ndarray[Any, Any]:
    """An input as the kernel's type has it."""
    kind = _NAMED.get(type)
    fits = _FITS.get(declared, (value.dtype,))
    if kind is None or kind not in fits:
        raise InputError(
            f"{name} is {declared} in the reference and {type} in the launcher",
            fix="let the launcher take the reference's type",
        )
    held = value.to(kind).contiguous()
    return held.reshape(-1).view(torch.uint8).numpy().reshape(*held.shape[:-1], -1).view(
        np.dtype(f"u{kind.itemsize}")
    ) if held.dim() else held.reshape(1).view(torch.uint8).numpy()  # fmt: skip
