"""Names of the recipe in the kernel: sizes are fields, b and h are the kernel's coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Set

from engine.cuir.nodes import (
    Attr,
    Binary,
    Call,
    Expr,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    free_names,
    walk_expr,
)
from engine.cuir.rewrite import map_expr, substitute
from engine.errors import TransferError
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import SIZES
from engine.transfer.match import Attention
from engine.transfer.rules.base.score_sites import X

COLUMNS = ("D", "Dv")


class Words:
    """Translates recipe names to the kernel's: sizes to fields, b and h to its coordinates."""

    def __init__(self, module: Module, found: Attention, recipe: Recipe) -> None:
        self.fields = {f.name for f in module.fields}
        self.found = found
        self.scale = Attr(Name("args"), found.fields["scale"])
        kernel = module.function(found.kernel)
        self.sizes: dict[str, Expr] = {
            s: Attr(Name("args"), s) for s in SIZES if s in self.fields and s not in COLUMNS
        }
        # The schedule's functions have no template parameter for the columns: a mask that reads
        # their number reads a field.
        for size in COLUMNS:
            if size in kernel.consts:
                in_mask = size in free_names(recipe.keep)
                self.sizes[size] = Attr(Name("args"), size) if in_mask else Name(size)
        # A scalar input may be the scale: the caller passes it, so it is as good as a constant.
        self.tensors = tuple(i for i in recipe.extra() if i.dims)
        self.scalars = {i.name for i in recipe.extra() if not i.dims}
        # What a variable of a function that reads inputs must not be called.
        self.names = frozenset(n for i in recipe.inputs for n in (i.name, *i.dims))
        if "Dv" not in self.sizes and "D" in self.sizes:
            self.sizes["Dv"] = self.sizes["D"]

    def of_kernel(self, expr: Expr) -> Expr:
        """A recipe expression inside the kernel's body (x, i, j stay lambda parameters)."""
        return substitute(expr, {**self.sizes, "b": self.found.batch, "h": self.found.head})

    def of_before(self, expr: Expr, names: Mapping[str, Expr]) -> Expr:
        """A recipe expression in a kernel of its own, with D for its columns."""
        own = {n: e for n, e in self.sizes.items() if n != "D"}
        return substitute(expr, {**own, **names})

    def of_schedule(self, expr: Expr, function: Function) -> Expr:
        """A recipe expression inside a schedule function: (args, b, h, q0, step or n)."""
        names = [p.name for p in function.params]
        renamed = {"b": Name(names[1]), "h": Name(names[2])}
        return substitute(expr, {**self.sizes, **renamed})

    def split_scale(self, score: Expr) -> tuple[Expr, Expr | None]:
        """(the factor that multiplies x first, the rest): score = rest[x := x * factor].

        `rest` is None when the score is exactly a positive factor times x, which the kernel
        folds into its exponential. The factor then stands for `args.scale` in `rest`.
        """
        factors: list[Expr] = []

        def scaled(node: Expr) -> Expr | None:
            match node:
                case Binary("*", Name("x"), factor) | Binary("*", factor, Name("x")) if (
                    self.is_known(factor)
                ):
                    factors.append(factor)
                    return Binary("*", X, self.scale)
                case Binary("/", Name("x"), divisor) if self.is_known(divisor):
                    factors.append(Binary("/", Num(1.0), divisor))
                    return Binary("*", X, self.scale)
                case Lambda():
                    raise TransferError("a score with a lambda in it")
            return None

        rest = map_expr(score, scaled)
        reads = sum(1 for e in walk_expr(rest) if e == X)
        same = all(f == factors[0] for f in factors[1:])
        if not factors or not same or reads != len(factors):
            # x is used bare somewhere: keep the spec's own expression, and no scale.
            return Num(1.0), (None if score == X else score)
        if rest == Binary("*", X, self.scale) and is_positive(factors[0], self.scalars):
            return factors[0], None
        return factors[0], rest

    def is_known(self, expr: Expr) -> bool:
        """True for numbers, scalar inputs and functions of them and of the sizes: what a caller
        knows before the launch."""
        known = set(SIZES) | self.scalars
        return free_names(expr) <= known and not any(isinstance(e, Index) for e in walk_expr(expr))


def is_positive(expr: Expr, promised: Set[str] = frozenset()) -> bool:
    """True when the value is certainly positive; `promised` names are checked by the caller."""
    if isinstance(expr, Name) and expr.id in promised:
        return True
    match expr:
        case Num(value):
            return value > 0
        case Binary("*" | "/" | "+", left, right):
            return is_positive(left, promised) and is_positive(right, promised)
        case Call("sqrt" | "rsqrt" | "exp" | "exp2", (inner,)):
            return is_positive(inner, promised)
        case Call("f32", (inner,)):
            return is_positive(inner, promised)
        case Name("D" | "Dv"):
            return True
    return False
