"""The spec's function at one (batch, head) in float64, where no recipe says how to compute one.

A function may be given one head of its inputs where its heads do not look at each other, and one
batch likewise. Whether that is so is tried on a small case, element by element.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.specrun import SpecRun

SMALL = (Case(2, 4, 2, 37, 43, seed=7500), Case(2, 4, 2, 40, 40), Case(2, 4, 4, 40, 40))
AXES = (("B", "heads"), ("heads",), ("B",))
"""What may be cut, the most first."""
SAME = 1e-10


def cut(
    run: SpecRun,
    inputs: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    b: int,
    h: int,
    axes: tuple[str, ...],
) -> tuple[dict[str, Tensor], int, int]:
    """The inputs of batch `b` and of `h`'s group of heads, and where (b, h) is in their output."""
    group = max(1, sizes["Hq"] // max(1, sizes["Hkv"]))
    kv = h // group
    ranges: dict[str, tuple[int, int]] = {}
    if "B" in axes:
        ranges["B"] = (b, 1)
    if "heads" in axes:
        ranges |= {"Hq": (kv * group, group), "Hkv": (kv, 1)}
    out: dict[str, Tensor] = {}
    for item in run.signature.inputs:
        value = inputs[item.name]
        for place, dim in enumerate(item.dims):
            if dim in ranges:
                value = value.narrow(place, *ranges[dim])
        out[item.name] = value
    return out, 0 if "B" in axes else b, h - kv * group if "heads" in axes else h


def separable(run: SpecRun, d: int, dv: int) -> tuple[str, ...]:
    """What of a call's inputs may be cut off from the rest: batches, groups of heads, both."""
    for case in SMALL:
        sizes = run.sizes(case, d, dv)
        if not run.fits(sizes):
            continue
        inputs = run.make_inputs(case, sizes, torch.float32)
        try:
            whole = run.exact(inputs)
        except SpecError:
            continue
        for axes in AXES:
            if all(
                _same(run, inputs, sizes, whole, b, h, axes)
                for b in range(case.B)
                for h in range(case.Hq)
            ):
                return axes
        return ()
    return ()


def _same(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], whole: Tensor,
    b: int, h: int, axes: tuple[str, ...],
) -> bool:  # fmt: skip
    part, at_b, at_h = cut(run, inputs, sizes, b, h, axes)
    try:
        found = run.exact(part)[at_b, at_h]
    except (SpecError, IndexError):
        return False
    want = whole[b, h]
    if found.shape != want.shape:
        return False
    return bool(torch.allclose(found, want, rtol=SAME, atol=SAME, equal_nan=True))


def one_head_by_spec(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], b: int, h: int,
    axes: tuple[str, ...],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """O [Nq, Dv], its natural size [Nq, Dv] and which rows have a key [Nq], as `heads.one_head`.

    `axes` are what `separable` gave. Raises `SpecError`; torch.OutOfMemoryError where even the part
    does not fit.
    """
    part, at_b, at_h = cut(run, inputs, sizes, b, h, axes)
    exact = run.exact(part)
    size = run.magnitude(part, exact)[at_b, at_h]
    o = exact[at_b, at_h]
    return o.nan_to_num(), size, ~o.isnan().all(-1)
