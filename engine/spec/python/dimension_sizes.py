"""Sizes to run a spec at: every dimension different from every other, at every size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from engine.spec.python.spec_file import TensorParameter

# Nq < Nk and Nq > Nk both occur; no size divides another by accident; group sizes differ; lengths,
# and head counts, of both parities and of every remainder by 4, also where a spec has one length;
# no D is a square, for a scale that is a power of two folds into others, and all are multiples of
# eight, as those of kernels, for a spec that rotates a half or a quarter of the columns in pairs.
TRACE_SIZES: tuple[Mapping[str, int], ...] = (
    {"B": 5, "Hq": 21, "Hkv": 7, "Nq": 13, "Nk": 24, "D": 32, "Dv": 11},
    {"B": 3, "Hq": 10, "Hkv": 5, "Nq": 26, "Nk": 23, "D": 8, "Dv": 7},
    {"B": 7, "Hq": 15, "Hkv": 3, "Nq": 16, "Nk": 22, "D": 40, "Dv": 13},
    {"B": 5, "Hq": 24, "Hkv": 6, "Nq": 21, "Nk": 13, "D": 56, "Dv": 9},
)
# Checked, not fitted: another order of magnitude between sizes, one row, equal lengths, one head.
CHECK_SIZES: tuple[Mapping[str, int], ...] = (
    {"B": 2, "Hq": 8, "Hkv": 2, "Nq": 21, "Nk": 47, "D": 16, "Dv": 24},
    {"B": 1, "Hq": 3, "Hkv": 1, "Nq": 37, "Nk": 9, "D": 32, "Dv": 4},
    {"B": 2, "Hq": 2, "Hkv": 2, "Nq": 33, "Nk": 33, "D": 8, "Dv": 8},
    {"B": 1, "Hq": 5, "Hkv": 5, "Nq": 1, "Nk": 27, "D": 24, "Dv": 24},
)
# Every remainder of a length by 2 to 8, and the ends and middles of tiles of 16 and 64.
REMAINDER_SIZES: tuple[Mapping[str, int], ...] = (
    {"B": 1, "Hq": 4, "Hkv": 2, "Nq": 16, "Nk": 64, "D": 8, "Dv": 8},
    {"B": 2, "Hq": 6, "Hkv": 3, "Nq": 24, "Nk": 18, "D": 8, "Dv": 12},
    {"B": 1, "Hq": 7, "Hkv": 1, "Nq": 20, "Nk": 20, "D": 24, "Dv": 8},
    {"B": 3, "Hq": 1, "Hkv": 1, "Nq": 10, "Nk": 35, "D": 8, "Dv": 8},
    {"B": 1, "Hq": 12, "Hkv": 4, "Nq": 2, "Nk": 130, "D": 8, "Dv": 8},
    {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 79, "Nk": 6, "D": 8, "Dv": 8},
    {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 12, "Nk": 191, "D": 8, "Dv": 8},
)


class Domain(Enum):
    """For which lengths a spec is defined: many build a mask that needs Nq <= Nk, or Nq == Nk."""

    ANY = "any"
    AT_MOST = "Nq <= Nk"
    EQUAL = "Nq == Nk"

    def within(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """`sizes` moved into this domain."""
        low, high = sorted((sizes["Nq"], sizes["Nk"]))
        if self is Domain.ANY:
            return sizes
        return {**sizes, "Nq": high if self is Domain.EQUAL else low, "Nk": high}


_FAMILIES = {"batch": ("B",), "heads": ("Hq", "Hkv"), "rows": ("Nq", "Nk"), "columns": ("D", "Dv")}
# Abbreviations of published code that begin like another family's names.
_KNOWN = {
    **dict.fromkeys(("np", "ng", "nh", "nkv", "n_heads", "n_head", "num_heads"), "heads"),
    **dict.fromkeys(("hn", "hs", "hd", "dh", "dk", "dv", "head_size", "hidden"), "columns"),
    **dict.fromkeys(("tgt", "src"), "rows"),
}
USUAL = tuple(name for family in _FAMILIES.values() for name in family)


def slots(tensors: Iterable[TensorParameter]) -> dict[str, str]:
    """The usual name (B, Hq, Hkv, Nq, Nk, D, Dv) whose value each dimension name takes.

    Only for choosing sizes: which dimension plays which part is found from the two matmuls.
    """
    names = list(dict.fromkeys(d for t in tensors for d in t.dims if not d.isdigit()))
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if any(name in family for family in _FAMILIES.values()):
            out[name] = name
            taken.add(name)
    for name in names:
        if name in out:
            continue
        family = _FAMILIES.get(_family(name), ())
        lower = name.lower()
        wanted = [s for s in family if s not in taken]
        key = "k" in lower or "v" in lower or lower == "ng"
        if len(wanted) > 1 and key and "q" not in lower:
            wanted.reverse()
        out[name] = wanted[0] if wanted else name
        taken.add(out[name])
    return out


def _family(name: str) -> str:
    lower = name.lower()
    if lower in _KNOWN:
        return _KNOWN[lower]
    if lower.startswith("b"):
        return "batch"
    if ("head" in lower and "dim" not in lower) or lower.startswith("h"):
        return "heads"
    if lower.startswith(("d", "c", "e")) or "dim" in lower:
        return "columns"
    if lower[0] in "nsltmq k":
        return "rows"
    return "other"


def dimension_values(
    names: Sequence[str], slot: Mapping[str, str], sizes: Mapping[str, int]
) -> dict[str, int]:
    """A value for every dimension name; names outside the usual ones get sizes of their own."""
    out: dict[str, int] = {}
    spare = 7 + sizes["Nk"]
    for name in names:
        if slot[name] in sizes:
            out[name] = sizes[slot[name]]
        else:
            spare += 4 + sizes["B"]
            out[name] = spare
    return out
