"""A recipe as FlexAttention's mods: Python source that the timing run writes and compiles.

FlexAttention is the rival that a person would otherwise use, so it gets the recipe's expressions
as they are, with the scale in its own argument wherever the score allows. Its output is checked
against the recipe before it is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Select,
    Unary,
    names_in,
    walk_expr,
)  # fmt: skip
from engine.spec.recipes.recipe import Recipe

INDEX_NAMES = {"b": "b", "h": "h", "i": "q_idx", "j": "kv_idx"}
_FUNCTIONS = {
    "exp": "torch.exp", "exp2": "torch.exp2", "exp2_approx": "torch.exp2", "log": "torch.log",
    "log2": "torch.log2", "log2_approx": "torch.log2", "tanh": "torch.tanh",
    "tanh_approx": "torch.tanh", "sqrt": "torch.sqrt", "rsqrt": "torch.rsqrt",
    "sigmoid": "torch.sigmoid", "erf": "torch.erf", "sin": "torch.sin", "cos": "torch.cos",
    "floor": "torch.floor", "ceil": "torch.ceil", "rcp": "torch.reciprocal",
    "rcp_approx": "torch.reciprocal", "abs": "torch.abs",
}  # fmt: skip
_CASTS = {
    "float": "torch.float32",
    "f32": "torch.float32",
    "int": "torch.int32",
    "i32": "torch.int32",
}


class NotExpressible(Exception):
    """Why a rival's mods cannot say this recipe."""


@dataclass(frozen=True, slots=True)
class Flex:
    """`source` defines `mods(sizes, tensors)`, which gives (scale, score_mod, mask_mod)."""

    source: str


def flex_source(recipe: Recipe) -> Flex:
    """The recipe's mods as Python source.

    Raises:
        NotExpressible: the recipe is no softmax over a score and a mask, or names something that
            FlexAttention has no form for.
    """
    plain_softmax(recipe, "FlexAttention")
    extras = recipe.extra()
    scalars = {i.name for i in extras if not i.dims}
    writer = Writer({i.name for i in extras if i.dims}, scalars)
    scale, score = split_scale(recipe.score)
    lines = [
        '"""FlexAttention\'s mods for this recipe (generated)."""',
        "",
        "import torch",
        "",
        "",
        "def mods(sizes, tensors):",
    ]
    for name in sorted(_size_names(recipe, writer)):
        lines.append(f'    {name} = sizes["{name}"]')
    for item in extras:
        lines.append(f'    t_{item.name} = tensors["{item.name}"]')
    lines.append(f"    scale = {writer.host(scale)}")
    if score == Name("x"):
        lines.append("    score_mod = None")
    else:
        lines += [
            "",
            "    def score_mod(score, b, h, q_idx, kv_idx):",
            f"        return {writer.device(score)}",
        ]
    if recipe.keep == Num(True):
        lines.append("    mask_mod = None")
    else:
        lines += [
            "",
            "    def mask_mod(b, h, q_idx, kv_idx):",
            f"        return {writer.device(recipe.keep)}",
        ]
    lines += ["", "    return scale, score_mod, mask_mod"]
    return Flex("\n".join(lines) + "\n")


def besides_softmax(recipe: Recipe) -> dict[str, str]:
    """What the recipe has besides softmax over a score and a mask, by its name in the registry's
    needs, and what is said of a rival that has it not."""
    parts = (
        ("weights", recipe.weight is not None or recipe.late is not None,
         "is softmax alone; this recipe has weights of its own"),
        ("before", recipe.changes_operands, "multiplies q and k as they are"),
        ("sink", recipe.sink is not None, "has no sink in the softmax's sum"),
        ("output", recipe.changes_output, "changes nothing of the output"),
        ("head pairing", not plain_heads(recipe.kv_head),
         "pairs query head h with key head h // (Hq // Hkv)"),
    )  # fmt: skip
    return {name: lacking for name, has, lacking in parts if has}


def plain_softmax(recipe: Recipe, rival: str, sinks: bool = False) -> None:
    """Raises `NotExpressible` where the recipe is more than softmax over a score and a mask, and
    over a sink per head where the rival takes `sinks`."""
    for name, lacking in besides_softmax(recipe).items():
        if name != "sink" or not sinks:
            raise NotExpressible(f"{rival} {lacking}")
        if recipe.sink is not None and {"b", "i"} & names_in(recipe.sink):
            raise NotExpressible(f"{rival}'s sink is a number per head")


def split_scale(score: Expr) -> tuple[Expr, Expr]:
    """(c, f) with score = f where every x stands as x * c: FlexAttention scales by itself.

    The c must be free of indices; otherwise (1, score).
    """
    uses = _scaled_uses(score)
    if uses is None or not uses:
        return Num(1.0), score
    first = uses[0]
    if any(u != first for u in uses) or {*INDEX_NAMES, "x"} & names_in(first) or _loads(first):
        return Num(1.0), score
    return first, _without_scale(score, first)


def _scaled_uses(expr: Expr) -> list[Expr] | None:
    """The factors of every use of x; None when one stands without a factor."""
    match expr:
        case Binary("*", Name("x"), c) | Binary("*", c, Name("x")):
            return None if "x" in names_in(c) else [c]
        case Binary("/", Name("x"), c):
            return None if "x" in names_in(c) else [Binary("/", Num(1.0), c)]
        case Name("x"):
            return None
    from engine.cuir.nodes import children

    out: list[Expr] = []
    for child in children(expr):
        found = _scaled_uses(child)
        if found is None:
            return None
        out += found
    return out


def _without_scale(expr: Expr, scale: Expr) -> Expr:
    from engine.scalar_algebra.rewrite import map_children

    match expr:
        case Binary("*", Name("x"), c) | Binary("*", c, Name("x")) if c == scale:
            return Name("x")
        case Binary("/", Name("x"), c) if Binary("/", Num(1.0), c) == scale:
            return Name("x")
    return map_children(expr, lambda e: _without_scale(e, scale))


def _loads(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk_expr(expr))


def plain_heads(kv_head: Expr) -> bool:
    from engine.cuir.printer import print_expr

    text = print_expr(kv_head).replace(" ", "").replace("(", "").replace(")", "")
    known = ("h//Hq//Hkv", "h", "floor_divh,Hq//Hkv", "floor_divh,floor_divHq,Hkv", "h*Hkv//Hq")
    return text in known or text.replace("floor_div", "") in known


def _size_names(recipe: Recipe, writer: Writer) -> set[str]:
    skip = {*INDEX_NAMES, "x", "s", "inf", "nan", "LOG2E", "LN2", *writer.tensors, *writer.scalars}
    return set(names_in(recipe.score, recipe.keep) - skip)


class Writer:
    """Expressions as Python: `device` on index tensors, by FlexAttention's names for them where no
    others are given, `host` on numbers."""

    def __init__(
        self, tensors: set[str], scalars: set[str], indices: Mapping[str, str] = INDEX_NAMES
    ) -> None:
        self.tensors = tensors
        self.scalars = scalars
        self.indices = indices

    def host(self, expr: Expr) -> str:
        match expr:
            case Call(fn, args):
                short = fn.removesuffix("_approx")
                if short in ("floor_div", "floor_mod"):
                    op = "//" if short == "floor_div" else "%"
                    return f"({self.host(args[0])} {op} {self.host(args[1])})"
                if short == "rsqrt":
                    return f"({self.host(args[0])}) ** -0.5"
                if short in ("float", "f32"):
                    return f"float({self.host(args[0])})"
                if short in ("sqrt", "exp", "log", "tanh", "log2"):
                    return f"__import__('math').{short}({self.host(args[0])})"
                raise NotExpressible(f"no form for {fn} in the scale")
            case Binary(op, left, right):
                return f"({self.host(left)} {op} {self.host(right)})"
            case Unary("-", operand):
                return f"(-{self.host(operand)})"
            case Num(value):
                return repr(value)
            case Name(id):
                return self.name(id)
        raise NotExpressible("the scale is no expression over sizes")

    def name(self, id: str) -> str:
        if id == "x":
            return "score"
        if id in self.indices:
            return self.indices[id]
        if id in self.scalars or id in self.tensors:
            return f"t_{id}"
        if id in ("inf", "nan"):
            return f'float("{id}")'
        if id == "LOG2E":
            return "1.4426950408889634"
        if id == "LN2":
            return "0.6931471805599453"
        return id

    def device(self, expr: Expr) -> str:
        match expr:
            case Num(value):
                return repr(value)
            case Name(id):
                return self.name(id)
            case Unary("not", operand):
                return f"(~({self.device(operand)}))"
            case Unary(op, operand):
                return f"({op}{self.device(operand)})"
            case Binary(op, left, right):
                return f"({self.device(left)} {op} {self.device(right)})"
            case Compare(op, left, right):
                return f"({self.device(left)} {op} {self.device(right)})"
            case Bool(op, left, right):
                return f"({self.device(left)} {'&' if op == 'and' else '|'} {self.device(right)})"
            case Select(cond, then, other):
                return (
                    f"torch.where({self.device(cond)}, {self.device(then)}, {self.device(other)})"
                )
            case Index(Name(id), index) if id in self.tensors:
                return f"t_{id}[{', '.join(self.device(i) for i in index)}]"
            case Call(fn, args):
                return self.call(fn, [self.device(a) for a in args])
        raise NotExpressible(f"no form for {type(expr).__name__}")

    def call(self, fn: str, args: list[str]) -> str:
        if fn in _FUNCTIONS:
            return f"{_FUNCTIONS[fn]}({', '.join(args)})"
        if fn in ("floor_div", "floor_mod"):
            return f"({args[0]} {'//' if fn == 'floor_div' else '%'} {args[1]})"
        if fn in ("min", "max"):
            word = "minimum" if fn == "min" else "maximum"
            first, second = (a if not _number(a) else f"torch.full((), {a})" for a in args)
            return f"torch.{word}({first}, {second})"
        if fn == "fma":
            return f"({args[0]} * {args[1]} + {args[2]})"
        if fn in _CASTS:
            return f"({args[0]}).to({_CASTS[fn]})"
        raise NotExpressible(f"no form for {fn}")


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
