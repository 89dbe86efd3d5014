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
from engine.errors import InputError
from engine.gates.runs.output_comparison import LSE_TOLERANCE, roundoff
from engine.gates.runs.subject import as_declared
from engine.spec import recipe_from_json
from engine.spec.decks.deck_inputs import make_inputs, with_own_sizes
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import expected, output_as_bhnd

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
            drawn (`values`, `seed`), the kernel's type of each tensor that it takes (`types`, by
            role or name), and the `folder` for NAME.npy of each, o.npy and lse.npy; with `numbers`
            also products.npy, scores.npy and keep.npy, where O is the softmax's plain sum.

    Returns:
        All sizes of the case; `bound` of O's error, and `lse_bound`, None where the reference has
        no LSE; or why the reference has nothing to compare with (`skipped`).
    """
    spec, options = Path(payload["spec"]), payload.get("options") or {}
    read = payload["recipe"]
    asked = as_declared(spec, options) if read is None else recipe_from_json(read)
    types, folder = payload["types"], Path(payload["folder"])
    element = _element(asked, types)
    sizes = with_own_sizes(asked.inputs, payload["sizes"])
    inputs = make_inputs(asked, sizes, payload["seed"], payload["values"], element)
    wide = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    with SpecProcess(spec, options) as function:
        tables = {} if read is None else function.derived(asked, wide)
        given = inputs | tables
        for item in asked.inputs:
            name = item.role if item.role != "extra" else item.name
            if name in types:
                bits = _bits(given[item.name], name, types[name], item.dtype)
                np.save(folder / f"{name}.npy", bits)
        o = output_as_bhnd(asked, function.wide(wide))
        plain = output_as_bhnd(asked, function.low(inputs)).double()
        lse = None
        empty = o.isnan().all(-1)
        if read is not None:
            said = expected(asked, wide | tables)
            lse, empty = said.lse, said.empty
            if payload.get("numbers") and _plain(asked):
                for name in ("products", "scores", "keep"):
                    np.save(folder / f"{name}.npy", getattr(said, name).contiguous().numpy())
    # Rows that keep no key are 0, whatever the reference makes of them.
    o, plain = (t.masked_fill(empty[..., None], 0.0) for t in (o, plain))
    if not bool(o.isfinite().all()):
        return {"skipped": "the reference is not finite there"}
    np.save(folder / "o.npy", o.contiguous().numpy())
    if lse is not None:
        np.save(folder / "lse.npy", lse.contiguous().numpy())
    bound = 2 * _largest(plain - o) + 2 * roundoff(element) * _largest(o)
    return {"sizes": sizes, "bound": bound, "lse_bound": None if lse is None else _lse_bound(lse)}


def _plain(asked: Recipe) -> bool:
    """Whether O is sum_j softmax(scores)_j V_j and nothing else."""
    more = (asked.weight, asked.late, asked.sink, asked.other)
    return all(x is None for x in more) and not asked.changes_output


def _lse_bound(lse: Tensor) -> float:
    return LSE_TOLERANCE * max(1.0, _largest(lse.masked_fill(lse.isneginf(), 0.0)))


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
