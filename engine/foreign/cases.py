"""The sizes and values that a kernel is run at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.errors import InputError
from engine.foreign.launcher import MOST_BYTES, SIZES, Launcher
from engine.foreign.reference import Reference
from engine.ptx.floats import to_half

Array = np.ndarray[Any, Any]
LENGTHS = ("N", "Nq", "Nk")  # sizes that are lengths; N where rows and keys are as many


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes, how values are drawn (a kind of `engine.spec.decks.deck_inputs`, or "marked" of
    `engine.gates.g1_g2.marked_rows`), and the type of elements, where it is another than the kernel
    is asked about with."""

    sizes: Mapping[str, int]
    seed: int = 0
    values: str = "random"
    dtype: str = ""

    def __str__(self) -> str:
        words = ", ".join(f"{n} {s}" for n, s in self.sizes.items())
        said = (words, self.dtype, self.values if self.values != "random" else "")
        return ", ".join(filter(None, said))


# B, query heads, key heads, queries, keys; of tiles and row blocks of 16, 32, 64 or 128. One key
# more than whole tiles, in two batches whose heads share keys; by one more than whole tiles, too,
# keys are more than queries, so that under a causal mask the last row of a block is the only one to
# see the first key of its last tile. One row more than whole blocks, and fewer keys than rows by no
# multiple of anything, so that rows with and without keys share a block, and a warp. Whole tiles
# alone. Less than a tile, in batches, heads and key heads that are not as many, so that no stride
# is another one.
_USUAL = (
    (2, 2, 1, 128, 257, "marked"), (1, 2, 2, 129, 70, "random"), (1, 2, 1, 128, 128, "marked"),
    (2, 6, 3, 21, 23, "random"),
)  # fmt: skip
_MEMORY = 2  # of them where nothing is compared
LONGEST = max(case[4] for case in _USUAL)  # keys
# A case that can be typed, for whoever gave a part of one.
_TYPED = {"B": 1, "Hq": 2, "Hkv": 1, "N": 128, "Nq": 128, "Nk": 128, "D": 64, "Dv": 64}


def cases_of(
    launcher: Launcher, given: Sequence[Mapping[str, int]], kinds: Sequence[str], head_dim: int,
    reference: Reference | None,
) -> list[Case]:  # fmt: skip
    """The cases that a person gave, each with values of each kind; the usual ones where none was
    given. One that names no length says what is other in the usual ones.

    Raises:
        InputError: a name that is no size of the launcher's.
    """
    own = [p for p in launcher.parameters if p.kind == "size"]
    known = {*_TYPED, *launcher.sizes, *(d for p in launcher.tensors for d in p.dims)}
    for name in (n for sizes in given for n in sizes):
        if name not in known | {p.name for p in own}:
            told = ", ".join(dict.fromkeys(p.name for p in own)) or ", ".join(sorted(known))
            raise InputError(f"--sizes: {launcher.name} has no size {name}",
                             fix=f"leave it out; its sizes are {told}")  # fmt: skip
    lengths = {*LENGTHS, *(p.name for p in own if p.means in LENGTHS)}
    out: list[Case] = []
    for sizes in given or ({},):
        if lengths & set(sizes):
            out += [Case(sizes, len(out) + n, kind) for n, kind in enumerate(kinds)]
            continue
        usual = usual_cases(launcher, sizes.get("D", head_dim), reference)
        changed = [replace(c, sizes={**c.sizes, **sizes}) for c in usual]
        out += [c for c in changed
                if reference is None or reference.allows(complete(launcher, c.sizes))]  # fmt: skip
    return out


def refuse_too_large(launcher: Launcher, case: Case, compared: bool) -> None:
    """Looks how many bytes a case has.

    Raises:
        InputError: too many, in its tensors, or where it is `compared` in the reference's scores,
            which are float64.
    """
    sizes = complete(launcher, case.sizes)
    tensors = sum(SIZES[p.dtype] * math.prod(sizes[d] for d in p.dims) for p in launcher.tensors)
    scores = 8 * math.prod(sizes.get(n, 1) for n in ("B", "Hq", "Nq", "Nk")) if compared else 0
    needs, what = max((tensors, "its tensors"), (scores, "the reference's scores"))
    if needs > MOST_BYTES:
        raise InputError(
            f"--sizes: {case} needs {needs / 2**30:,.1f} GiB for {what}: more than the "
            f"{MOST_BYTES >> 30} GiB that a case may have here", fix="name smaller sizes",
        )  # fmt: skip


def unlike(
    launcher: Launcher, cases: Sequence[Case], allowed: Callable[[Mapping[str, int]], bool]
) -> Case | None:
    """A case whose two lengths differ, and query heads from key heads, as far as the launcher is
    told both by numbers, none of the cases has them so, and the reference allows it: what takes the
    one for the other is right in all cases without it."""
    told = {p.means for p in launcher.parameters if p.kind == "size"}
    every = [complete(launcher, c.sizes) for c in cases]
    least = min(cases, key=lambda c: math.prod(complete(launcher, c.sizes).values()))
    sizes = dict(least.sizes)
    for one, other, longer in (("Nq", "Nk", ("Nk", "Nq")), ("Hq", "Hkv", ("Hq",))):
        if {one, other} <= told and all(s[one] == s[other] for s in every):
            now = complete(launcher, sizes)
            changed = ({**sizes, one: now[one], other: now[other], n: 2 * now[n]} for n in longer)
            sizes = next((c for c in changed if allowed(complete(launcher, c))), sizes)
    return None if sizes == least.sizes else replace(least, sizes=sizes)


def usual_cases(launcher: Launcher, head_dim: int, reference: Reference | None) -> list[Case]:
    """The usual sizes, bent to what the launcher takes and the reference allows."""
    told = launcher.sizes
    out: dict[tuple[int, ...], Case] = {}
    for b, hq, hkv, n_q, n_k, values in _USUAL[: None if reference else _MEMORY]:
        square = max(n_q, n_k)
        tried = ((hkv, n_q, n_k), (hkv, square, square), (hq, n_q, n_k), (hq, square, square))
        for heads, rows, keys in tried:
            if ("N" in told or "Nk" not in told) and rows != keys:
                continue
            if "Hkv" not in told and heads != hq:
                continue
            sizes = {"B": b, "Hq": hq, "Hkv": heads, "Nq": rows, "Nk": keys, "D": head_dim,
                     "Dv": head_dim}  # fmt: skip
            if reference is None or reference.allows(sizes):
                named = {n: s for n, s in sizes.items() if n != "Dv"}
                out.setdefault(tuple(sizes.values()), Case(named, len(out), values))
                break
    if not out:
        raise InputError("none of the usual sizes is allowed", fix="name a case with --sizes")
    return list(out.values())


def complete(launcher: Launcher, sizes: Mapping[str, int]) -> dict[str, int]:
    """All sizes that the shapes need: those that the launcher does not tell apart are the same."""
    every = dict(sizes)
    own = [(p.means, p.name) for p in launcher.parameters if p.kind == "size"]
    for name, other in (*own, ("Nq", "N"), ("Nk", "N"), ("N", "Nq"), ("Nk", "Nq"), ("Hkv", "Hq"),
                        ("Dv", "D")):  # fmt: skip
        if other in every:
            every.setdefault(name, every[other])
    every.setdefault("B", 1)
    needed = {d for p in launcher.tensors for d in p.dims}
    needed |= {p.means for p in launcher.parameters if p.kind == "size"}
    missing = sorted(n for n in needed if n not in every)
    if missing:
        names = [n for n in _TYPED if n in {*missing, *launcher.sizes} - {"Dv"}]
        names += sorted(needed - {*_TYPED})
        whole = {n: every.get(n, _TYPED.get(n, 1)) for n in names} | dict(sizes)
        raise InputError(
            f"--sizes: no size for {', '.join(missing)}",
            fix="--head-dim for D; " * ("D" in missing)
            + f'a whole case: --sizes "{" ".join(f"{n}={s}" for n, s in whole.items())}"',
        )
    return every


def draw(launcher: Launcher, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random inputs, as bits: floats around 0, whole numbers 0."""
    random = np.random.default_rng(0)
    out: dict[str, Array] = {}
    for p in launcher.tensors:
        shape = [sizes[d] for d in p.dims]
        if p.output:
            continue
        values = random.standard_normal(shape).astype(np.float32)
        if p.dtype in ("f16", "bf16"):
            out[p.means] = to_half(values, p.dtype)
        elif p.dtype in ("f32", "f64"):
            held = values.astype(np.dtype(f"f{SIZES[p.dtype]}"))
            out[p.means] = held.view(np.dtype(f"u{SIZES[p.dtype]}"))
        else:
            out[p.means] = np.zeros(shape, np.dtype(f"u{SIZES[p.dtype]}"))
    return out
