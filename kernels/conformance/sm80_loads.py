"""Cases of the sm_80 primitives that read tensors beside tiles, or make tile lists."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sm80_compared import ELEMENTS, FLOATS, Test, exact, first, gpu, part, whole

CLAIMING = 400  # blocks that claim from one word at once
# Query rows, keys and warps of the score tiles that the launcher chooses, and of a longer one.
KEY_TILES = ((128, 32, 4), (128, 48, 4), (128, 64, 4), (128, 128, 4), (64, 32, 4), (64, 64, 4))


def vectors() -> Iterator[Test]:
    for e in ELEMENTS:
        for m, n, warps in KEY_TILES:

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
CORNERS = (
    (200, 160, 64, 48), (200, 160, 130, 128), (90, 41, 0, 16), (20, 30, 64, 64), (200, 160, 64, 0),
    (90, 41, 60, 0),
)  # fmt: skip


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
        for m, n, warps in KEY_TILES:

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

            names = ("load_tile", "load_output")
            yield Test(names, f"dense<{e}, {m}, {n}, {warps}>", warps * 32, 0, check)


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

            yield Test(("gmem",), f"loads<{e}, {rank}>", 128, 0, check, layout="")

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

    yield Test(("gmem",), "loads<bool, 2>", 64, 0, far, layout="")


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

            yield Test(("class_of", "at"), f"classes<{rows}, {cols}>", 32, 0, check, layout="")
    for rows, cols in ((64, 64), (128, 32), (128, 48), (128, 64), (64, 32), (64, 128)):
        layout = f"MmaAcc<{rows}, {cols}, 4>"

        def masked(run, rows=rows, cols=cols):
            flags = (torch.rand(rows + 9, cols + 5) < 0.5).int()
            flags[:, : 5 + cols // 3], flags[:, -7:] = 0, 0
            scores = torch.randn(rows, cols)
            words = torch.full((4 * rows + 20,), 99, dtype=torch.int32, device="cuda")
            out = torch.full((1, rows, cols), float("nan"), device="cuda")
            past = torch.full((1, rows, cols), float("nan"), device="cuda")
            view = words[2:-2]
            ends = torch.tensor([10**6, 0], dtype=torch.int32, device="cuda")
            tensors = [gpu(flags, torch.int32), view, gpu(scores), out, past, ends]
            for launch in range(2):
                run(tensors, *flags.shape, 3, 5, view.numel(), 7, launch)
            kept = flags[3 : 3 + rows, 5 : 5 + cols] != 0
            want = torch.where(kept, scores, torch.tensor(float("-inf")))
            around = torch.cat([words[:9], words[9 + 4 * rows :]])
            columns = 5 + kept.any(0).nonzero().flatten()
            return first(
                exact(ends, torch.stack([columns.min(), columns.max() + 1]), "the columns' ends"),
                exact(out[0], want, "keep_bits"),
                exact(past[0], torch.full((rows, cols), float("-inf")), "past the vector's end"),
                exact(around, torch.full((20,), 99), "around the bits"),
            )

        names = ("put_bits", "load_bits", "keep_bits")
        yield Test(names, f"bits<{layout}, {rows}, {cols}>", 128, 0, masked)
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

        yield Test(("least", "greatest"), f"extremes<{count}>", 32, 0, ends, layout="")

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

    yield Test(("compact", "put"), "lists", 32, 0, listed, layout="")


def claims() -> Iterator[Test]:
    """Numbers that many blocks claim from one word at once, told on in shared words."""

    def handed_out(run):
        for each, rounds in ((1, 1), (7, 1), (6, 3)):
            limit = CLAIMING * each // rounds
            words = torch.full((5,), 99, dtype=torch.int32, device="cuda")
            words[3] = 0
            seen = torch.zeros(limit, 64, dtype=torch.int32, device="cuda")
            run([words, seen], 5, 3, each, limit)
            wrong = first(
                exact(seen, torch.full((limit, 64), rounds), f"numbers below {limit}"),
                exact(words, torch.tensor([99, 99, 99, 0, 99]), "the word and what is around it"),
            )
            if wrong:
                return wrong
        return None

    names = ("claim", "shared_words", "post", "fetch")
    yield Test(names, "claims", 64, 48, handed_out, layout="", blocks=CLAIMING)
