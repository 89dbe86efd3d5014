"""What the inspector computes of layouts is what the primitives' headers define."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pytest

from cubridge_tui.model.inspect import elements_a_thread
from engine.cuir.types import Layout, make_layout
from engine.resources import kernels_dir

CONSTANT = re.compile(r"static constexpr int (\w+) = ([\w\s*/()+-]+);")
PACKED = re.compile(r"(?:unsigned|uint32_t) value((?:\[[\w\s/*]+\])+);")


def body(name: str) -> str:
    """The text of a struct of the headers."""
    for path in sorted(Path(kernels_dir(), "include", "cubridge").glob("*.cuh")):
        found = re.search(rf"struct {re.escape(name)} \{{(.*?)\n\}};", path.read_text(), re.DOTALL)
        if found is not None:
            return found.group(1)
    raise AssertionError(f"no header defines {name}")


def constants(name: str, given: dict[str, int]) -> dict[str, int]:
    """The compile-time numbers of a struct under its template arguments."""
    known = dict(given)
    for constant, value in CONSTANT.findall(body(name)):
        known[constant] = eval(value.replace("/", "//"), {}, known)  # the project's own headers
    return known


def packed(name: str, given: dict[str, int]) -> int:
    """The elements of an operand: two to each register of its array."""
    known = constants(name, given)
    found = PACKED.search(body(name))
    assert found is not None
    sizes = re.findall(r"\[([^]]+)\]", found.group(1))
    return 2 * prod(int(eval(size.replace("/", "//"), {}, known)) for size in sizes)


def vector(kind: str, base: Layout) -> Layout:
    rows, cols = (base.rows, 1) if kind == "row_of" else (1, base.cols)
    return Layout(kind, rows, cols, None, base)


@pytest.mark.parametrize(("m", "n", "warps"), [(64, 64, 4), (128, 64, 4), (128, 128, 8)])
def test_mma_layouts(m: int, n: int, warps: int) -> None:
    acc, given = make_layout("mma_acc", (m, n, warps)), {"M": m, "N": n, "WARPS": warps}
    assert elements_a_thread(acc) == constants("MmaAcc", given)["SIZE"]
    assert elements_a_thread(vector("row_of", acc)) == constants("MmaRows", given)["SIZE"]
    assert elements_a_thread(vector("col_of", acc)) == constants("MmaCols", given)["SIZE"]
    assert elements_a_thread(acc.operand()) == packed("MmaA", given | {"K": n})


@pytest.mark.parametrize("n", [64, 112, 256])
def test_wgmma_layouts(n: int) -> None:
    acc, given = make_layout("wgmma_acc", (64, n)), {"M": 64, "N": n}
    assert elements_a_thread(acc) == constants("WgmmaAcc", given)["SIZE"]
    assert elements_a_thread(vector("row_of", acc)) == constants("WgmmaRows", given)["SIZE"]
    assert elements_a_thread(vector("col_of", acc)) == constants("WgmmaCols", given)["SIZE"]
    assert elements_a_thread(acc.operand()) == packed("Operand<WgmmaA<M, K>, T>", given | {"K": n})
