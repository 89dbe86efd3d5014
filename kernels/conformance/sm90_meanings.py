"""What each Hopper primitive must give: one check for each function of sm90.cu.

A check runs its function through `call` and gives what is wrong, or nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from typing import Any


class TensorArg(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


class Case(ctypes.Structure):
    _fields_ = [
        ("tensor", TensorArg),
        ("extent", ctypes.c_int * 4),
        ("corner", ctypes.c_int * 4),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out2", ctypes.c_void_p),
        ("rows", ctypes.c_int),
        ("columns", ctypes.c_int),
        ("r0", ctypes.c_int),
        ("c0", ctypes.c_int),
    ]


def pointer(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def tensor_arg(tensor: Any) -> TensorArg:
    return TensorArg(tensor.data_ptr(), (ctypes.c_longlong * 4)(*tensor.stride()))


def box_of(tensor: Any, corner: tuple[int, int, int, int], rows: int, columns: int) -> Any:
    """The box at (column, row, head, batch) of a 4-d tensor, zero outside it."""
    import torch

    c0, r0, head, batch = corner
    box = torch.zeros(rows, columns, dtype=tensor.dtype, device=tensor.device)
    top, left = max(0, -r0), max(0, -c0)
    bottom = min(rows, tensor.shape[2] - r0)
    right = min(columns, tensor.shape[3] - c0)
    if bottom > top and right > left:
        box[top:bottom, left:right] = tensor[
            batch, head, r0 + top : r0 + bottom, c0 + left : c0 + right
        ]
    return box


CORNERS = [(0, 0, 0, 0), (0, 40, 1, 1), (0, 150, 2, 0), (0, 400, 1, 0), (64, 8, 1, 1)]
LESS = (0, 8)  # columns that a tensor lacks of the tile's last panel
BEFORE = [(0, -24, 2, 0)]  # loads only: the device refuses a store that starts before the tensor


def check_load(call: Callable[[Case], None], rows: int, columns: int, dtype: Any) -> str:
    import torch

    for corner, less in itertools.product(CORNERS + BEFORE, LESS):
        base = torch.randn(2, 200, 3, columns - less, device="cuda").to(dtype)
        tensor = base.transpose(1, 2)  # batch, head, row, column over another order in memory
        out = torch.full((rows, columns), float("nan"), device="cuda", dtype=dtype)
        case = Case(tensor=tensor_arg(tensor), extent=(ctypes.c_int * 4)(*tensor.shape),
                    corner=(ctypes.c_int * 4)(*corner), out=pointer(out))  # fmt: skip
        call(case)
        if not torch.equal(out, box_of(tensor, corner, rows, columns)):
            return f"box at {corner} of {columns - less} columns differs"
    return ""


def check_store_box(call: Callable[[Case], None], rows: int, columns: int, dtype: Any) -> str:
    import torch

    for corner, less in itertools.product(CORNERS, LESS):
        base = torch.full((2, 200, 3, columns - less), 7.0, device="cuda", dtype=dtype)
        tensor = base.transpose(1, 2)
        value = torch.randn(rows, columns, device="cuda").to(dtype)
        wanted = tensor.clone()
        c0, r0, head, batch = corner
        for row in range(rows):
            if 0 <= r0 + row < wanted.shape[2] and c0 < columns - less:
                wanted[batch, head, r0 + row, c0:] = value[row, : columns - less - c0]
        case = Case(tensor=tensor_arg(tensor), extent=(ctypes.c_int * 4)(*tensor.shape),
                    corner=(ctypes.c_int * 4)(*corner), a=pointer(value))  # fmt: skip
        try:
            call(case)
        except RuntimeError as error:
            raise RuntimeError(f"box at {corner}: {error}") from error
        if not torch.equal(tensor, wanted):
            return f"box at {corner} of {columns - less} columns differs"
    return ""


def check_ring(call: Callable[[Case], None], rows: int, columns: int, dtype: Any) -> str:
    import torch

    count = 9
    tensor = torch.randn(1, count, rows, columns, device="cuda").to(dtype)
    out = torch.full((count, rows, columns), float("nan"), device="cuda", dtype=dtype)
    turns = torch.zeros(1 + 2 * count, device="cuda", dtype=torch.int32)
    case = Case(tensor=tensor_arg(tensor), out=pointer(out), out2=pointer(turns))
    case.extent = (ctypes.c_int * 4)(1, count, rows, columns)
    call(case)
    if not torch.equal(out, tensor[0]):
        return "a tile arrived changed, or was overwritten before it was read"
    if turns.tolist() != [2 * count, *([1, 2] * count)]:
        return f"turns were {turns.tolist()}"
    return ""


def small_integers(*size: int) -> Any:
    import torch

    return torch.randint(-8, 9, size, device="cuda").float()


def check_gemm_shared(call: Callable[[Case], None], n: int, k: int, dtype: Any) -> str:
    import torch

    a, b = small_integers(64, k), small_integers(n, k)
    out = torch.full((64, n), float("nan"), device="cuda")
    a_t, b_t = a.to(dtype), b.to(dtype)
    call(Case(a=pointer(a_t), b=pointer(b_t), out=pointer(out)))
    return "" if torch.equal(out, 2 * (a @ b.T)) else "the product differs"


def check_panels(call: Callable[[Case], None], n: int, k: int, dtype: Any) -> str:
    import torch

    a, b = torch.randn(64, k, device="cuda").to(dtype), torch.randn(64, k, device="cuda")
    out, kept = torch.full((64, k), math.nan, device="cuda"), torch.full_like(a, math.nan)
    call(Case(a=pointer(a), b=pointer(b), out=pointer(out), out2=pointer(kept)))
    if not torch.equal(out, a.float()):
        return "what was loaded differs"
    return "" if torch.equal(kept, b.to(dtype)) else "what was stored differs"


def check_gemm_registers(call: Callable[[Case], None], n: int, k: int, dtype: Any) -> str:
    import torch

    p, b = small_integers(64, k), small_integers(k, n)
    out = torch.full((64, n), float("nan"), device="cuda")
    b_t = b.to(dtype)
    call(Case(a=pointer(p), b=pointer(b_t), out=pointer(out)))
    if not torch.equal(out, 2 * (p @ b)):
        return "the product differs"
    # Rounding: a one-hot b picks single elements of p, which must be rounded to nearest even.
    p = torch.randn(64, k, device="cuda")
    b_t = torch.zeros(k, n, device="cuda", dtype=dtype)
    for column in range(n):
        b_t[(3 * column) % k, column] = 1
    call(Case(a=pointer(p), b=pointer(b_t), out=pointer(out)))
    picked = p[:, [(3 * column) % k for column in range(n)]]
    return "" if torch.equal(out, 2 * picked.to(dtype).float()) else "p is not rounded to nearest"


def check_gemm_turned(call: Callable[[Case], None], n: int, k: int, dtype: Any) -> str:
    import torch

    p, b = small_integers(64, k), small_integers(n, k)
    out = torch.full((64, n), float("nan"), device="cuda")
    b_t = b.to(dtype)
    call(Case(a=pointer(p), b=pointer(b_t), out=pointer(out)))
    return "" if torch.equal(out, 2 * (p @ b.T)) else "the product differs"


def check_tile(call: Callable[[Case], None], n: int, _: int, dtype: Any) -> str:
    import torch

    places = ((300, 0, 0, False), (300, 250, 200, True), (64, 0, 40, False))
    for (length, r0, c0, columns_first), less in itertools.product(places, LESS):
        columns = n - less  # of the tensor: the tile's others are dropped
        s = small_integers(64, n)
        vector = small_integers(length)
        stats = torch.full((2, length), float("nan"), device="cuda")
        size = (2, 3, columns, length) if columns_first else (2, 3, length, columns)
        memory = torch.full(size, 7.0, device="cuda", dtype=dtype)
        tensor = memory.transpose(2, 3) if columns_first else memory
        case = Case(tensor=tensor_arg(tensor), a=pointer(s), b=pointer(vector),
                    out2=pointer(stats), rows=length, columns=columns, r0=r0, c0=c0)  # fmt: skip
        case.extent = (ctypes.c_int * 4)(length, 3, 0, 0)
        case.corner = (ctypes.c_int * 4)(1, 2, 0, 0)
        call(case)

        i = torch.arange(r0, r0 + 64, device="cuda")
        j = torch.arange(c0, c0 + n, device="cuda")
        padded = torch.cat([vector, torch.zeros(600, device="cuda")])
        value = s + padded[i][:, None] - padded[j][None, :] + 0.5 * (i[:, None] - j[None, :])
        row, col = padded[i][:, None], padded[j][None, :]
        keep = (3 * row >= 3 * col - 4) | (i[:, None] == j[None, :])
        keep &= j[None, :] <= i[:, None]
        top = torch.where(keep, value, -math.inf).max(1).values.maximum(0.25 * i)
        kept = torch.where(keep, value, torch.zeros_like(value))
        inside = min(64, length - r0)
        wanted = torch.full_like(stats, float("nan"))
        wanted[0, r0 : r0 + inside] = top[:inside]
        wanted[1, r0 : r0 + inside] = kept.sum(1)[:inside]
        if not torch.equal(stats.nan_to_num(-1e9), wanted.nan_to_num(-1e9)):
            return f"row maxima or sums differ at rows {r0}"
        wanted_tensor = torch.full(size, 7.0, device="cuda", dtype=dtype)
        wanted_tensor = wanted_tensor.transpose(2, 3) if columns_first else wanted_tensor
        wanted_tensor[1, 2, r0 : r0 + inside] = kept[:inside, :columns].to(dtype)
        if not torch.equal(tensor, wanted_tensor):
            return f"the stored tile of {columns} columns differs at rows {r0}"
    return ""


# Where a dense tensor's element (0, 0) lies, its row pitch beyond its columns, its column stride:
# accesses of four elements, of two, of one (an odd start, an odd pitch, columns apart).
DENSE_PLACES = ((0, 0, 1), (2, 2, 1), (0, 2, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2))
# Sizes and origins: all inside, rows and columns past the end, nothing inside.
DENSE_CORNERS = (
    (200, 400, 64, 112), (90, 400, 64, 112), (70, 141, 0, 128), (20, 30, 64, 64), (90, 256, 64, 0),
    (90, 53, 30, 0),
)  # fmt: skip


def check_dense(call: Callable[[Case], None], n: int, _: int, dtype: Any) -> str:
    import torch

    for start, pad, step in DENSE_PLACES:
        for rows, cols, r0, c0 in DENSE_CORNERS:
            values = small_integers(rows, cols)
            pitch = cols * step + pad
            memory = torch.ones(start + rows * pitch + 8, device="cuda", dtype=dtype)
            tensor = memory.as_strided((rows, cols), (pitch, step), start)
            tensor.copy_(values > 0 if dtype == torch.bool else values)
            out, out2 = (torch.full((64, n), math.nan, device="cuda") for _ in range(2))
            case = Case(tensor=tensor_arg(tensor), out=pointer(out), out2=pointer(out2),
                        r0=r0, c0=c0)  # fmt: skip
            case.extent = (ctypes.c_int * 4)(rows, cols, 0, 0)
            call(case)
            seen = torch.zeros(64, n, device="cuda")
            inside = tensor[r0 : r0 + 64, c0 : c0 + n].float()
            seen[: inside.shape[0], : inside.shape[1]] = inside
            i = (torch.arange(64, device="cuda") + r0)[:, None]
            j = (torch.arange(n, device="cuda") + c0)[None, :]
            where = f"start {start}, pad {pad}, step {step}, {rows} x {cols} from {r0}, {c0}"
            if not torch.equal(out, seen + 0.5):
                return f"map: {where}"
            if not torch.equal(out2, torch.where((seen > 0) & (i != j), 0.5, -math.inf)):
                return f"keep: {where}"
    return ""


def check_bits(call: Callable[[Case], None], n: int, _: int, dtype: Any) -> str:
    import torch

    for rows, cols, r0, c0 in ((200, 400, 64, 112), (90, 141, 64, 100), (20, 30, 64, 64)):
        flags = (torch.rand(rows, cols, device="cuda") < 0.5).int()
        words = torch.full((4 * 64 + 2,), 99, device="cuda", dtype=torch.int32)
        words[-2], words[-1] = 10**6, 0
        out, out2 = (torch.full((64, n), math.nan, device="cuda") for _ in range(2))
        case = Case(tensor=tensor_arg(flags), b=pointer(words), out=pointer(out), r0=r0, c0=c0)
        case.out2 = pointer(out2)
        case.extent = (ctypes.c_int * 4)(rows, cols, 0, 0)
        call(case)
        seen = torch.zeros(64, n, device="cuda")
        inside = flags[r0 : r0 + 64, c0 : c0 + n].float()
        seen[: inside.shape[0], : inside.shape[1]] = inside
        wanted = torch.where(seen > 0, 0.5, -math.inf)
        columns = c0 + seen.any(0).nonzero().flatten()
        ends = [int(columns.min()), int(columns.max()) + 1] if len(columns) else [10**6, 0]
        if words[-2:].tolist() != ends:
            return f"put_bits: {rows} x {cols} from {r0}, {c0}: ends {words[-2:].tolist()}"
        below = torch.cat([wanted[24:], torch.full((24, n), -math.inf, device="cuda")])
        if not torch.equal(out, wanted):
            return f"keep_bits: {rows} x {cols} from {r0}, {c0}"
        if not torch.equal(out2, below):
            return f"load_bits past the vector's end: {rows} x {cols} from {r0}, {c0}"
    return ""


def check_claims(call: Callable[[Case], None], blocks: int, _: int, dtype: Any) -> str:
    import torch

    for each, rounds in ((1, 1), (7, 1), (6, 3)):
        limit = blocks * each // rounds
        words = torch.full((5,), 99, device="cuda", dtype=dtype)
        words[3] = 0
        seen = torch.zeros(limit, 256, device="cuda", dtype=dtype)
        case = Case(tensor=tensor_arg(words), out=pointer(seen), r0=3, rows=each, columns=limit)
        case.extent = (ctypes.c_int * 4)(5, 0, 0, 0)
        call(case)
        if not bool((seen == rounds).all()):
            return f"{blocks} blocks claim {each} each below {limit}: not all {rounds} times"
        if words.tolist() != [99, 99, 99, 0, 99]:
            return f"{blocks} blocks leave {words.tolist()}"
    return ""


def check_host(call: Callable[[Case], None], _: int, __: int, dtype: Any) -> str:
    import torch

    for rows, columns in ((0, 64), (1, 64), (63, 64), (64, 64), (65, 64), (2**20 + 1, 112)):
        out, out2 = (torch.full((3,), -1, dtype=dtype) for _ in range(2))  # in host memory
        call(Case(out=pointer(out), out2=pointer(out2), rows=rows, columns=columns))
        wanted = [*out2.tolist()[:2], math.ceil(rows / columns)]
        if out.tolist() != wanted:
            return f"multiprocessors, shared limit, {rows} / {columns}: {out.tolist()} for {wanted}"
    return ""


def check_load_rows(call: Callable[[Case], None], rows: int, columns: int, dtype: Any) -> str:
    """Ranges that end, begin, or do both inside the tile, and at the tensor's end; all rows outside
    hold NaN, as does what lies around the tensor."""
    import torch

    for height, corner in itertools.product((200, 1), [*CORNERS, *BEFORE]):
        first = corner[1]
        places = {0, 1, first - 9, first, first + 1, first + 8, first + rows // 2 + 3,
                  first + rows - 1, first + rows, first + rows + 5, height}  # fmt: skip
        held = torch.full((2, height + 600, 3, columns), math.nan, device="cuda", dtype=dtype)
        base = torch.randn(2, height, 3, columns, device="cuda").to(dtype)
        tensor = held[:, 300 : 300 + height].transpose(1, 2)
        out = torch.empty((rows, columns), device="cuda", dtype=dtype)
        case = Case(tensor=tensor_arg(tensor), out=pointer(out))
        case.extent = (ctypes.c_int * 4)(*tensor.shape)
        case.corner = (ctypes.c_int * 4)(*corner)
        for begin, end in itertools.product(sorted(places), repeat=2):
            if begin < 0 or end > height:
                continue
            seen = torch.zeros_like(base)
            held[:] = math.nan
            if end > begin:
                part = slice(begin, end)
                seen[:, part] = base[:, part]
                tensor.transpose(1, 2)[:, part] = base[:, part]
            out.fill_(math.nan)
            case.r0, case.c0 = begin, end
            call(case)
            if not torch.equal(out, box_of(seen.transpose(1, 2), corner, rows, columns)):
                return f"rows {begin} to {end} of {height}, the box at {corner}"
    return ""


MEANINGS: dict[str, Callable[[Callable[[Case], None], int, int, Any], str]] = {
    "load": check_load,
    "store_box": check_store_box,
    "load_rows": check_load_rows,
    "ring": check_ring,
    "gemm_shared": check_gemm_shared,
    "gemm_registers": check_gemm_registers,
    "gemm_turned": check_gemm_turned,
    "gemm_loaded": check_gemm_shared,
    "panels_of": check_panels,
    "tile": check_tile,
    "dense": check_dense,
    "bits": check_bits,
    "claims": check_claims,
    "host": check_host,
}
