"""The reference of someone's kernel: what it says of tensors and sizes, and what a case must give.

The reference's own code runs below the torch child alone; arrays come from there as files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.child.client import Child
from engine.errors import InputError, SpecError
from engine.foreign.launcher import SIZES, Launcher, Parameter
from engine.foreign.numbers.expected import Attention
from engine.foreign.numbers.precision import UNIT
from engine.foreign.numbers.told import elements
from engine.foreign.record import Written
from engine.ptx.floats import from_half
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.python.declarations import declared
from engine.spec.python.signature import Signature
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe_json import recipe_from_json

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """A PyTorch function that says what a kernel computes.

    Args:
        recipe: what was read from it, as JSON; None where only its declarations are known, so
            that there is no LSE to compare with.
        scalars: the function's own numbers by name.
        options: parameters of the function that a person set.
    """

    path: Path
    signature: Signature
    recipe: Mapping[str, Any] | None
    scalars: Mapping[str, int | float | bool]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, str]:
        """The dimensions of each tensor by the name that a launcher has for it."""
        inputs = self.signature.inputs
        shapes = {i.name if i.role == "extra" else i.role: " ".join(i.dims) for i in inputs}
        return shapes | {"o": " ".join(self.signature.output_dims), "lse": "B Hq Nq"}

    @property
    def types(self) -> dict[str, str]:
        """The elements of extra tensors by name, where the reference says them."""
        held = {"f32": "f32", "i32": "i32", "i64": "i64", "bool": "u8"}
        return {i.name: held[i.dtype] for i in self.signature.inputs
                if i.role == "extra" and i.dtype in held}  # fmt: skip

    def allows(self, sizes: Mapping[str, int]) -> bool:
        return all(evaluate(c, sizes) for c in self.signature.constraints)


def read_reference(path: Path, child: Child, options: Mapping[str, Any] = {}) -> Reference:
    """Reads a reference by its declarations, and its recipe where one can be read.

    Raises:
        SpecError: its q, k and v are not declared.
    """
    source = read_source(path, options)
    said = declared(source)
    try:
        recipe = child.call("recipe", {"path": str(path), "options": dict(options)})["recipe"]
    except SpecError:
        recipe = None
    known = Signature.of(said) if recipe is None else Signature.of(recipe_from_json(recipe))
    return Reference(path, known, recipe, dict(said.scalars), dict(options))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one case must give: all of its sizes, inputs as bits, O and LSE, [B, Hq, Nq(, Dv)], with
    bounds of their errors by row, [B, Hq, Nq]."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    o: Array
    o_bound: Array
    lse: Array | None = None
    lse_bound: Array | None = None
    numbers: Attention | None = None


def want(
    reference: Reference, launcher: Launcher, sizes: Mapping[str, int], values: str, seed: int,
    child: Child, folder: Path, unit: float = UNIT["f32"], numbers: bool = False,
) -> Wanted | str:  # fmt: skip
    """The reference's case, or why it has none.

    Args:
        unit: of the kernel's arithmetic (`unit_roundoff`), for the bound of LSE.
        numbers: also what leads to O, where it is a softmax's plain sum.
    """
    for old in folder.glob("*.npy"):
        old.unlink()
    types = {p.means: p.dtype for p in launcher.tensors if not p.output}
    answer = child.call(
        "wanted",
        {"spec": str(reference.path), "options": dict(reference.options),
         "recipe": reference.recipe, "sizes": dict(sizes), "values": values, "seed": seed,
         "types": types, "unit": unit, "folder": str(folder), "numbers": numbers},
    )  # fmt: skip
    if "skipped" in answer:
        return str(answer["skipped"])
    inputs = {name: np.load(folder / f"{name}.npy") for name in types}
    o, o_bound = (np.load(folder / f"{n}.npy") for n in ("o", "o_bound"))
    lse, lse_bound, way = None, None, None
    if (folder / "lse.npy").exists():
        lse, lse_bound = (np.load(folder / f"{n}.npy") for n in ("lse", "lse_bound"))
    if numbers and (folder / "keep.npy").exists():
        products, scores, keep = (
            np.load(folder / f"{n}.npy") for n in ("products", "scores", "keep")
        )
        way = Attention(products, scores, keep, o)
    return Wanted(answer["sizes"], inputs, o, o_bound, lse, lse_bound, way)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element of an output that is wrong, how many are, and which in words.

    Args:
        elements: which are wrong, in the order [B, Hq, Nq, Dv]; `nans`: which of them are NaN.
    """

    tensor: str
    at: tuple[int, ...]
    expected: float
    got: float | None  # None: nothing wrote it
    bound: float
    wrong: int
    of: int
    which: str
    elements: Array = field(repr=False, compare=False)
    nans: Array = field(repr=False, compare=False)

    def __str__(self) -> str:
        place = ", ".join(f"{n}={x}" for n, x in zip("bhid", self.at, strict=False))
        which = f" ({self.which})" if self.which else ""
        got = "nothing wrote it" if self.got is None else f"got {self.got:.6g}"
        return (
            f"{self.tensor.upper()} is wrong in {self.wrong} of {self.of} elements{which}: the "
            f"first at {place}: expected {self.expected:.6g}, {got} (allowed error "
            f"{self.bound:.2g})"
        )


def compare(
    wanted: Wanted, launcher: Launcher, outputs: Mapping[str, Written]
) -> tuple[list[Difference], dict[str, float]]:
    """What is wrong, and the largest error of each output that was compared."""
    differences: list[Difference] = []
    errors: dict[str, float] = {}
    for p in launcher.outputs:
        is_o = p.means == "o"
        expected, bound = (
            (wanted.o, wanted.o_bound[..., None]) if is_o else (wanted.lse, wanted.lse_bound)
        )
        if expected is None or bound is None:
            continue
        bound = np.broadcast_to(bound, expected.shape)
        got, known = (as_bhnd(a, p, expected.shape) for a in _values(p.means, outputs[p.means]))
        if p.means == "lse":  # of a row without a kept key: libraries have either infinity
            expected = np.where(np.isneginf(expected) & np.isposinf(got), np.inf, expected)
            stored = UNIT[outputs["lse"].dtype] * np.abs(expected)
            bound = bound + np.where(np.isfinite(stored), stored, 0.0)
        with np.errstate(invalid="ignore"):
            error = np.where(got == expected, 0.0, np.abs(got - expected))
        error = np.where(known & ~np.isnan(error), error, math.inf)
        errors[p.means] = float(error.max(initial=0.0))
        wrong = error > bound
        if wrong.any():
            at = tuple(int(x) for x in np.argwhere(wrong)[0])
            value = float(got[at]) if known[at] else None
            differences.append(
                Difference(p.means, at, float(expected[at]), value, float(bound[at]),
                           int(wrong.sum()), wrong.size,
                           elements(wrong, ~known, "bhid"[: wrong.ndim]), wrong,
                           wrong & known & np.isnan(got))
            )  # fmt: skip
    return differences, errors


def _values(name: str, written: Written) -> tuple[Array, Array]:
    """An output's numbers in float64, and which of them something wrote."""
    bits, dtype = written.data, written.dtype
    if dtype in ("f16", "bf16"):
        values = from_half(bits, dtype).astype(np.float64)
    elif dtype in ("f32", "f64"):
        values = bits.view(np.dtype(f"f{SIZES[dtype]}")).astype(np.float64)
    else:
        raise InputError(f"{name} has elements of type {dtype}, which are not compared")
    known = np.asarray(written.known.reshape((*bits.shape, SIZES[dtype])).all(axis=-1))
    return values, known


def other_layout(wanted: Wanted, launcher: Launcher, outputs: Mapping[str, Written]) -> str:
    """Words for an O that is the reference's where every tensor's heads and positions have changed
    places: the reference declares [B, N, H, D], and the kernel has [B, H, N, D], or the other way
    round. Empty where it is not, or where the reference is no softmax of scaled products."""
    named = {p.means: p for p in (*launcher.tensors, *launcher.returned)}
    way = wanted.numbers
    if way is None or way.scale is None or not {"q", "k", "v", "o"} <= named.keys():
        return ""
    read: dict[str, Array] = {}
    other = False  # one head, or one position, lies in memory the same either way
    for name in ("q", "k", "v", "o"):
        p = named[name]
        places = places_of(p)
        if len(places) != 4 or len(p.dims) != 4:
            return ""
        dims = list(p.dims)
        dims[places[1]], dims[places[2]] = dims[places[2]], dims[places[1]]
        turned = replace(p, dims=tuple(dims))
        bits = outputs["o"].data if name == "o" else wanted.inputs[name]
        dtype = outputs["o"].dtype if name == "o" else p.dtype
        values, _ = _values(name, Written(dtype, bits, np.ones(bits.nbytes, np.bool_), np.zeros(0)))
        size = dict(zip(p.dims, values.shape, strict=True))
        other |= min(size[dims[places[n]]] for n in (1, 2)) > 1
        read[name] = values.reshape([size[d] for d in dims]).transpose(places_of(turned))
    if not other:
        return ""
    q, k, v, o = read.values()
    group = q.shape[1] // k.shape[1]
    scores = way.scale * q @ np.repeat(k, group, axis=1).swapaxes(-1, -2)
    masked = np.where(way.keep, scores, -np.inf)
    top = masked.max(-1, keepdims=True)
    weights = np.exp(masked - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    right = weights / np.where(total > 0, total, 1) @ np.repeat(v, group, axis=1)
    if not (np.abs(right - o) <= 4 * wanted.o_bound.max(initial=0.0)).all():
        return ""
    return (f"O equals the reference where the kernel's tensors are read as [{', '.join(dims)}]: "
            "declare the reference's q, k, v and output so")  # fmt: skip


_PLACES = (("B",), ("Hq", "Hkv"), ("Nq", "Nk", "N"), ("D", "Dv"))


def as_bhnd(values: Array, p: Parameter, shape: tuple[int, ...]) -> Array:
    """A tensor in the order [B, Hq, Nq, Dv] (or without the last), whatever its own is."""
    return values.transpose(places_of(p)).reshape(shape)


def places_of(p: Parameter) -> list[int]:
    """Where B, H, N and D are among a tensor's dimensions."""
    return [p.dims.index(d) for names in _PLACES for d in p.dims if d in names]


def output(p: Parameter, written: Written, shape: tuple[int, ...]) -> Array:
    """An output's numbers in that order in float64; nan where nothing wrote one."""
    values, known = (as_bhnd(a, p, shape) for a in _values(p.means, written))
    return np.where(known, values, np.nan)
