"""Runs an observed kernel on inputs of ours, in whatever order its launcher has the dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.child.client import Child
from engine.errors import InputError
from engine.foreign.cases import cases_of, complete, draw, refuse_too_large
from engine.foreign.check import Asked
from engine.foreign.compile import Compiled
from engine.foreign.launcher import DIMENSIONS, SIZES, Launcher, Parameter
from engine.foreign.probe.codes import Codes
from engine.foreign.record import Executed, execute, launched
from engine.foreign.reference import Reference, output, places_of, want
from engine.ptx.floats import to_half
from engine.ptx.isa.observe import Observer
from engine.scalar_algebra.arrays import places, values_of
from engine.spec.recipes.recipe_json import recipe_from_json

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]
_LONG, _LEAST_TILE = 128, 16  # keys
MANY_ROWS = 256  # so many numbers, one of each, are no chance


@dataclass(frozen=True, slots=True)
class Bench:
    """All that a run of the kernel needs beside its program."""

    asked: Asked
    entry: Launcher
    reference: Reference | None
    child: Child | None
    folder: Path

    def scalars(self, sizes: Sizes) -> dict[str, int | float | bool]:
        """The launcher's numbers: the reference's own; a scale that it is told is another one at
        other sizes."""
        own = dict(self.reference.scalars) if self.reference else {}
        if any(p.means == "scale" and p.kind == "scalar" for p in self.entry.parameters):
            own["scale"] = (sizes["Hq"] + 6) / 8 / float(np.sqrt(sizes["D"]))
        return own

    def scale(self, sizes: Sizes) -> float:
        return float(self.scalars(sizes).get("scale", 1 / np.sqrt(sizes["D"])))

    @property
    def half(self) -> bool:
        """Whether the tensors' numbers have 16 bits."""
        return any(p.dtype in ("f16", "bf16") for p in self.entry.tensors if p.means in "qkv")

    def keeps(self, sizes: Sizes) -> Array | None:
        """Which pairs the reference keeps, [B, Hq, Nq, Nk]; None where data says it, or nothing
        that was read."""
        if self.reference is None or self.reference.recipe is None:
            return None
        kept = values_of(recipe_from_json(self.reference.recipe).keep, places(sizes))
        shape = [sizes[n] for n in ("B", "Hq", "Nq", "Nk")]
        return None if kept is None else np.broadcast_to(np.asarray(kept, np.bool_), shape)

    def others(self, sizes: Sizes) -> dict[str, Array]:
        """The bits of inputs beside q, k and v: the reference's own where it draws them."""
        extra = [
            p.means for p in self.entry.tensors if not p.output and p.means not in ("q", "k", "v")
        ]
        if not extra:
            return {}
        if self.reference is not None and self.child is not None:
            made = want(self.reference, self.entry, sizes, "random", 0, self.child, self.folder)
            if not isinstance(made, str):
                return {n: made.inputs[n] for n in extra}
        drawn = draw(self.entry, sizes)
        return {n: drawn[n] for n in extra}

    def launched(self, compiled: Compiled, sizes: Sizes) -> frozenset[str]:
        """The kernels that the launcher launches at these sizes; nothing is executed."""
        whole = complete(self.entry, sizes)
        return launched(compiled, self.entry, whole, self.scalars(sizes), self.asked.flags.arch,
                        self.folder)  # fmt: skip

    def fewer(self, compiled: Compiled, sizes: Sizes) -> Sizes:
        """The sizes with one batch and one head, where a head has rows enough to tell numbers by,
        and the launcher launches the same kernels then."""
        one = complete(self.entry, {**sizes, "B": 1, "Hq": 1, "Hkv": 1})
        allowed = self.reference is None or self.reference.allows(one)
        if sizes["Nq"] < MANY_ROWS or not allowed:
            return sizes
        try:
            same = self.launched(compiled, one) == self.launched(compiled, sizes)
        except InputError:
            return sizes
        return one if same else sizes

    def run(
        self, compiled: Compiled, sizes: Sizes, q: Array, k: Array, v: Array, observer: Observer
    ) -> tuple[dict[str, Array], list[Executed]]:
        """Runs the kernel: q, k and v in the order B, H, N, D in float64.

        Returns:
            The outputs in that order in float64, and the launches.
        """
        whole = complete(self.entry, sizes)
        inputs = self.others(whole)
        for p in self.entry.tensors:
            if p.means in ("q", "k", "v") and not p.output:
                inputs[p.means] = _bits({"q": q, "k": k, "v": v}[p.means], p)
        written, launches = execute(
            compiled, self.entry, whole, inputs, self.scalars(sizes), self.asked.flags.arch,
            self.folder, observer,
        )  # fmt: skip
        for launch in launches:
            for finding in launch.findings:
                if finding.kind in ("out of bounds", "deadlock", "trap"):
                    raise InputError(f"at these sizes: {finding}")
        shapes = {"o": (*q.shape[:3], v.shape[3]), "lse": q.shape[:3]}
        outputs = {p.means: output(p, written[p.means], shapes[p.means])
                   for p in self.entry.outputs if p.means in shapes}  # fmt: skip
        return outputs, launches


def _bits(values: Array, p: Parameter) -> Array:
    """Numbers [B, H, N, D] in a tensor's own type and order of dimensions."""
    order = places_of(p)
    ours = np.ascontiguousarray(values.transpose(np.argsort(order)))
    if p.dtype in ("f16", "bf16"):
        return to_half(ours.astype(np.float32), p.dtype)
    if p.dtype not in ("f32", "f64"):
        raise InputError(f"{p.means} has elements of type {p.dtype}: its scores are not probed")
    return ours.astype(np.dtype(f"f{SIZES[p.dtype]}")).view(np.dtype(f"u{SIZES[p.dtype]}"))


def probing_sizes(bench: Bench) -> list[tuple[Sizes, list[Sizes]]]:
    """Sizes to probe at, those to be tried first first, each with second ones.

    Whole tiles, at least two of them; the second sizes have other numbers of everything that the
    launcher is told. There heads share keys, and lengths differ, where it is told both; the next
    are tried where a kernel does not take that.
    """
    asked = _Cases.of(bench)
    step = 16 if asked.longest <= 64 else 64 if asked.longest <= 128 else 128
    own = asked.longest  # a kernel may take multiples of its own tile alone
    long = -(-own // step) * step
    out: list[tuple[Sizes, list[Sizes]]] = []
    for n in dict.fromkeys((long, 2 * long, own, 2 * own, 64, 128, 256)):
        lengths = [
            (more, keys)
            for more in ((2 * n, n + n // 2) if bench.half else (n + n // 2, 2 * n))
            for keys in dict.fromkeys((n + n // 2 + 2 * n - more if asked.uneven else more, more))
        ]
        out += asked.pairs(bench, (2, 3), n, (1, 4), lengths)
    if not out:
        raise InputError("no sizes of whole tiles are allowed by the reference")
    return out


def longer_sizes(bench: Bench, keys: int, whole: int) -> list[tuple[Sizes, list[Sizes]]]:
    """The same with at least so many keys, in multiples of `whole`; few heads, so that all pairs
    are told apart."""
    asked = _Cases.of(bench)
    n = -(-keys // whole) * whole
    more = n + whole
    lengths = [(more, more)]
    # With four heads B and Hkv differ in one of the two, where so many pairs are told apart.
    four = asked.shared and Codes({"B": 1, "Hq": 4, "Nq": more, "Nk": more}).countable
    return asked.pairs(bench, (2, 2), n, (1, 4 if four else 3),
                       [(n - whole, more), *lengths] if asked.uneven else lengths)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cases:
    """What the cases that a kernel was given say of its sizes: the head sizes, how long they are,
    and the launcher's further whole numbers; and what the launcher is told apart."""

    heads: tuple[int, ...]
    longest: int
    further: Mapping[str, int]
    shared: bool
    uneven: bool

    @staticmethod
    def of(bench: Bench) -> _Cases:
        own, told = bench.asked, bench.entry.sizes
        cases = cases_of(bench.entry, own.sizes, ("random",), own.head_dim, bench.reference)
        for case in cases:
            refuse_too_large(bench.entry, case, True)
        asked = [complete(bench.entry, c.sizes) for c in cases] if own.sizes else []
        usual = {"N", *DIMENSIONS}
        further = {n: s for n, s in (asked[0] if asked else {}).items() if n not in usual}
        lengths = [s[n] for s in asked for n in ("Nq", "Nk")] or [_LONG]
        any_length = math.gcd(*lengths) < _LEAST_TILE  # so that none says what a tile is
        head = asked[0]["D"] if asked else bench.asked.head_dim
        other = next((s["D"] for s in asked if s["D"] != head), head) if "D" in told else head
        return _Cases(
            (head, other), min(max(lengths), _LONG) if any_length else max(lengths), further,
            "Hkv" in told, {"Nq", "Nk"} <= told,
        )  # fmt: skip

    def pairs(
        self, bench: Bench, own: tuple[int, int], n: int, second: tuple[int, int],
        lengths: Sequence[tuple[int, int]],
    ) -> list[tuple[Sizes, list[Sizes]]]:  # fmt: skip
        """First sizes of `n` rows and keys with the second ones that the reference allows; B and Hq
        of both are given."""
        head, other = self.heads
        first = self.sizes(bench, *own, own[1], n, n, head)
        b, hq = second
        allowed = [
            sizes
            for gqa in dict.fromkeys((self.shared, False))
            for rows, keys in lengths
            for d in dict.fromkeys((other, head))
            if (sizes := self.sizes(bench, b, hq, hq // 2 if gqa else hq, rows, keys, d))
        ]
        return [(first, allowed)] if first is not None and allowed else []

    def sizes(
        self, bench: Bench, b: int, hq: int, hkv: int, nq: int, nk: int, d: int
    ) -> Sizes | None:
        """All sizes of one run, where the reference allows them."""
        given = {"B": b if "B" in bench.entry.sizes else 1, "Hq": hq, "Hkv": hkv, "Nq": nq,
                 "Nk": nk, "D": d}  # fmt: skip
        whole = complete(bench.entry, {**self.further, **given})
        return whole if bench.reference is None or bench.reference.allows(whole) else None


def attention(scores: Array, keep: Array, v: Array) -> Array:
    """softmax over the kept keys, times V: [B, Hq, Nq, Dv] in float64, 0 where a row keeps none."""
    group = scores.shape[1] // v.shape[1]
    masked = np.where(keep, scores, -np.inf)
    top = masked.max(-1, keepdims=True)
    weights = np.where(keep, np.exp(masked - np.where(np.isfinite(top), top, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1) @ np.repeat(v, group, axis=1))


@dataclass(frozen=True, slots=True)
class Kept:
    """Which keys each query looks at, [B, Hq, Nq, Nk]; and whether that is as expected: where all
    scores are 0, O is the mean of the own head's V over the reference's keys, or over those read
    off where no reference says it. A kernel that weighs keys unequally (a bias) is never so; one
    that does not take the sizes, and reads rows of other heads, is not so at those."""

    pairs: Array
    expected: bool


def kept(bench: Bench, compiled: Compiled, sizes: Sizes) -> Kept:
    """Which keys each query looks at, read off the output alone.

    All scores are 0, so that n kept keys have a weight of 1 / n. What the kernel's reference keeps
    is what it looks at where V of random signs gives that output. Else V holds a power of two for
    each key of a group in a channel of the group's own: n O is the sum of those that are kept.
    Where weights are not equal (a bias) keys have a channel each.
    """
    v = np.random.default_rng(4).choice((-1.0, 1.0), _values_shape(sizes))
    o = _of_values(bench, compiled, sizes, v)
    guess = bench.keeps(sizes)
    if guess is not None and explains(o, guess, v):
        return Kept(guess, True)
    for each in (3, 1) if bench.half else (8, 1):
        sums = _sums(bench, compiled, sizes, each)
        if each == 1:
            return Kept(np.asarray(sums > 0.5 / sizes["Nk"]), False)
        found = decoded(sums, each, sizes["Nk"], 0.03 if bench.half else 0.01)
        if found is not None:
            return Kept(found, guess is None and explains(o, found, v))
    raise AssertionError


def explains(o: Array, keep: Array, v: Array) -> bool:
    """Whether an output is the mean of V over the kept keys, within bf16's rounding; 0, or no
    number, where none is kept.

    Args:
        o: [B, Hq, Nq, Dv]; `keep`: [B, Hq, Nq, Nk]; `v`: [B, Hkv, Nk, Dv] of -1 and 1, so that a
            sum over other keys is another whole number in some channel.
    """
    count = keep.sum(-1, keepdims=True)
    sums = keep.astype(np.float64) @ np.repeat(v, keep.shape[1] // v.shape[1], axis=1)
    near = np.abs(o * count - sums) <= 0.1 + np.abs(sums) * 2.0**-8
    return bool(np.where(count > 0, near, np.nan_to_num(o) == 0).all())


def _values_shape(sizes: Sizes) -> tuple[int, ...]:
    return tuple(sizes[n] for n in ("B", "Hkv", "Nk", "Dv"))


def _of_values(bench: Bench, compiled: Compiled, sizes: Sizes, v: Array) -> Array:
    """O where all scores are 0."""
    q, k = (np.zeros([sizes[n] for n in names]) for names in (
        ("B", "Hq", "Nq", "D"), ("B", "Hkv", "Nk", "D")))  # fmt: skip
    return bench.run(compiled, sizes, q, k, v, Observer())[0]["o"]


def _sums(bench: Bench, compiled: Compiled, sizes: Sizes, each: int) -> Array:
    """O in channels of so many keys each: [B, Hq, Nq, channels]."""
    nk, dv = sizes["Nk"], sizes["Dv"]
    sums = np.zeros((sizes["B"], sizes["Hq"], sizes["Nq"], -(-nk // each)))
    for first in range(0, sums.shape[-1], dv):
        count = min(dv, sums.shape[-1] - first)
        v = np.zeros(_values_shape(sizes))
        key = np.arange(first * each, min((first + count) * each, nk))
        v[:, :, key, key // each - first] = 2.0 ** (key % each)
        sums[..., first : first + count] = _of_values(bench, compiled, sizes, v)[..., :count]
    return sums


def decoded(sums: Array, each: int, keys: int, near: float) -> Array | None:
    """The kept keys of rows whose weights are equal, [.., keys]; None where some are not.

    Args:
        sums: [.., channels] of `each` keys.
        near: how far from a whole number a sum may be.
    """
    flat = sums.reshape(-1, sums.shape[-1])
    out = np.zeros((len(flat), keys), np.bool_)
    todo: Array = np.asarray(np.nan_to_num(flat).any(-1))  # a row without a key: 0, or no number
    one = np.fmin.reduce(np.where(flat > 0, flat, np.nan), axis=-1)  # times n a whole number
    for n in range(1, keys + 1):
        if not todo.any():
            break
        rows = np.flatnonzero(todo & (np.abs(one * n - np.rint(one * n)) < near))
        scaled = flat[rows] * n
        whole = np.rint(scaled).astype(np.int64)
        bits = (whole[..., None] >> np.arange(each) & 1).astype(np.bool_)
        bits = bits.reshape(len(whole), each * flat.shape[-1])[:, :keys]
        fits = (np.abs(scaled - whole).max(-1, initial=0) < near) & (bits.sum(-1) == n)
        out[rows[fits]] = bits[fits]
        todo[rows[fits]] = False
    return None if todo.any() else out.reshape(*sums.shape[:-1], keys)


def random_inputs(sizes: Sizes, seed: int) -> tuple[Array, Array, Array]:
    """q, k, v around 0, as exact in bf16 as in float64."""
    draw = np.random.default_rng(seed)

    def around(heads: str, length: str, width: str) -> Array:
        shape = [sizes[n] for n in ("B", heads, length, width)]
        # Of eight bits: a value of 4 or more would be another one in bf16.
        return np.asarray(np.clip(np.rint(draw.standard_normal(shape) * 64), -255, 255) / 64)

    return around("Hq", "Nq", "D"), around("Hkv", "Nk", "D"), around("Hkv", "Nk", "Dv")


def scores(q: Array, k: Array) -> Array:
    """q . k: [B, Hq, Nq, Nk]."""
    group = q.shape[1] // k.shape[1]
    return np.asarray(q @ np.repeat(k, group, axis=1).swapaxes(-1, -2))


def told(launches: Sequence[Executed]) -> dict[str, int]:
    """The kernels that ran, with their thread instructions."""
    out: dict[str, int] = {}
    for launch in launches:
        out[launch.kernel] = out.get(launch.kernel, 0) + launch.thread_instructions
    return out
