"""Cases of whole rows in registers: turned as they are loaded, reduced, mapped, stored."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sm80_compared import FLOATS, Test, exact, first, gpu, part, whole
from sm80_loads import spread

ROWS, WARPS = 16, 4
COLUMNS = (64, 72, 96, 128, 192, 256)
# Whole accesses, an odd start, an odd pitch, columns apart.
LAYOUTS = ((0, 0, 1), (8, 8, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2))
SIZES = ((40, 16), (21, 16), (5, 0), (7, 32))  # rows of the tensor, the tile's first one


def lines() -> Iterator[Test]:
    for e in FLOATS:
        for n in COLUMNS:

            def check(run, e=e, n=n):
                for how in LAYOUTS:
                    for rows, row0 in SIZES:
                        for turn in (0, n // 2, n // 4, 3, n + 8):
                            values = whole(rows, n)
                            view = spread(gpu(values, FLOATS[e]), *how)
                            scale = whole(rows)
                            weight = whole(n)
                            out = torch.full((3, ROWS, n), float("nan"), device="cuda")
                            back = torch.full((rows, n), 9.0, device="cuda").to(FLOATS[e])
                            back = spread(back, *how)
                            run([view, gpu(scale), gpu(weight), out, back], rows, row0, turn)
                            seen = part(values, row0, ROWS).roll(-turn, 1)
                            top = seen.amax(1, keepdim=True).clamp(min=-1.0)
                            made = seen * part(scale, row0, ROWS)[:, None] + weight
                            made = made + seen.sum(1, keepdim=True) + 100 * top
                            i = (torch.arange(ROWS) + row0)[:, None]
                            made = torch.where(i == torch.arange(n)[None, :], 0.5, made)
                            beside = torch.arange(n) ^ 1
                            swapped = 10 * seen[:, beside] + weight[beside]
                            stored = torch.full((rows, n), 9.0)
                            last = min(rows, row0 + ROWS)
                            if last > row0:
                                stored[row0:last] = seen[: last - row0]
                            where = f"{how}, {rows} rows from {row0}, turned by {turn}"
                            wrong = first(
                                exact(out[0], seen, f"load_lines, {where}"),
                                exact(out[1], made, f"map and reductions, {where}"),
                                exact(out[2], swapped, f"swap_neighbours, {where}"),
                                exact(back.float(), stored, f"store, {where}"),
                            )
                            if wrong:
                                return wrong
                return None

            names = (
                "load_lines", "load_rows", "load_cols", "zeros", "fill", "map", "at", "row_sum",
                "row_reduce", "row_max", "swap_neighbours", "store",
            )  # fmt: skip
            yield Test(names, f"lines<{e}, {n}>", 32 * WARPS, 0, check, layout="Lines")
