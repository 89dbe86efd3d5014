"""Constant tensors that are known by their values: closed forms where a known one fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.cuir.nodes import Call, Expr, Index, Name, Num
from engine.scalar_algebra.rewrite import TRUE, load_names, map_children, rename
from engine.spec.expressions import build
from engine.spec.expressions.fit import NoForm, Sizes, fit

Values = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """A closed form: the expression at an index."""

    at: Callable[[tuple[Expr, ...]], Expr]

    def bound_to(self, values: Mapping[str, Expr]) -> Form:
        """The form with names of varied scalars replaced by their values."""
        return Form(lambda index: rename(self.at(index), values)) if values else self


def closed_form(values: Values, sizes: Sequence[Sizes]) -> Form | None:
    """A formula in indices and sizes that gives `values[n]` at `sizes[n]`, if a known one does."""
    rank = values[0].dim()
    if any(v.dim() != rank for v in values):
        return None
    wide = [d for d in range(rank) if any(v.shape[d] > 1 for v in values)]
    flat = [v.reshape([v.shape[d] for d in wide]) for v in values]

    def placed(make: Callable[..., Expr] | None) -> Form | None:
        return None if make is None else Form(lambda index: make(*(index[d] for d in wide)))

    try:
        if not wide:
            number = fit([v.item() for v in flat], sizes)
            return Form(lambda index: number)
        if flat[0].dtype == torch.bool:
            return placed(_truth(flat, sizes))
        if len(wide) == 2:
            masked = _masked(flat, sizes)
            if masked is not None:
                return placed(masked)
        return placed(_affine(flat, sizes) or _geometric(flat, sizes) or _distance(flat, sizes))
    except (NoForm, OverflowError):
        return None


def _affine(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """c + a0 * n0 + a1 * n1 ..."""
    rank = values[0].dim()
    rows = []
    for v in values:
        origin = v.reshape(-1)[0].item()
        if not math.isfinite(origin):
            return None
        steps = [_step(v, d, origin) for d in range(rank)]
        model = torch.full_like(v, origin)
        for d, step in enumerate(steps):
            ramp = torch.arange(v.shape[d]).reshape([-1 if e == d else 1 for e in range(rank)])
            model = model + (step * ramp).to(v.dtype)
        if not _close(model, v):
            return None
        rows.append((origin, *steps))
    constants = [fit(list(column), sizes) for column in zip(*rows, strict=True)]

    def at(*index: Expr) -> Expr:
        out = constants[0]
        for slope, n in zip(constants[1:], index, strict=True):
            out = build.add(out, build.mul(slope, n))
        return out

    return at


def _step(v: torch.Tensor, dim: int, origin: float) -> float:
    if v.shape[dim] < 2:
        return type(origin)(0)
    return v.select(dim, 1).reshape(-1)[0].item() - origin


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not b.dtype.is_floating_point:
        return bool((a == b).all())
    return bool(((a - b).abs() <= 1e-12 * b.abs().max()).all())


def _geometric(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """+-exp2(a * n + c), as ALiBi's slopes for a power of two of heads."""
    if values[0].dim() != 1 or not values[0].dtype.is_floating_point:
        return None
    sign = 1 if float(values[0][0]) > 0 else -1
    if not all(bool((sign * v > 0).all()) for v in values):
        return None
    inner = _affine([torch.log2(sign * v) for v in values], sizes)
    if inner is None:
        return None

    def at(n: Expr) -> Expr:
        out: Expr = Call("exp2", (inner(n),))
        return out if sign > 0 else build.neg(out)

    return at


def _distance(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """+-abs(n0 - n1 + c), or the part of it on one side."""
    if values[0].dim() != 2:
        return None
    for sign in (1, -1):
        for clamp in (None, 1, -1):
            shifts = [_shift_of_distance(v, sign, clamp) for v in values]
            if any(s is None for s in shifts):
                continue
            shift = fit([s for s in shifts if s is not None], sizes)

            def at(
                a: Expr, b: Expr, sign: int = sign, clamp: int | None = clamp, shift: Expr = shift
            ) -> Expr:
                gap = build.add(build.sub(a, b), shift)
                if clamp is None:
                    out = build.call("abs", gap)
                else:
                    out = build.call("max", gap if clamp > 0 else build.neg(gap), Num(0))
                return out if sign > 0 else build.neg(out)

            return at
    return None


def _shift_of_distance(v: torch.Tensor, sign: int, clamp: int | None) -> int | None:
    gap = torch.arange(v.shape[0])[:, None] - torch.arange(v.shape[1])[None, :]
    for shift in range(-max(v.shape) - 1, max(v.shape) + 2):
        moved = gap + shift
        model = moved.abs() if clamp is None else (clamp * moved).clamp(min=0)
        if bool((sign * model == v).all()):
            return shift
    return None


# --- truth ---------------------------------------------------------------------------------------


def _masked(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """A float table of two values, such as 0 and -inf, is a mask."""
    found = [sorted(set(v.reshape(-1).tolist())) for v in values]
    if any(len(f) != 2 or f != found[0] for f in found):
        return None
    low, high = found[0]
    truth = _truth([v == high for v in values], sizes)
    if truth is None:
        return None
    return lambda *index: build.select(truth(*index), Num(high), Num(low))


def _truth(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    if values[0].dim() == 1:
        return _interval(values, sizes)
    if values[0].dim() != 2:
        return None
    inside = _band(values, sizes)
    outside = _band([~v for v in values], sizes) if inside is None else None
    if outside is not None:
        return lambda *index: build.negate(outside(*index))
    return inside


def _interval(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """low <= n < high."""
    ends = []
    for v in values:
        where = v.nonzero().reshape(-1).tolist()
        if not where or len(where) != where[-1] - where[0] + 1:
            return None
        ends.append((where[0], where[-1] + 1, v.shape[0]))
    low, high = (fit([e[n] for e in ends], sizes) for n in (0, 1))
    whole = all(e[1] == e[2] for e in ends)

    def at(n: Expr) -> Expr:
        above = TRUE if low == Num(0) else build.compare(">=", n, low)
        return build.both(above, TRUE if whole else build.compare("<", n, high))

    return at


def _band(values: Values, sizes: Sequence[Sizes]) -> Callable[..., Expr] | None:
    """n0 + low <= n1 <= n0 + high, either bound absent."""
    bounds = [_band_of(v) for v in values]
    if any(b is None for b in bounds):
        return None
    known = [b for b in bounds if b is not None]
    lows, highs = [b[0] for b in known], [b[1] for b in known]
    if any((x is None) != (lows[0] is None) for x in lows):
        return None
    if any((x is None) != (highs[0] is None) for x in highs):
        return None
    low = None if lows[0] is None else fit([x for x in lows if x is not None], sizes)
    high = None if highs[0] is None else fit([x for x in highs if x is not None], sizes)

    def at(a: Expr, b: Expr) -> Expr:
        out: Expr = TRUE
        if high is not None:
            out = build.both(out, build.compare("<=", b, build.add(a, high)))
        if low is not None:
            out = build.both(out, build.compare(">=", b, build.add(a, low)))
        return out

    return at if (low, high) != (None, None) else None


def _band_of(v: torch.Tensor) -> tuple[int | None, int | None] | None:
    """The band's bounds on n1 - n0, None where the matrix has no pair beyond."""
    gap = torch.arange(v.shape[1])[None, :] - torch.arange(v.shape[0])[:, None]
    if not bool(v.any()):
        return None
    low, high = int(gap[v].min()), int(gap[v].max())
    if not bool((v == ((gap >= low) & (gap <= high))).all()):
        return None
    return (None if low == int(gap.min()) else low), (None if high == int(gap.max()) else high)


# --- in an expression ----------------------------------------------------------------------------


def with_forms(expr: Expr, forms: Mapping[str, Form]) -> Expr:
    """`expr` with loads of tables that have a closed form replaced by it."""
    if not load_names(expr) & set(forms):
        return expr
    expr = map_children(expr, lambda e: with_forms(e, forms))
    if isinstance(expr, Index) and isinstance(expr.base, Name) and expr.base.id in forms:
        return forms[expr.base.id].at(expr.index)
    return expr
