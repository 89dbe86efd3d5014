"""Cases of the sm_80 primitives on tiles: copies, matmuls, stores, maps and reductions."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sm80_compared import FLOATS, PLACES, Test, exact, first, gpu, part, placed, swizzled, whole


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
                    ("run", "shared", "copy_async", "commit_async", "wait_async", "sync"),
                    f"copy_in<{t}, {rows}, {cols}>",
                    threads,
                    rows * cols * 2,
                    check,
                    layout="",
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
            ("copy_async", "wait_async", "shared_stages", "ceil_div"),
            f"copy_ring<f16, {rows}, {cols}>",
            128,
            3 * rows * cols * 2,
            ring,
            layout="",
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


RANGES = ((0, 0), (0, 7), (3, 30), (-5, 1), (8, 900), (40, 8), (-9, 900), (31, 32))
"""First row that is taken and the one past the last, some outside of the tensor or in no order."""


def copies_of_rows() -> Iterator[Test]:
    for t in ("f16", "bf16"):
        for rows, cols in ((32, 64), (32, 128), (48, 128), (64, 64), (64, 128)):
            for threads in (128, 256):

                def check(run, t=t, rows=rows, cols=cols):
                    n = rows + 9
                    values = torch.randn(n, cols).to(FLOATS[t])
                    for start in (0, 16, -3):
                        for begin, end in RANGES:
                            seen = torch.zeros_like(values)
                            stop = max(end, 0)
                            seen[max(begin, 0) : stop] = values[max(begin, 0) : stop]
                            for how in PLACES:
                                given = torch.where(seen == 0, torch.nan, values)
                                raw = torch.empty(rows * cols, dtype=torch.int16, device="cuda")
                                run([placed(given, how), raw], n, start, begin, end)
                                want = swizzled(part(seen, start, rows))
                                wrong = exact(raw, want, f"{how}, rows {begin} to {end}")
                                if wrong:
                                    return wrong
                    return None

                yield Test(
                    ("copy_async_rows",), f"copy_in_rows<{t}, {rows}, {cols}>", threads,
                    rows * cols * 2, check, layout="",
                )  # fmt: skip


SHAPES = (
    (128, 32, 4),
    (128, 48, 4),
    (128, 64, 4),
    (128, 128, 4),
    (64, 32, 4),
    (64, 64, 4),
    (64, 128, 4),
    (256, 64, 8),
)


def maps() -> Iterator[Test]:
    for m, n, warps in SHAPES:

        def check(run, m=m, n=n, warps=warps):
            s, r, u = whole(m, n), whole(m), whole(n)
            i0, j0 = 384, 1056
            out = torch.full((16, m, n), float("nan"), device="cuda")
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
                torch.where((2 * rr + s >= 3 * uu) | (i == j), s, -inf),
                s * rr + uu - s + rr + i - j, s * rr + uu - s + rr,
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
            ("zeros", "fill", "map", "keep", "at"), f"maps<{m}, {n}, {warps}>", warps * 32, 0, check
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
