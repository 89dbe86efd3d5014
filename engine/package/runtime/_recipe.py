"""The recipe in plain torch: which pairs are kept, and a row's log-sum-exp."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from ._args import in_order
from ._expr import BINARY, CONSTANTS, parsed, value_of

_CASTS = {
    "float": torch.float64, "f32": torch.float64, "f16": torch.float64, "bf16": torch.float64,
    "int": torch.int64, "i32": torch.int64, "i64": torch.int64, "bool": torch.bool,
}  # fmt: skip
_OF_TENSORS: dict[str, Any] = {
    **{
        name: getattr(torch, name)
        for name in ("sqrt", "rsqrt", "exp", "exp2", "log", "log2", "tanh", "floor", "ceil", "abs",
                     "sigmoid", "sin", "cos", "erf")
    },
    **{name: lambda x, kind=kind: x.to(kind) for name, kind in _CASTS.items()},
    "min": torch.minimum,
    "max": torch.maximum,
    "rcp": torch.reciprocal,
    "fma": lambda a, b, c: a * b + c,
    "ceil_div": lambda a, b: torch.div(a + b - 1, b, rounding_mode="trunc"),
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_mod": torch.remainder,
}  # fmt: skip
_OF_TENSORS |= {f"{n}_approx": _OF_TENSORS[n] for n in ("exp2", "log2", "rcp", "tanh")}


def values_of(text: str, names: dict[str, Any]) -> torch.Tensor:
    """The values of an expression over tensors that broadcast; `NotAnExpression` as `evaluate`."""
    return _tensor(_read(parsed(text), {**CONSTANTS, **names}))


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _read(node: ast.expr, names: dict[str, Any]) -> Any:
    """As `value_of`, where what it cannot do of tensors is done another way."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=index) if name in names:
            places = index.elts if isinstance(index, ast.Tuple) else [index]
            at = [_tensor(_read(place, names)).long() for place in places]
            # A place outside is read only beside a pair that is not kept.
            held = zip(at, names[name].shape, strict=True)
            return names[name][tuple(place.clamp(0, size - 1) for place, size in held)]
        case ast.UnaryOp(op=ast.Not()):
            return ~_tensor(_read(node.operand, names)).bool()
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
            left, right = _read(node.left, names), _read(node.right, names)
            if not any(isinstance(side, torch.Tensor) for side in (left, right)):
                return BINARY[type(node.op)](left, right)
            quotient = torch.div(_tensor(left), right, rounding_mode="trunc")  # as in C
            return quotient if isinstance(node.op, ast.FloorDiv) else left - quotient * right
        case ast.BoolOp():
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, (_tensor(_read(item, names)).bool() for item in node.values))
        case ast.IfExp():
            parts = (_tensor(_read(n, names)) for n in (node.test, node.body, node.orelse))
            return torch.where(*parts)
        case ast.Call(ast.Name("sum_over" | "max_over" as name), [ast.Lambda() as f, n]):
            count, var = int(_tensor(_read(n, names))), f.args.args[0].arg
            terms = (_tensor(_read(f.body, {**names, var: at})).double() for at in range(count))
            return reduce(torch.add if name == "sum_over" else torch.maximum, terms)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _OF_TENSORS:
            return _OF_TENSORS[name](*(_tensor(_read(item, names)) for item in node.args))
    return value_of(node, names, _read)


def _wide(values: dict[str, Any]) -> dict[str, Any]:
    """The values with floats in float64."""
    return {
        n: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for n, v in values.items()
    }


def _places(
    axes: Sequence[str], shape: Sequence[int], device: torch.device
) -> dict[str, torch.Tensor]:
    """The indices of a shape by their axis, each along its own."""
    return {
        name: torch.arange(size, device=device).reshape(*[1] * n, -1, *[1] * (len(shape) - n - 1))
        for n, (name, size) in enumerate(zip(axes, shape, strict=True))
    }


class Recipe:
    """What the spec asks for, read from its code: the data's `recipe`."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.said: dict[str, Any] | None = info["recipe"]

    def rows(
        self, values: dict[str, Any], sizes: dict[str, int], rounded: torch.dtype | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Which rows keep a key [B, Hq, Nq], and the log-sum-exp that the kernel gives of them, in
        float64 (-inf where none is kept and there is no sink; None without a softmax). None where
        no rule reads the spec. `rounded`: the type that q and k have in their product where
        something happens to them before it, as the kernel has them; float64 without."""
        if self.said is None:
            return None
        q, k = (self._in_order(role, values).double() for role in "qk")
        pairs = (*q.shape[:3], k.shape[2])
        given = {**sizes, **_wide(values)}
        names = given | _places("bhij", pairs, q.device)
        heads = values_of(self.said["kv_head"], names).expand(1, q.shape[1], 1, 1).reshape(-1)
        keep = values_of(self.said["keep"], names).to(q.device).bool().expand(pairs)
        if not self.info["softmax"]:
            return keep.any(-1), None
        q, k = (self._made(role, given, raw, rounded) for role, raw in (("q", q), ("k", k)))
        names["x"] = q @ k[:, heads.long()].mT
        score = values_of(self.said["score"], names).double().expand(pairs)
        masked = score.masked_fill(~keep, -torch.inf)
        lse = masked.logsumexp(-1) if k.shape[2] else q.new_full(pairs[:3], -torch.inf)
        if self.said["sink"] is not None:
            sink = values_of(self.said["sink"], names).double().expand((*pairs[:3], 1))
            lse = torch.logaddexp(lse, sink[..., 0])
        return keep.any(-1), lse / math.log(2) if self.said["lse"] == "2" else lse

    def _made(
        self, role: str, given: dict[str, Any], raw: torch.Tensor, rounded: torch.dtype | None
    ) -> torch.Tensor:
        """q or k [B, heads, rows, D] as it goes into the product."""
        assert self.said is not None
        text = self.said.get(role)
        if text is None:
            return raw
        axes = ("b", "h", "i" if role == "q" else "j", "dd")
        shape = (*raw.shape[:3], given["D"])  # of which the input itself may be a part
        names = given | _places(axes, shape, raw.device)
        made = values_of(text, names).double().expand(shape)
        return made if rounded is None else made.to(rounded).double()

    def _in_order(self, role: str, values: dict[str, Any]) -> torch.Tensor:
        item = next(i for i in self.info["inputs"] if i["role"] == role)
        return in_order(values[item["name"]], item["dims"])
