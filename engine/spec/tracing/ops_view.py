"""Views and reshapes: maps of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from engine.cuir.nodes import Call, Expr, Num, children
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.spec.expressions import build
from engine.spec.expressions.build import ZERO
from engine.spec.expressions.fit import rolled
from engine.spec.tracing.ops_support import Args, Handler, Kwargs, Unreadable, argument
from engine.spec.tracing.symbolic import Indices, Sym, View, reshape_index

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace

ViewRule = Callable[["Trace", Args, Kwargs, Any], "View | list[View]"]


def _plain(
    base: torch.Tensor, forward: Callable[[Indices], Indices], back: Callable[[Indices], Indices]
) -> View:
    return View(base, forward, lambda index: (TRUE, back(index)))


def _reshape(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    old, new = tuple(args[0].shape), tuple(out.shape)
    return _plain(
        args[0],
        lambda index: reshape_index(index, old, new, trace.extents),
        lambda index: reshape_index(index, new, old, trace.extents),
    )


def _permuted(base: torch.Tensor, order: list[int]) -> View:
    place = {source: position for position, source in enumerate(order)}
    return _plain(
        base,
        lambda index: tuple(index[place[d]] for d in range(len(order))),
        lambda index: tuple(index[d] for d in order),
    )


def _permute(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    rank = args[0].dim()
    return _permuted(args[0], [d % rank for d in args[1]])


def _transpose(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    rank = args[0].dim()
    a, b = (args[1] % rank, args[2] % rank) if len(args) > 2 else (rank - 2, rank - 1)
    order = list(range(rank))
    if rank:
        order[a], order[b] = order[b], order[a]
    return _permuted(args[0], order)


def _t(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    return _permuted(args[0], list(reversed(range(args[0].dim()))))


def _expand(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    shape = tuple(args[0].shape)
    skip = out.dim() - len(shape)

    def forward(index: Indices) -> Indices:
        return tuple(ZERO if e == 1 else p for e, p in zip(shape, index[skip:], strict=True))

    # Writing through an expanded view writes one element several times; no rule reads that.
    same = tuple(out.shape) == shape
    return View(args[0], forward, (lambda index: (TRUE, index)) if same else None)


def _slice(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    base = args[0]
    dim = argument(args, kwargs, 1, "dim", 0) % base.dim()
    size = base.shape[dim]
    step = argument(args, kwargs, 4, "step", 1)
    start = argument(args, kwargs, 2, "start", 0) or 0
    start = max(0, min(size, start + size if start < 0 else start))
    length = out.shape[dim]

    def forward(index: Indices) -> Indices:
        moved = index[dim]
        if step != 1 or start:
            moved = build.index_expr(
                build.index_poly(moved).scaled(step) + build.index_poly(Num(start))
            )
        return (*index[:dim], moved, *index[dim + 1 :])

    def inverse(index: Indices) -> tuple[Expr, Indices]:
        own = index[dim]
        inside: Expr = TRUE
        if start:
            inside = build.both(inside, build.compare(">=", own, Num(start)))
        if start + length < size:
            inside = build.both(inside, build.compare("<", own, Num(start + length)))
        moved = build.sub(own, Num(start))
        return inside, (*index[:dim], moved, *index[dim + 1 :])

    return View(base, forward, inverse if step == 1 else None)


def _select_at(base: torch.Tensor, dim: int, position: int) -> View:
    def forward(index: Indices) -> Indices:
        return (*index[:dim], Num(position), *index[dim:])

    def inverse(index: Indices) -> tuple[Expr, Indices]:
        inside = build.compare("==", index[dim], Num(position)) if base.shape[dim] > 1 else TRUE
        return inside, (*index[:dim], *index[dim + 1 :])

    return View(base, forward, inverse)


def _select(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    dim = args[1] % args[0].dim()
    return _select_at(args[0], dim, args[2] % args[0].shape[dim])


def _unbind(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> list[View]:
    dim = argument(args, kwargs, 1, "dim", 0) % args[0].dim()
    return [_select_at(args[0], dim, n) for n in range(len(out))]


def _split(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> list[View]:
    dim = argument(args, kwargs, 2, "dim", 0) % args[0].dim()
    views, start = [], 0
    for part in out:
        views.append(_slice(trace, (args[0], dim, start), {}, part))
        start += part.shape[dim]
    return views


def _unsqueeze(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> View:
    dim = args[1] % out.dim()
    return _plain(
        args[0],
        lambda index: (*index[:dim], *index[dim + 1 :]),
        lambda index: (*index[:dim], ZERO, *index[dim:]),
    )


VIEWS: dict[str, ViewRule] = {
    "view": _reshape, "_unsafe_view": _reshape, "_reshape_alias": _reshape, "reshape": _reshape,
    "squeeze": _reshape, "permute": _permute, "transpose": _transpose, "t": _t, "numpy_T": _t,
    "expand": _expand, "slice": _slice, "select": _select, "unbind": _unbind,
    "split": _split, "split_with_sizes": _split, "unsqueeze": _unsqueeze, "flatten": _reshape,
    "_conj": lambda t, a, k, o: _plain(a[0], lambda i: i, lambda i: i),
}  # fmt: skip


# --- reshaping copies ----------------------------------------------------------------------------


def _rolled(trace: Trace, parts: list[Expr], position: Expr) -> Expr | None:
    """The parts as one expression, with the lines of the first."""
    form = rolled(parts, position)
    if form is not None:
        _carry_lines(trace, parts[0], form)
    return form


def _carry_lines(trace: Trace, part: Expr, form: Expr) -> None:
    if part == form or type(part) is not type(form):
        return
    if part in trace.lines:
        trace.lines.setdefault(form, set()).update(trace.lines[part])
    for a, b in zip(children(part), children(form), strict=False):
        _carry_lines(trace, a, b)


def _cat(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    parts = [t for t in args[0] if t.numel() or t.dim() > 1]
    dim = argument(args, kwargs, 1, "dim", 0) % out.dim()
    syms = [trace.sym(t) for t in parts]

    starts = [0]
    for sym in syms:
        starts.append(starts[-1] + sym.shape[dim])

    def part(n: int, index: Indices) -> Expr:
        moved = build.sub(index[dim], Num(starts[n]))
        return syms[n].read((*index[:dim], moved, *index[dim + 1 :]))

    length = syms[0].shape[dim]
    alike = len(syms) > 2 and all(sym.shape[dim] == length for sym in syms)

    def read(index: Indices) -> Expr:
        if alike:
            which, inner = build.divmod_index(index[dim], length, trace.extents)
            own = (*index[:dim], inner, *index[dim + 1 :])
            form = _rolled(trace, [sym.read(own) for sym in syms], which)
            if form is not None:
                return form
        result = part(len(syms) - 1, index)
        for n in reversed(range(len(syms) - 1)):
            before = build.compare("<", index[dim], Num(starts[n + 1]))
            result = build.select(before, part(n, index), result)
        return result

    return Sym(tuple(out.shape), read, frozenset().union(*(s.deps for s in syms)))


def _stack(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    dim = argument(args, kwargs, 1, "dim", 0) % out.dim()
    syms = [trace.sym(t) for t in args[0]]

    def read(index: Indices) -> Expr:
        rest = (*index[:dim], *index[dim + 1 :])
        parts = [sym.read(rest) for sym in syms]
        form = _rolled(trace, parts, index[dim]) if len(parts) > 2 else None
        if form is not None:
            return form
        result = parts[-1]
        for n in reversed(range(len(syms) - 1)):
            result = build.select(build.compare("==", index[dim], Num(n)), parts[n], result)
        return result

    return Sym(tuple(out.shape), read, frozenset().union(*(s.deps for s in syms)))


def _repeat(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    sym = trace.sym(args[0])
    skip = out.dim() - len(sym.shape)

    def read(index: Indices) -> Expr:
        own: list[Expr] = []
        for extent, total, part in zip(sym.shape, out.shape[skip:], index[skip:], strict=True):
            if extent == 1:
                own.append(ZERO)
            elif extent == total:
                own.append(part)
            else:
                own.append(build.divmod_index(part, extent, trace.extents)[1])
        return sym.read(tuple(own))

    return Sym(tuple(out.shape), read, sym.deps)


def _repeat_interleave(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    times = argument(args, kwargs, 1, "repeats")
    dim = argument(args, kwargs, 2, "dim")
    if not isinstance(times, int) or dim is None:
        raise Unreadable
    sym = trace.sym(args[0])
    dim %= out.dim()

    def read(index: Indices) -> Expr:
        quotient = build.divmod_index(index[dim], times, trace.extents)[0]
        return sym.read((*index[:dim], quotient, *index[dim + 1 :]))

    return Sym(tuple(out.shape), read, sym.deps)


def _flip(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    sym = trace.sym(args[0])
    dims = {d % out.dim() for d in args[1]}

    def read(index: Indices) -> Expr:
        return sym.read(tuple(
            build.sub(Num(out.shape[d] - 1), p) if d in dims else p for d, p in enumerate(index)
        ))  # fmt: skip

    return Sym(tuple(out.shape), read, sym.deps)


def _triangle(lower: bool) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        sym = trace.sym(args[0])
        diagonal = trace.number(argument(args, kwargs, 1, "diagonal", 0))
        zero = (
            FALSE
            if out.dtype == torch.bool
            else (Num(0.0) if out.dtype.is_floating_point else Num(0))
        )

        def read(index: Indices) -> Expr:
            row, column = index[-2], index[-1]
            kept = build.compare("<=" if lower else ">=", column, build.add(row, diagonal))
            return build.select(kept, sym.read(index), zero)

        return Sym(tuple(out.shape), read, sym.deps)

    return handle


def _reshaped_copy(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    sym = trace.sym(args[0])
    new = tuple(out.shape)
    return Sym(
        new, lambda index: sym.read(reshape_index(index, sym.shape, new, trace.extents)), sym.deps
    )


def _padded(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    sym = trace.sym(args[0])
    pads, value = args[1], argument(args, kwargs, 2, "value", 0) or 0
    fill: Expr = Num(bool(value)) if out.dtype == torch.bool else Num(value)
    before = {out.dim() - 1 - n // 2: pads[n] for n in range(0, len(pads), 2)}
    after = {out.dim() - 1 - n // 2: pads[n + 1] for n in range(0, len(pads), 2)}

    def read(index: Indices) -> Expr:
        own = list(index)
        inside: Expr = TRUE
        for d in before:
            own[d] = build.sub(index[d], Num(before[d]))
            if before[d] > 0:
                inside = build.both(inside, build.compare(">=", index[d], Num(before[d])))
            if after[d] > 0:
                inside = build.both(
                    inside, build.compare("<", index[d], Num(before[d] + sym.shape[d]))
                )
        return build.select(inside, sym.read(tuple(own)), fill)

    return Sym(tuple(out.shape), read, sym.deps)


def _roll(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    sym = trace.sym(args[0])
    shifts = [args[1]] if isinstance(args[1], int) else list(args[1])
    dims = argument(args, kwargs, 2, "dims", [])
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        raise Unreadable

    def read(index: Indices) -> Expr:
        own = list(index)
        for shift, dim in zip(shifts, dims, strict=True):
            own[dim] = Call("floor_mod", (build.sub(own[dim], Num(shift)), Num(out.shape[dim])))
        return sym.read(tuple(own))

    return Sym(tuple(out.shape), read, sym.deps)


COPYING_VIEWS: dict[str, Handler] = {
    "cat": _cat, "stack": _stack, "repeat": _repeat, "repeat_interleave": _repeat_interleave,
    "flip": _flip, "tril": _triangle(True), "triu": _triangle(False), "roll": _roll,
    "reshape": _reshaped_copy, "_unsafe_view": _reshaped_copy, "constant_pad_nd": _padded,
}  # fmt: skip
