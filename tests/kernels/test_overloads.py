"""What the checker takes, the primitives can say: for every op on tiles, each combination of
operands that its rule lets pass has an overload in the headers. nvcc's front end is the judge."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.build.tools.diagnostics import parse_diagnostics
from engine.build.tools.toolchain import compiler_environ, find_toolchain
from engine.cuir.arch import arch
from engine.cuir.nodes import Lambda
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Mismatch, RuleContext, check_operand
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.cuir.types import (
    DTYPES,
    DTypeValue,
    GmemTileType,
    GmemType,
    LambdaType,
    Layout,
    LayoutValue,
    ListType,
    NameType,
    Scalar,
    SharedType,
    TileType,
    Type,
    make_layout,
    vector_layout,
)
from engine.errors import MissingTool
from engine.resources import include_dir
from tests.engine.transfer.recipes import lifted

ARCHS = {"sm80": "sm_80", "sm90": "sm_90a"}
LINES = make_layout("lines", (64, 64, 4)), "Lines<64, 64, 4>"
ACCUMULATORS: dict[str, tuple[tuple[Layout, str], ...]] = {
    "sm80": (
        (make_layout("mma_acc", (64, 64, 4)), "MmaAcc<64, 64, 4>"),
        (make_layout("mma_acc", (64, 128, 4)), "MmaAcc<64, 128, 4>"),
        LINES,
    ),
    "sm90": (
        (make_layout("wgmma_acc", (64, 64)), "WgmmaAcc<64, 64>"),
        (make_layout("wgmma_acc", (64, 128)), "WgmmaAcc<64, 128>"),
        LINES,
    ),
}
# Ops of cp.async on a kernel of sm90.cuh: the arch has the instruction, that header no word for it.
ABSENT = {"sm80": set(), "sm90": {"copy", "copy_async", "copy_async_rows"}}
ZERO, AT = Scalar("i32", 0), ListType((Scalar("i32", 0), Scalar("i32", 0)))
HALF = DTypeValue(DTYPES["f16"])


@dataclass(frozen=True)
class Operand:
    """A type, and a C++ type that CuIR of that type has."""

    type: Type
    cxx: str

    @property
    def value(self) -> str:
        return f"some<{self.cxx}>()"


def registers(suite: str) -> Iterator[Operand]:
    """Tiles and vectors as the ops make them."""
    for layout, cxx in ACCUMULATORS[suite]:
        lines = layout.family.name == "lines"
        row, col = vector_layout("row_of", layout), vector_layout("col_of", layout)
        warpgroup = layout.family.unit == "warpgroup"
        yield Operand(TileType(layout, "f32"), f"Tile<{cxx}>")
        for share in ("no", "yes", "either"):
            yield Operand(TileType(row, "f32", share), f"Tile<RowOf<{cxx}>>")
        yield Operand(TileType(row, "i32"), f"Tile<RowOf<{cxx}>, int>")
        vector = "std::declval<GmemVector<float>>()"
        yield Operand(
            TileType(col, "f32", in_memory=warpgroup), f"decltype(load_cols<{cxx}>({vector}))"
        )
        loads = {"load_lines": "f32"} if lines else {"load_tile": "f32", "load_output": "f32"}
        for name in loads:
            end = "" if name == "load_output" else ", 0"
            made = f"decltype({name}<{cxx}>(std::declval<GmemTile<T>>(){end}))"
            yield Operand(TileType(layout, "f32", in_memory=True), made)
        if not lines:
            made = f"decltype(load_tile<{cxx}>(std::declval<GmemTile<int>>(), 0))"
            yield Operand(TileType(layout, "i32", in_memory=True), made)
            made = f"decltype(to_operand<T>(std::declval<Tile<{cxx}>&>()))"
            yield Operand(TileType(layout.operand(), "f16"), made)
            made = f"decltype(load_bits<{cxx}>(std::declval<GmemVector<int>>()))"
            yield Operand(TileType(layout, "bits"), made)


def shared(suite: str) -> Iterator[Operand]:
    name = "Shared" if suite == "sm80" else "SharedTile"
    for rows, cols in ((64, 64), (64, 128)):
        cxx = f"{name}<T, {rows}, {cols}>"
        yield Operand(SharedType("f16", rows, cols), cxx)
        yield Operand(SharedType("f16", rows, cols, transposed=True), f"Transposed<{cxx}>")
    if suite == "sm90":
        yield Operand(SharedType("f16", 64, 64, pitch=128), "SharedTile<T, 64, 64, 128>")


def gmem() -> Iterator[Operand]:
    for dtype, cxx in (("f16", "T"), ("f32", "float"), ("i32", "int"), ("bool", "bool")):
        view = GmemType("x", dtype, 4)
        yield Operand(GmemTileType(view, False), f"GmemTile<{cxx}>")
        yield Operand(GmemTileType(view, True), f"GmemVector<{cxx}>")


def taken(suite: str, name: str, *types: object) -> bool:
    """Whether the checker lets an op with these operands pass."""
    spec, context = OPS[name], RuleContext(arch(ARCHS[suite]), 128)
    if not context.arch.has(spec.needs):
        return False
    try:
        for operand, given in zip(spec.operands, types, strict=True):
            for one in given if isinstance(given, tuple) else (given,):
                if one is not None:
                    check_operand(spec, operand, one)
        spec.rule(context, *types)
    except Mismatch:
        return False
    return True


def function(count: int, body: str) -> LambdaType:
    return LambdaType(Lambda(tuple(f"x{n}" for n in range(count)), parse_expr(body)))


def calls(suite: str) -> Iterator[tuple[str, tuple[object, ...], str]]:
    """An op, the types of its operands, and the call in C++: every combination."""
    regs, tiles, views = list(registers(suite)), list(shared(suite)), list(gmem())
    for dst, src in itertools.product((*tiles, *views), regs):
        yield "store", (dst.type, src.type), f"store({dst.value}, {src.value})"
    for dst, src in itertools.product(tiles, regs):
        kept = f"store_shared({dst.value}, 0, {src.value})"
        yield "store_shared", (dst.type, ZERO, src.type), kept
    for (layout, cxx), tile in itertools.product(ACCUMULATORS[suite], tiles):
        made = f"load_shared<{cxx}>({tile.value}, 0)"
        yield "load_shared", (LayoutValue(layout), tile.type, ZERO), made
    for dst, src in itertools.product(views, regs):
        yield "store_rows", (dst.type, src.type), f"store_rows({dst.value}, {src.value})"
    for view, tile in itertools.product(views, tiles):
        yield "copy", (view.type, tile.type), f"copy({view.value}, {tile.value})"
        yield "copy_async", (tile.type, view.type), f"copy_async({tile.value}, {view.value})"
        rows = f"copy_async_rows({tile.value}, {view.value}, 0, 8)"
        yield "copy_async_rows", (tile.type, view.type, ZERO, ZERO), rows
    for a, b in itertools.product(regs, regs):
        two = f"{a.value}, {b.value}"
        for name in ("row_max", "row_sum", "keep_bits"):
            yield name, (a.type, b.type), f"{name}({two})"
        product = f"map({two}, [](auto x, auto y) {{ return float(x * y); }})"
        yield "map", ((a.type, b.type), function(2, "x0 * x1"), None), product
        kept = f"keep({two}, at(0, 0), [](auto x, int i, int j) {{ return x > i + j; }})"
        yield "keep", ((a.type, b.type), function(3, "x0 > x1 + x2"), AT), kept
    for a in regs:
        yield "row_reduce", (a.type,), f"row_reduce({a.value})"
        yield "swap_neighbours", (a.type,), f"swap_neighbours({a.value})"
        same = f"map({a.value}, [](auto x) {{ return float(x); }})"
        yield "map", ((a.type,), function(1, "x0"), None), same
        placed = f"map({a.value}, at(0, 0), [](auto x, int i, int j) {{ return float(x); }})"
        yield "map", ((a.type,), function(3, "x0"), AT), placed
        kept = f"keep({a.value}, at(0, 0), [](int i, int j) {{ return i < j; }})"
        yield "keep", ((a.type,), function(2, "x0 < x1"), AT), kept
        yield "convert", (a.type, HALF, NameType("a_operand")), f"to_operand<T>({a.value})"
    matmuls = ("gemm",) if suite == "sm80" else ("gemm_async", "gemm_async_init")
    for a, b, c in itertools.product(regs, (*regs, *tiles), tiles):
        for name in matmuls:
            yield name, (a.type, b.type, c.type), f"{name}({a.value}, {b.value}, {c.value})"
    for (layout, cxx), view in itertools.product(ACCUMULATORS[suite], views):
        of, row = LayoutValue(layout), LayoutValue(vector_layout("row_of", layout))
        yield "load_rows", (of, view.type), f"load_rows<{cxx}>({view.value})"
        yield "load_rows", (row, view.type), f"load_rows<RowOf<{cxx}>>({view.value})"
        yield "load_cols", (of, view.type), f"load_cols<{cxx}>(std::move({view.value}))"
        yield "load_tile", (of, view.type, ZERO), f"load_tile<{cxx}>({view.value}, 0)"
        yield "load_output", (of, view.type), f"load_output<{cxx}>({view.value})"
        yield "load_lines", (of, view.type, ZERO), f"load_lines<{cxx}>({view.value}, 0)"
        yield "load_bits", (of, view.type), f"load_bits<{cxx}>({view.value})"


@pytest.mark.parametrize("suite", list(ARCHS))
def test_what_the_checker_takes_has_an_overload(suite: str, tmp_path: Path) -> None:
    try:
        toolchain = find_toolchain()
    except MissingTool as missing:
        pytest.skip(missing.message)
    found = [(name, cxx) for name, types, cxx in calls(suite) if taken(suite, name, *types)]
    assert len({name for name, _ in found}) >= 16 and len(found) > 200
    wrong = "store(some<GmemTile<T>>(), some<GmemTile<T>>())"  # there must be a fault to be found
    head = (
        f'#include "cubridge/{suite}.cuh"\n#include <utility>\nusing namespace cubridge;\n'
        "using T = f16;\ntemplate <typename X> __device__ X& some();\n"
    )
    lines = [f"__device__ void at_{n}() {{ {cxx}; }}" for n, cxx in enumerate([wrong, *(
        cxx for _, cxx in found)])]  # fmt: skip
    # The last line stops the compiler behind its front end.
    text = head + "\n".join(lines) + "\nint = ;\n"
    source = tmp_path / "kernel.cu"
    source.write_text(text)
    done = subprocess.run(
        [
            str(toolchain.nvcc.path), "-std=c++17", "--expt-relaxed-constexpr",
            "-Xcudafe", "--error_limit=10000", f"-I{include_dir()}",
            f"-DCUBRIDGE_ARCH={ARCHS[suite][3:5]}0", "-arch", ARCHS[suite], "-ptx",
            "-o", str(tmp_path / "kernel.ptx"), str(source),
        ],
        capture_output=True, text=True, env=compiler_environ(), timeout=300, check=False,
    )  # fmt: skip
    errors: dict[int, str] = {}
    for diagnostic in parse_diagnostics(done.stdout + done.stderr, text):
        if diagnostic.severity == "error":
            assert diagnostic.where is not None and diagnostic.where.line, str(diagnostic)
            assert diagnostic.where.file == "kernel.cu", str(diagnostic)
            number = diagnostic.where.line - head.count("\n") - 1
            errors.setdefault(number, diagnostic.message)
    assert "no instance of overloaded function" in errors.pop(0)
    assert errors.pop(len(found) + 1)
    absent = {f'identifier "{name}" is undefined' for name in ABSENT[suite]}
    assert {m for m in errors.values() if m.endswith("is undefined")} == absent
    left = [(found[n - 1][1], m) for n, m in errors.items() if m not in absent]
    assert not left, left


@pytest.mark.parametrize(
    ("kernel", "old", "new", "words"),
    [
        (
            "flash_fwd_sm90", "store(O[b, h, row0:], o)", "store(sV[0], o)",
            "goes straight to global memory",
        ),
        (
            "flash_fwd_sm80", "store(sO, o)", "store(O[b, h, q0:], o)",
            "goes to global memory by way of a shared tile",
        ),
    ],
)  # fmt: skip
def test_what_no_primitive_says_is_refused_at_its_op(
    kernel: str, old: str, new: str, words: str
) -> None:
    text = print_module(lifted(kernel))
    assert text.count(old) == 1
    module = parse_module(text.replace(old, new), "edited")
    finding = next(f for f in check(module) if words in f.message)
    assert finding.kind == "no_primitive" and finding.path[0] == "flash_fwd"
