"""Conformance of the sm_80 primitives: each one alone, on a GPU, against a plain statement of it.

Every shape, layout, element type and alignment that the kernels use has a case; inputs are small
integers where the result must be exact. Needs torch, nvcc and one GPU:

    python3 kernels/conformance/sm80.py --json OUT

Exit code 0: all cases pass; 1: some fail; 3: no GPU, torch or nvcc here.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

try:
    import torch
except ImportError:
    print("conformance needs PyTorch with CUDA", file=sys.stderr)
    sys.exit(3)

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
HEADERS = ("args", "dense", "gmem", "layout", "lists", "scalar", "shared", "sm80", "tile")
FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "float": torch.float32}
ELEMENTS = {**FLOATS, "int": torch.int32, "bool": torch.bool}
UNITS = 12  # translation units, compiled as many at once as there are cores


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


class Case(ctypes.Structure):
    _fields_ = [("t", Tensor * 5), ("n", ctypes.c_int * 8)]


@dataclass(frozen=True)
class Test:
    """One kernel instance, and the check that runs it: None when right, else what is wrong."""

    primitives: tuple[str, ...]
    kernel: str
    threads: int
    shared: int
    check: Callable[[Callable[..., None]], str | None]

    @property
    def symbol(self) -> str:
        return f"case_{hashlib.sha256(f'{self.kernel}/{self.threads}'.encode()).hexdigest()[:16]}"


def call(function: ctypes._CFuncPtr) -> Callable[..., None]:
    """The kernel as a Python function of tensors and integers; it has finished on return."""

    def run(tensors: list[torch.Tensor], *numbers: int) -> None:
        case = Case()
        for slot, tensor in zip(case.t, tensors, strict=False):
            slot.data = tensor.data_ptr()
            for d, stride in enumerate(tensor.stride()[:4]):
                slot.stride[d] = stride
        case.n[: len(numbers)] = list(numbers)
        status = function(ctypes.byref(case))
        if status:
            raise RuntimeError(f"cudaError {status}")
        torch.cuda.synchronize()

    return run


# --- what is compared ---------------------------------------------------------------------------


def exact(got: torch.Tensor, want: torch.Tensor, what: str) -> str | None:
    """Equal element by element; NaN equals NaN."""
    got, want = got.cpu().double(), want.cpu().double()
    same = (got == want) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return None
    where = [int(x) for x in (~same).nonzero()[0]]
    values = f"{got[tuple(where)].item()} instead of {want[tuple(where)].item()}"
    return f"{what}: {int((~same).sum())} of {same.numel()} differ, first at {where}: {values}"


def first(*answers: str | None) -> str | None:
    return next((a for a in answers if a), None)


def whole(*shape: int, low: int = -4, high: int = 5) -> torch.Tensor:
    """Small integers, so that products and sums are exact in any order."""
    return torch.randint(low, high, shape).float()


def gpu(tensor: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return tensor.to(dtype).cuda()


def placed(values: torch.Tensor, how: str) -> torch.Tensor:
    """The rows of `values` on the GPU, in memory laid out as `how` says; NaN (ones) around them."""
    rows, cols = values.shape
    fill = float("nan") if values.dtype.is_floating_point else 1
    if how == "contiguous":
        whole_, view = None, None
        whole_ = torch.full((rows + 2, cols), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1]
    elif how == "strided":
        whole_ = torch.full((rows + 2, 2 * cols + 8), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, 8 : cols + 8]
    elif how == "odd pitch":
        whole_ = torch.full((rows + 2, cols + 3), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, :cols]
    elif how == "odd start":
        whole_ = torch.full((rows + 2, cols + 8), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, 1 : cols + 1]
    else:
        whole_ = torch.full((rows + 2, 2 * cols), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, ::2]
    view.copy_(values.cuda())
    return view


PLACES = ("contiguous", "strided", "odd pitch", "odd start", "every other column")


def swizzled(tile: torch.Tensor) -> torch.Tensor:
    """The 16-bit elements of a tile in the order that shared memory holds them."""
    rows, cols = tile.shape
    chunks = tile.view(torch.int16).reshape(rows, cols // 8, 8)
    row = torch.arange(rows).unsqueeze(1)
    chunk = torch.arange(cols // 8).unsqueeze(0)
    lies = (chunk // 8) * 8 + ((chunk % 8) ^ (row % 8))
    out = torch.empty_like(chunks)
    out[row.expand_as(lies), lies] = chunks
    return out.reshape(-1)


def part(values: torch.Tensor, start: int, rows: int) -> torch.Tensor:
    """Rows start .. start + rows, zeros outside."""
    out = torch.zeros(rows, *values.shape[1:], dtype=values.dtype)
    for r in range(rows):
        if 0 <= start + r < values.shape[0]:
            out[r] = values[start + r]
    return out


# --- the cases ----------------------------------------------------------------------------------


def copies() -> Iterator[Test]:
    for t in ("f16", "bf16"):
        for rows, cols in (
            *((32, 64), (32, 128), (48, 64), (48, 128), (64, 64), (64, 128)),
            *((128, 64), (128, 128)),
        ):
            for threads in (64, 128, 256):

                def check(run, t=t, rows=rows, cols=cols):
                    for n, start in ((rows + 9, 0), (rows + 9, 32), (5, 0), (40, -3), (0, 0)):
                        values = torch.randn(n, cols).to(FLOATS[t])
                        for how in PLACES:
                            raw = torch.empty(rows * cols, dtype=torch.int16, device="cuda")
                            run([placed(values, how), raw], n, start)
                            want = swizzled(part(values, start, rows))
                            wrong = exact(raw, want, f"{how}, {n} rows from {start}")
                            if wrong:
                                return wrong
                    return None

                yield Test(
                    ("copy_async", "commit_async", "wait_async", "sync"),
                    f"copy_in<{t}, {rows}, {cols}>",
                    threads,
                    rows * cols * 2,
                    check,
                )
    for rows, cols in ((32, 128), (64, 64)):

        def ring(run, rows=rows, cols=cols):
            n = 7 * rows - 5
            values = torch.randn(n, cols).half()
            for how in ("contiguous", "odd start"):
                raw = torch.empty(7, rows * cols, dtype=torch.int16, device="cuda")
                run([placed(values, how), raw], n)
                want = torch.stack([swizzled(part(values, i * rows, rows)) for i in range(7)])
                wrong = exact(raw, want, how)
                if wrong:
                    return wrong
            return None

        yield Test(
            ("copy_async", "wait_async", "shared_stages"),
            f"copy_ring<f16, {rows}, {cols}>",
            128,
            3 * rows * cols * 2,
            ring,
        )


TILES = (32, 48, 64, 128)
GEMMS = [
    # M, N, K, WARPS, FORM: bit 0 b as it lies, bit 1 a in registers.
    *((m, n, d, w, 0) for m, w in ((128, 4), (64, 4)) for n in TILES for d in (64, 128)),
    *((m, d, n, w, 3) for m, w in ((128, 4), (64, 4)) for n in TILES for d in (64, 128)),
    (128, 64, 128, 8, 0), (256, 64, 128, 8, 3),
    (128, 64, 64, 4, 1), (128, 128, 64, 4, 1), (64, 64, 64, 4, 2), (128, 64, 128, 4, 2),
]  # fmt: skip


def matmuls() -> Iterator[Test]:
    for t in ("f16", "bf16"):
        for m, n, k, warps, form in GEMMS:

            def check(run, t=t, m=m, n=n, k=k, form=form):
                for scale in (None, 1.0):
                    if scale is None:
                        a, b, c = whole(m, k), whole(k, n), whole(m, n)
                    else:
                        a, b, c = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
                    a, b = a.to(FLOATS[t]), b.to(FLOATS[t])
                    out = torch.full((m, n), float("nan"), device="cuda")
                    stored = b if form & 1 else b.t().contiguous()
                    run([a.cuda(), stored.cuda(), out.view(1, m, n), gpu(c)])
                    want = c.double() + a.double() @ b.double()
                    if scale is None:
                        wrong = exact(out, want, "integers")
                    else:
                        # float sums of k exact products, in any order
                        bound = c.double().abs() + a.double().abs() @ b.double().abs()
                        off = (out.cpu().double() - want).abs() / bound
                        worst = off.max().item()
                        wrong = None if worst <= k * 2.0**-23 else f"relative error {worst:.3g}"
                    if wrong:
                        return wrong
                return None

            left = m * k * 2 if not form & 2 else 0
            names = ("gemm", "transpose") if not form & 1 else ("gemm",)
            yield Test(
                (*names, "to_operand") if form & 2 else names,
                f"matmul<{t}, {m}, {n}, {k}, {warps}, {form}>",
                warps * 32,
                n * k * 2 + left,
                check,
            )


def stores() -> Iterator[Test]:
    for t in ("f16", "bf16"):
        for m, n, warps in ((128, 64, 4), (128, 128, 4), (64, 64, 4), (64, 128, 4), (256, 128, 8)):

            def check(run, t=t, m=m, n=n):
                for rows, start in ((m, 0), (m + 7, 0), (m + 7, 64), (3, 0), (m, -5)):
                    values = torch.randn(m, n) * 3
                    for how in PLACES:
                        # Rows that are not this tile's keep what they held.
                        held = torch.randn(rows, n).to(FLOATS[t])
                        out = placed(held, how)
                        base = out.untyped_storage()
                        before = torch.tensor([], dtype=FLOATS[t], device="cuda").set_(base)
                        before = before.clone()
                        run([gpu(values), out], rows, start)
                        want = held.clone()
                        for r in range(m):
                            if 0 <= start + r < rows:
                                want[start + r] = values[r].to(FLOATS[t])
                        wrong = exact(out, want, f"{how}, {rows} rows from {start}")
                        out.copy_(held.cuda())
                        after = torch.tensor([], dtype=FLOATS[t], device="cuda").set_(base)
                        wrong = wrong or exact(after, before, f"{how}: outside the view")
                        if wrong:
                            return wrong
                return None

            yield Test(
                ("store", "copy"), f"copy_out<{t}, {m}, {n}, {warps}>", warps * 32, m * n * 2, check
            )


def vectors() -> Iterator[Test]:
    for e in ELEMENTS:
        for m, n, warps in ((128, 48, 4), (128, 64, 4), (64, 32, 4), (128, 128, 4)):

            def check(run, e=e, m=m, n=n, warps=warps):
                for size, start, stride in ((400, 0, 1), (70, 64, 1), (70, 0, 3), (5, -2, 1)):
                    values = whole(size * stride) if e != "bool" else whole(size * stride) > 0
                    memory = gpu(values, ELEMENTS[e])
                    view = memory[::stride]
                    rows = torch.full((1, 4, m), float("nan"), device="cuda")
                    cols = torch.full((1, warps * 8, n), float("nan"), device="cuda")
                    back = torch.full((size,), 7.0, device="cuda").to(ELEMENTS[e])
                    run([view, rows, cols, back], size, start)
                    seen = values[::stride].float()
                    want = part(seen, start, m)
                    stored = torch.full((size,), 7.0)
                    for r in range(m):
                        if 0 <= start + r < size:
                            stored[start + r] = seen[start + r]
                    where = f"{size} from {start} stride {stride}"
                    wrong = first(
                        exact(rows[0], want.expand(4, m), f"load_rows, {where}"),
                        exact(cols[0], part(seen, start, n).expand(warps * 8, n), "load_cols"),
                        exact(back.float(), stored, "store_rows") if e in FLOATS else None,
                    )
                    if wrong:
                        return wrong
                return None

            names = ("load_rows", "load_cols", *(("store_rows",) if e in FLOATS else ()))
            yield Test(names, f"vectors<{e}, {m}, {n}, {warps}>", warps * 32, 0, check)


# Where a dense tensor's element (0, 0) lies, its row pitch beyond its columns, its column stride:
# accesses of four elements, of two, of one (an odd start, an odd pitch, columns apart).
DENSE = ((0, 0, 1), (2, 2, 1), (0, 2, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2))
# Sizes and origins: all inside, rows and columns past the end, nothing inside.
CORNERS = ((200, 160, 64, 48), (200, 160, 130, 128), (90, 41, 0, 16), (20, 30, 64, 64))


def spread(values: torch.Tensor, start: int, pad: int, step: int) -> torch.Tensor:
    """`values` on the GPU, the first element at `start`, rows apart by their length and `pad`."""
    rows, cols = values.shape
    pitch = cols * step + pad
    memory = torch.ones(start + rows * pitch + 8, dtype=values.dtype, device="cuda")
    view = memory.as_strided((rows, cols), (pitch, step), start)
    view.copy_(values)
    return view


def dense_tiles() -> Iterator[Test]:
    for e in ELEMENTS:
        for m, n, warps in ((128, 48, 4), (128, 64, 4), (64, 32, 4), (128, 32, 4)):

            def check(run, e=e, m=m, n=n, warps=warps):
                for how in DENSE:
                    for rows, cols, i0, j0 in CORNERS:
                        values = whole(rows, cols).clamp(-4, 4)
                        values = values if e != "bool" else values > 0
                        view = spread(gpu(values, ELEMENTS[e]), *how)
                        out = torch.full((2, m, n), float("nan"), device="cuda")
                        run([view, out], rows, cols, i0, j0)
                        seen = torch.zeros(m, n)
                        inside = values[i0 : i0 + m, j0 : j0 + n].float()
                        seen[: inside.shape[0], : inside.shape[1]] = inside
                        i = (torch.arange(m) + i0)[:, None]
                        j = (torch.arange(n) + j0)[None, :]
                        kept = torch.where((seen > 0) & (i != j), 0.5, -float("inf"))
                        where = f"{how}, {rows} x {cols} from {i0}, {j0}"
                        wrong = first(
                            exact(out[0], seen + 0.5, f"map, {where}"),
                            exact(out[1], kept, f"keep, {where}"),
                        )
                        if wrong:
                            return wrong
                return None

            yield Test(("load_tile",), f"dense<{e}, {m}, {n}, {warps}>", warps * 32, 0, check)


SHAPES = (
    (128, 32, 4),
    (128, 48, 4),
    (128, 64, 4),
    (128, 128, 4),
    (64, 32, 4),
    (64, 64, 4),
    (256, 64, 8),
)


def maps() -> Iterator[Test]:
    for m, n, warps in SHAPES:

        def check(run, m=m, n=n, warps=warps):
            s, r, u = whole(m, n), whole(m), whole(n)
            i0, j0 = 384, 1056
            out = torch.full((13, m, n), float("nan"), device="cuda")
            edge = torch.full((4, max(4, warps * 8), max(m, n)), float("nan"), device="cuda")
            run([gpu(s), gpu(r), gpu(u, torch.int32), out, edge], i0, j0)
            i = (torch.arange(m) + i0).float().unsqueeze(1)
            j = (torch.arange(n) + j0).float().unsqueeze(0)
            rr, uu = r.unsqueeze(1), u.unsqueeze(0)
            inf = torch.tensor(float("inf"))
            want = [
                torch.zeros(m, n), -inf.expand(m, n), 2 * s + 1, s * rr, s - uu, s * rr + uu,
                s + i * 1000 - j, s * rr + i - j, s * rr + uu + i * j, s * s,
                torch.where(j <= i + 3, s, -inf), torch.where((uu > 0) & (i != j), s, -inf),
                torch.where((rr > uu) | (i == j), s, -inf),
            ]  # fmt: skip
            answers = [exact(out[k], w, f"form {k}") for k, w in enumerate(want)]
            reciprocal = torch.where(r == 0, torch.tensor(-1.0), 1 / r)
            for k, w in enumerate((reciprocal, -r, r + i[:, 0])):
                answers.append(exact(edge[k, :4, :m], w.expand(4, m), f"row vector, form {k}"))
            answers.append(
                exact(edge[3, : warps * 8, :n], (u * j[0]).expand(warps * 8, n), "column vector")
            )
            return first(*answers)

        yield Test(
            ("zeros", "fill", "map", "keep"), f"maps<{m}, {n}, {warps}>", warps * 32, 0, check
        )


def reductions() -> Iterator[Test]:
    for m, n, warps in SHAPES:

        def check(run, m=m, n=n):
            s, previous = whole(m, n, low=-99, high=99), whole(m, low=-9, high=9)
            s[3], previous[3] = -float("inf"), -float("inf")
            s[4], previous[5] = -float("inf"), -float("inf")
            s[6, 1:] = -float("inf")
            out = torch.full((3, 4, m), float("nan"), device="cuda")
            run([gpu(s), gpu(previous), out])
            top = torch.maximum(s.max(dim=1).values, previous)
            # What a lane adds: neighbours first, then the pairs from left to right.
            lanes = s.view(m, n // 8, 4, 2).double().sum(3).sum(1) + 1
            factor = torch.where(previous.isinf(), torch.ones(m), previous).double()
            total = (lanes * factor.unsqueeze(1)).sum(1) + s.double().sum(1)
            return first(
                exact(out[0], top.expand(4, m), "row_max"),
                exact(out[2], lanes.t(), "partial row_sum"),
                exact(out[1], total.expand(4, m), "row_reduce"),
            )

        yield Test(
            ("row_max", "row_sum", "row_reduce"),
            f"reductions<{m}, {n}, {warps}>",
            warps * 32,
            0,
            check,
        )


def loads() -> Iterator[Test]:
    for e in ELEMENTS:
        for rank in (1, 2, 3, 4):

            def check(run, e=e, rank=rank):
                shape = (3, 2, 9, 5)[:rank] if rank > 1 else (37,)
                values = whole(*shape) if e != "bool" else whole(*shape) > 0
                memory = gpu(values, ELEMENTS[e])
                views = [("contiguous", memory, values)]
                if rank > 1:
                    views.append(("transposed", memory.transpose(0, -1), values.transpose(0, -1)))
                    broadcast = memory[:1].expand(7, *shape[1:])
                    views.append(("broadcast", broadcast, values[:1].expand(7, *shape[1:])))
                for name, view, seen in views:
                    index = torch.stack(
                        [torch.randint(-2, size + 2, (500,)) for size in view.shape], 1
                    )
                    inside = ((index >= 0) & (index < torch.tensor(view.shape))).all(1)
                    safe = torch.where(inside.unsqueeze(1), index, torch.zeros_like(index))
                    want = seen.float()[tuple(safe.t())] * inside
                    out = torch.full((500,), float("nan"), device="cuda")
                    sizes = [*view.shape, 1, 1, 1, 1][:4]
                    run([view, gpu(index, torch.int32), out], *sizes, 0, 500)
                    wrong = exact(out, want, name)
                    if wrong:
                        return wrong
                empty = torch.full((500,), float("nan"), device="cuda")
                run([memory, gpu(torch.zeros(500, rank), torch.int32), empty], 0, 1, 1, 1, 0, 500)
                return exact(empty, torch.zeros(500), "an empty view")

            yield Test(("view(i, ..)",), f"loads<{e}, {rank}>", 128, 0, check)

    def far(run):
        # The last rows of a view lie past 2^31 elements.
        rows, pitch = 9, 300_000_000
        memory = torch.zeros(8 * pitch + 4, dtype=torch.bool, device="cuda")
        view = memory.as_strided((rows, 4), (pitch, 1))
        view[8, 2] = True
        index = torch.tensor([[8, 2], [8, 1], [7, 2], [0, 2]])
        out = torch.full((4,), float("nan"), device="cuda")
        run([view, gpu(index, torch.int32), out], rows, 4, 1, 1, 0, 4)
        return exact(out, torch.tensor([1.0, 0, 0, 0]), "offsets past 2^31")

    yield Test(("view(i, ..)", "64-bit offsets"), "loads<bool, 2>", 64, 0, far)


def lists() -> Iterator[Test]:
    for rows in (64, 128, 192):
        for cols in (32, 48, 64, 80, 112, 128):

            def check(run, rows=rows, cols=cols):
                def one(flags: torch.Tensor, what: str) -> str | None:
                    out = torch.full((32,), float("nan"), device="cuda")
                    run([gpu(flags, torch.int32), out], *flags.shape, 17, 30)
                    tile = flags[17 : 17 + rows, 30 : 30 + cols] != 0
                    want = 2 if bool(tile.all()) else 1 if bool(tile.any()) else 0
                    return exact(out, torch.full((32,), want), what)

                shape = (rows + 30, cols + 40)
                none, every = torch.zeros(shape).int(), torch.ones(shape).int()
                places = [(17, 30), (16 + rows, 29 + cols), (16 + rows, 30), (40, 29 + cols)]
                answers = [one(none, "none"), one(every, "all")]
                for place in (*places, (16, 30), (17, 29), (17 + rows, 30), (17, 30 + cols)):
                    for base in (none, every):
                        flags = base.clone()
                        flags[place] = 1 - flags[place]
                        answers.append(one(flags, f"all but {place}"))
                answers.append(one((torch.rand(shape) < 0.5).int(), "half"))
                return first(*answers)

            yield Test(("class_of",), f"classes<{rows}, {cols}>", 32, 0, check)
    for rows, cols in ((64, 64), (128, 32), (128, 48), (128, 64), (64, 32), (64, 128)):
        layout = f"MmaAcc<{rows}, {cols}, 4>"

        def masked(run, rows=rows, cols=cols):
            flags = (torch.rand(rows + 9, cols + 5) < 0.5).int()
            scores = torch.randn(rows, cols)
            words = torch.full((4 * rows + 20,), 99, dtype=torch.int32, device="cuda")
            out = torch.full((1, rows, cols), float("nan"), device="cuda")
            view = words[2:-2]
            run([gpu(flags, torch.int32), view, gpu(scores), out], *flags.shape, 3, 5,
                view.numel(), 7)  # fmt: skip
            kept = flags[3 : 3 + rows, 5 : 5 + cols] != 0
            want = torch.where(kept, scores, torch.tensor(float("-inf")))
            around = torch.cat([words[:9], words[9 + 4 * rows :]])
            return first(
                exact(out[0], want, "keep_bits"),
                exact(around, torch.full((20,), 99), "around the bits"),
            )

        yield Test(("put_bits", "keep_bits"), f"bits<{layout}, {rows}, {cols}>", 128, 0, masked)
    for count in (32, 48, 64, 80, 112, 128, 192):

        def ends(run, count=count):
            for at in (0, 13):
                values = torch.randint(-(2**31), 2**31, (count + 20,))
                out = torch.zeros(2, 32, dtype=torch.int32, device="cuda")
                run([gpu(values, torch.int32), out], count + 20, at)
                seen = values[at : at + count]
                want = torch.stack([seen.min(), seen.max()])[:, None].expand(2, 32)
                wrong = exact(out, want, f"from {at} on")
                if wrong:
                    return wrong
            return None

        yield Test(("least", "greatest"), f"extremes<{count}>", 32, 0, ends)

    def listed(run):
        for count in (0, 1, 31, 32, 33, 74, 300):
            for room in (1, 2, 40, 400):
                values = torch.randint(-50, 50, (count + 9,))
                memory = torch.full((room + 2,), 99, dtype=torch.int32, device="cuda")
                found = torch.zeros(32, dtype=torch.int32, device="cuda")
                run([gpu(values, torch.int32), memory[1:-1], found], count + 9, 5, count, room)
                kept = [v for v in values[5 : 5 + count].tolist() if v >= 0]
                wanted = [len(kept), *kept, *[99] * 400][:room]
                wrong = first(
                    exact(memory, torch.tensor([99, *wanted, 99]), f"{count} into {room}"),
                    exact(found, torch.full((32,), len(kept)), f"the number of {count}"),
                )
                if wrong:
                    return wrong
        return None

    yield Test(("compact", "put"), "lists", 32, 0, listed)


def scalar_functions() -> Iterator[Test]:
    inf = float("inf")

    def sweep(low: float, high: float, *extra: float) -> torch.Tensor:
        return torch.cat([torch.linspace(low, high, 20001), torch.tensor([*extra])])

    wide = torch.cat([10.0 ** torch.linspace(-30, 30, 9001), torch.tensor([1.0, 2.0, 0.5])])
    # Number, name, inputs, what it must be (on float64), relative bound, absolute bound.
    table = [
        (0, "exp2_approx", sweep(-126, 127, 0, -inf, inf), torch.exp2, 2.0**-22, 0.0),
        (1, "log2_approx", wide, torch.log2, 2.0**-21, 2.0**-21),
        (2, "rcp_approx", torch.cat([wide, -wide]), torch.reciprocal, 2.0**-23, 0.0),
        (3, "tanh_approx", sweep(-12, 12, 0, -inf, inf), torch.tanh, 2.0**-10.9, 0.0),
        (4, "sigmoid", sweep(-80, 40, 0, -inf, inf), torch.sigmoid, 2.0**-17, 0.0),
        (5, "sigmoid_approx", sweep(-40, 40, 0, -inf, inf), torch.sigmoid, 0.0, 2.0**-11.9),
        (6, "exp", sweep(-87, 88, 0, -inf, inf), torch.exp, 2.0**-22, 0.0),
        (7, "exp2", sweep(-126, 127, 0, -inf, inf), torch.exp2, 2.0**-22, 0.0),
        (8, "log", wide, torch.log, 2.0**-22, 2.0**-24),
        (9, "log2", wide, torch.log2, 2.0**-22, 2.0**-24),
        (10, "tanh", sweep(-12, 12, 0, -inf, inf), torch.tanh, 2.0**-21, 0.0),
        (11, "sqrt", torch.cat([wide, torch.tensor([0.0, inf])]), torch.sqrt, 2.0**-24, 0.0),
        (12, "rsqrt", wide, torch.rsqrt, 2.0**-22, 0.0),
        (13, "sin", sweep(-100, 100, 0), torch.sin, 2.0**-21, 2.0**-22),
        (14, "cos", sweep(-100, 100, 0), torch.cos, 2.0**-21, 2.0**-22),
        (15, "floor", sweep(-9, 9, 0.5, -0.5, inf), torch.floor, 0.0, 0.0),
        (16, "ceil", sweep(-9, 9, 0.5, -0.5, inf), torch.ceil, 0.0, 0.0),
        (17, "abs", sweep(-9, 9, -inf), torch.abs, 0.0, 0.0),
        (23, "narrow to f16", sweep(-70, 70), lambda x: x.half().double(), 0.0, 0.0),
        (24, "narrow to bf16", sweep(-70, 70), lambda x: x.bfloat16().double(), 0.0, 0.0),
    ]
    pairs = [
        (18, "min", lambda x, y: torch.minimum(x, y)),
        (19, "max", lambda x, y: torch.maximum(x, y)),
        (20, "fma", lambda x, y: x * y + 1),
        (21, "floor_div", lambda x, y: torch.floor(x / y)),
        (22, "floor_mod", lambda x, y: x - y * torch.floor(x / y)),
    ]

    def check(run):
        for number, name, x, statement, relative, absolute in table:
            out = torch.full_like(x, float("nan")).cuda()
            run([gpu(x), gpu(x), out], number, x.numel())
            got, want = out.cpu().double(), statement(x.double())
            same = got == want
            bound = relative * want.abs() + absolute
            off = torch.where(same, torch.zeros_like(got), (got - want).abs() - bound)
            if not bool((off <= 0).all()):
                at = int(off.nan_to_num(inf).argmax())
                values = f"{got[at].item()!r} instead of {want[at].item()!r}"
                return f"{name}({x[at].item()!r}): {values}"
        x, y = whole(5000, low=-50, high=50), whole(5000, low=1, high=9)
        y = torch.where(torch.rand(5000) < 0.5, -y, y)
        for number, name, statement in pairs:
            out = torch.full_like(x, float("nan")).cuda()
            run([gpu(x), gpu(y), out], number, x.numel())
            wrong = exact(out, statement(x.double(), y.double()), name)
            if wrong:
                return wrong
        return None

    names = tuple(row[1] for row in table) + tuple(row[1] for row in pairs)
    yield Test(names, "scalars", 256, 0, check)


def all_tests() -> list[Test]:
    parts = (
        copies, matmuls, stores, vectors, dense_tiles, maps, reductions, loads, lists,
        scalar_functions,
    )  # fmt: skip
    return [test for part_ in parts for test in part_()]


# --- building and running -------------------------------------------------------------------------


def build(tests: list[Test], folder: Path, arch: str) -> dict[str, ctypes._CFuncPtr]:
    """Compile all kernels, a few translation units at once; symbol -> function."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("conformance needs nvcc on PATH", file=sys.stderr)
        sys.exit(3)

    def unit(number: int) -> Path:
        lines = ['#include "sm80.cu"']
        for test in tests[number::UNITS]:
            body = f"start<{test.kernel}>(*c, {test.threads}, {test.shared})"
            lines.append(f'extern "C" int {test.symbol}(const Case* c) {{ return {body}; }}')
        source, library = folder / f"unit{number}.cu", folder / f"unit{number}.so"
        source.write_text("\n".join(lines) + "\n")
        command = [
            nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", f"-DCUBRIDGE_ARCH={arch}0",
            "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-I", str(INCLUDE), "-I", str(HERE),
            "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source),
        ]  # fmt: skip
        subprocess.run(command, check=True)
        return library

    with ThreadPoolExecutor(min(UNITS, os.cpu_count() or 1)) as pool:
        libraries = [ctypes.CDLL(str(path)) for path in pool.map(unit, range(UNITS))]
    functions = {}
    for number, library in enumerate(libraries):
        for test in tests[number::UNITS]:
            function = getattr(library, test.symbol)
            function.argtypes = [ctypes.c_void_p]
            functions[test.symbol] = function
    return functions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--only", default="", help="run the kernels whose text contains this")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("conformance needs a CUDA GPU", file=sys.stderr)
        return 3
    torch.manual_seed(20240611)
    tests = [test for test in all_tests() if options.only in test.kernel]
    arch = "".join(str(x) for x in torch.cuda.get_device_capability())
    results = []
    with tempfile.TemporaryDirectory(prefix="cubridge-conformance-") as folder:
        functions = build(tests, Path(folder), arch)
        for test in tests:
            try:
                wrong = test.check(call(functions[test.symbol]))
            except RuntimeError as error:
                wrong = str(error)
            results.append(
                {
                    "primitives": test.primitives,
                    "kernel": test.kernel,
                    "threads": test.threads,
                    "ok": wrong is None,
                    "wrong": wrong,
                }
            )
            if wrong:
                print(f"FAIL {test.kernel} on {test.threads} threads: {wrong}")
    failed = [r for r in results if not r["ok"]]
    proven = sorted({p for r in results for p in r["primitives"]})
    proven = [p for p in proven if all(r["ok"] for r in results if p in r["primitives"])]
    paths = [INCLUDE / "cubridge" / f"{name}.cuh" for name in HEADERS]
    report = {
        "schema": 1,
        "device": torch.cuda.get_device_name(),
        "arch": f"sm_{arch}",
        "torch": torch.__version__,
        "headers": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths},
        "ok": not failed,
        "proven": proven,
        "cases": results,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed on {report['device']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
