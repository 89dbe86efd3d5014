"""A recipe as FlashAttention-4's functions: CuTe DSL source that the timing run writes and imports.

FlashAttention-4 takes a score function and a mask function of its own language. They are printed
from the recipe's expressions for one set of sizes: sizes and scalar inputs stand there as literals,
so that its compiler sees what a person who writes for one shape would write. Tensors that the
expressions read are `aux_tensors`, in the order of `tensors`. Output is checked before it is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    CONTRARY,
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
)
from engine.spec.recipes.recipe import Recipe
from engine.worker.contests.flex_source import (
    INDEX_NAMES,
    NotExpressible,
    plain_softmax,
    split_scale,
)

Number = int | float | bool
INT, FLOAT, BOOL = "int", "float", "bool"
# Of one argument; the fast forms, which a person who writes for speed would take.
_FUNCTIONS = {
    "exp2": "cute.math.exp2({}, fastmath=True)", "log": "cute.math.log({})",
    "exp": "cute.math.exp2({} * 1.4426950408889634, fastmath=True)",
    "log2": "cute.math.log2({})", "tanh": "cute.math.tanh({}, fastmath=True)",
    "sqrt": "cute.math.sqrt({})", "rsqrt": "cute.math.rsqrt({})", "erf": "cute.math.erf({})",
    "sin": "cute.math.sin({})", "cos": "cute.math.cos({})", "floor": "cute.math.floor({})",
    "ceil": "cute.math.ceil({})", "rcp": "(1.0 / {})",
    "sigmoid": "(1.0 / (1.0 + cute.math.exp2({} * -1.4426950408889634, fastmath=True)))",
}  # fmt: skip
_CONSTANTS = {
    "inf": float("inf"), "nan": float("nan"), "LOG2E": 1.4426950408889634,
    "LN2": 0.6931471805599453,
}  # fmt: skip
_HELPERS = '''
def _load(tensor, *index):
    """One element: an index is a number, or a value of one lane."""
    at = tuple(i if isinstance(i, int) else i[0] for i in index)
    value = cute.make_rmem_tensor(1, tensor.element_type)
    value[0] = tensor[at if len(at) > 1 else at[0]]
    return value.load()


def _where(cond, then, other):
    """A choice; a number becomes a value of the other side's kind."""
    if isinstance(then, (int, float)):
        then = cute.full_like(other, then)
    if isinstance(other, (int, float)):
        other = cute.full_like(then, other)
    return cute.where(cond, then, other)


def _least(a, b):
    return _where(a < b, a, b)


def _most(a, b):
    return _where(a > b, a, b)
'''


@dataclass(frozen=True, slots=True)
class Cute:
    """`source` defines `score_mod` and `mask_mod` (None where there is nothing to say).

    `scale` goes into the function's own argument; `tensors` name the inputs that are `aux_tensors`.
    """

    source: str
    scale: float
    tensors: tuple[str, ...]
    has_score: bool
    has_mask: bool


def cute_source(recipe: Recipe, values: Mapping[str, Number]) -> Cute:
    """The recipe's functions at `values`: every size, and every input without dimensions.

    Raises:
        NotExpressible: the recipe is no softmax over a score and a mask, or names something that
            has no form in CuTe DSL.
    """
    plain_softmax(recipe, "FlashAttention-4", sinks=True)
    scale, score = split_scale(recipe.score)
    shaped = {i.name: i.dtype for i in recipe.extra() if i.dims}
    used = [
        e.id
        for part in (score, recipe.keep)
        for e in walk_expr(part)
        if isinstance(e, Name) and e.id in shaped
    ]
    tensors = tuple(dict.fromkeys(used))
    writer = _Writer({n: shaped[n] for n in tensors}, tensors, values)
    text, kind = writer.value(scale)
    if not kind.endswith("!"):
        raise NotExpressible("the scale is no number at these sizes")
    lines = [
        '"""FlashAttention-4\'s functions for this recipe at these sizes (generated)."""',
        "",
        "import cutlass",
        "import cutlass.cute as cute",
        "",
        _HELPERS,
    ]
    has_score, has_mask = score != Name("x"), recipe.keep != Num(True)
    if has_score:
        body, _ = writer.body(score)
        head = "def score_mod(score, b, h, q_idx, kv_idx, seqlen_info, aux_tensors):"
        lines += ["", "@cute.jit", head, *body, ""]
    else:
        lines += ["", "score_mod = None"]
    if has_mask:
        body, kind = writer.body(recipe.keep)
        if kind != BOOL:
            raise NotExpressible("the mask depends on no index at these sizes")
        head = "def mask_mod(b, h, q_idx, kv_idx, seqlen_info, aux_tensors):"
        lines += ["", "@cute.jit", head, *body]
    else:
        lines += ["mask_mod = None"]
    return Cute("\n".join(lines) + "\n", float(eval(text)), tensors, has_score, has_mask)


class _Writer:
    """Expressions as CuTe DSL: `value` gives the text and its kind.

    A kind with "!" after it is a number that is known here; its text is its literal.
    """

    def __init__(
        self, dtypes: Mapping[str, str], order: tuple[str, ...], values: Mapping[str, Number]
    ) -> None:
        self.dtypes = dtypes
        self.order = order
        self.values = values
        self.loads: dict[str, str] = {}  # text -> name: what is read twice is loaded once

    def body(self, expr: Expr) -> tuple[list[str], str]:
        """A function's lines, and the kind of what it gives."""
        self.loads = {}
        text, kind = self.value(expr)
        lines = [f"    {name} = {load}" for load, name in self.loads.items()]
        return [*lines, f"    return {text}"], kind

    def value(self, expr: Expr) -> tuple[str, str]:
        from engine.cuir.scalar import evaluate

        free = names_in(expr) - set(_CONSTANTS)
        if free <= set(self.values) and not any(isinstance(e, Index) for e in walk_expr(expr)):
            return literal(evaluate(expr, dict(self.values)))
        match expr:
            case Name("x"):
                return "score", FLOAT
            case Name(id) if id in INDEX_NAMES:
                return INDEX_NAMES[id], INT
            case Unary("not", operand):
                return self.contrary(operand)
            case Unary("-", operand):
                text, kind = self.value(operand)
                return f"(-{text})", kind
            case Binary("+" | "-", _, _):
                return self.sum(expr)
            case Binary(op, left, right):
                return self.arithmetic(op, left, right)
            case Compare(op, left, right):
                first, second = self.together(left, right)
                return f"({first[0]} {op} {second[0]})", BOOL
            case Bool(op, left, right):
                return self.both(op, self.value(left), self.value(right))
            case Select(cond, then, other):
                asked, kind = self.value(cond)
                first, second = self.together(then, other)
                if kind.endswith("!"):
                    return first if asked == "True" else second
                return f"_where({asked}, {first[0]}, {second[0]})", _kind(first, second)
            case Index(Name(id), index) if id in self.dtypes:
                at = ", ".join(self.value(i)[0] for i in index)
                return self.loaded(id, at)
            case Call(fn, args):
                return self.call(fn, args)
        raise NotExpressible(f"no form for {type(expr).__name__} in CuTe DSL")

    def loaded(self, name: str, at: str) -> tuple[str, str]:
        load = f"_load(aux_tensors[{self.order.index(name)}], {at})"
        text = self.loads.setdefault(load, f"read{len(self.loads)}")
        match self.dtypes[name]:
            case "T":
                return f"{text}.to(cutlass.Float32)", FLOAT
            case "f32":
                return text, FLOAT
            case "bool":
                return f"({text} != 0)", BOOL
        return text, INT

    def sum(self, expr: Expr) -> tuple[str, str]:
        """A chain of + and -; in integers what is known is added up, as a person would write it."""
        terms = [(sign, self.value(term)) for sign, term in _terms(expr)]
        kinds = {kind.rstrip("!") for _, (_, kind) in terms}
        if FLOAT in kinds:
            assert isinstance(expr, Binary)
            return self.arithmetic(expr.op, expr.left, expr.right)
        known = sum(sign * int(text) for sign, (text, kind) in terms if kind.endswith("!"))
        open_ = [(sign, text) for sign, (text, kind) in terms if not kind.endswith("!")]
        open_.sort(key=lambda term: -term[0])  # one that is added first
        sign, text = open_[0]
        out = text if sign > 0 else f"{known} - {text}"
        known = known if sign > 0 else 0
        for sign, text in open_[1:]:
            out += f" {'+' if sign > 0 else '-'} {text}"
        if known:
            out += f" {'+' if known > 0 else '-'} {abs(known)}"
        return (f"({out})" if out != text else out), INT

    def arithmetic(self, op: str, left: Expr, right: Expr) -> tuple[str, str]:
        first, second = self.together(left, right)
        kind = _kind(first, second)
        if op == "%":
            return f"({first[0]} - {first[0]} // {second[0]} * {second[0]})", kind
        if op == "/" and kind == INT:
            first = (_to_float(first), FLOAT)
            kind = FLOAT
        return f"({first[0]} {op} {second[0]})", kind

    def together(self, left: Expr, right: Expr) -> tuple[tuple[str, str], tuple[str, str]]:
        """Both sides in one kind: where one is a float, an integer becomes one."""
        first, second = self.value(left), self.value(right)
        kinds = {first[1].rstrip("!"), second[1].rstrip("!")}
        if FLOAT in kinds:
            return (_to_float(first), _floated(first)), (_to_float(second), _floated(second))
        return first, second

    def both(self, op: str, first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
        """`and` and `or`; a side that is known decides, or is left out."""
        for known, other in ((first, second), (second, first)):
            if known[1].endswith("!"):
                decides = (known[0] == "True") == (op == "or")
                return known if decides else other
        return f"({first[0]} {'&' if op == 'and' else '|'} {second[0]})", BOOL

    def contrary(self, expr: Expr) -> tuple[str, str]:
        match expr:
            case Compare(op, left, right):
                return self.value(Compare(CONTRARY[op], left, right))
            case Bool(op, left, right):
                other = "or" if op == "and" else "and"
                return self.both(other, self.contrary(left), self.contrary(right))
            case Unary("not", operand):
                return self.value(operand)
        text, kind = self.value(expr)
        if kind.endswith("!"):
            return literal(text != "True")
        return f"({text} == 0)", BOOL

    def call(self, fn: str, args: tuple[Expr, ...]) -> tuple[str, str]:
        short = fn.removesuffix("_approx")
        if short in ("floor_div", "floor_mod"):
            return self.arithmetic("//" if short == "floor_div" else "%", args[0], args[1])
        if short in ("min", "max"):
            first, second = self.together(args[0], args[1])
            name = "_least" if short == "min" else "_most"
            if first[1].endswith("!"):
                first, second = second, first
            return f"{name}({first[0]}, {second[0]})", _kind(first, second)
        if short == "fma":
            product = Binary("*", args[0], args[1])
            return self.value(Binary("+", product, args[2]))
        if short in ("float", "f32"):
            return _to_float(self.value(args[0])), FLOAT
        if short in ("int", "i32"):
            return f"({self.value(args[0])[0]}).to(cutlass.Int32)", INT
        if short == "abs":
            text, kind = self.value(args[0])
            return f"_most({text}, -{text})", kind
        if short in _FUNCTIONS:
            return _FUNCTIONS[short].format(_to_float(self.value(args[0]))), FLOAT
        raise NotExpressible(f"no form for {fn} in CuTe DSL")


def _terms(expr: Expr, sign: int = 1) -> list[tuple[int, Expr]]:
    match expr:
        case Binary("+", left, right):
            return [*_terms(left, sign), *_terms(right, sign)]
        case Binary("-", left, right):
            return [*_terms(left, sign), *_terms(right, -sign)]
    return [(sign, expr)]


def literal(value: object) -> tuple[str, str]:
    """A known number's text and kind."""
    if isinstance(value, bool):
        return repr(value), BOOL + "!"
    if isinstance(value, int):
        return repr(value), INT + "!"
    number = float(value)  # type: ignore[arg-type]
    if number != number or number in (float("inf"), -float("inf")):
        return f'float("{number!r}")', FLOAT + "!"
    return repr(number), FLOAT + "!"


def _to_float(said: tuple[str, str]) -> str:
    text, kind = said
    if kind == INT:
        return f"({text}).to(cutlass.Float32)"
    return f"{text}.0" if kind == INT + "!" else text


def _floated(said: tuple[str, str]) -> str:
    return FLOAT + ("!" if said[1].endswith("!") else "")


def _kind(first: tuple[str, str], second: tuple[str, str]) -> str:
    kinds = {first[1].rstrip("!"), second[1].rstrip("!")}
    return FLOAT if FLOAT in kinds else INT if INT in kinds else BOOL
