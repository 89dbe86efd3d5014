"""CuIR expressions as C++ text: total over the expression language, with the fewest parentheses.

What C++ cannot say as CuIR means it (`/` on two ints, `%` on floats) is a `LowerError`; `legal`
rewrites a module so that this does not happen for well-typed CuIR.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.cuir.nodes import (
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    Str,
    Unary,
    names_in,
)
from engine.cuir.printer import print_expr
from engine.errors import LowerError
from engine.lower.spelling.cpp_kinds import ARGS, UNKNOWN, Kinds
from engine.lower.spelling.templates import Holes, Piece, Template

# Binding strengths of C++; a weaker child gets parentheses.
_COMMA, _SELECT, _OR, _AND, _BIT_OR, _BIT_XOR, _BIT_AND, _EQUAL, _ORDER, _SHIFT, _SUM, _PRODUCT = (
    range(12)
)
_UNARY, _POSTFIX, _ATOM = 12, 13, 14
_BINARY = {
    "|": _BIT_OR, "^": _BIT_XOR, "&": _BIT_AND, "<<": _SHIFT, ">>": _SHIFT, "+": _SUM, "-": _SUM,
    "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip
_COMPARE = {"==": _EQUAL, "!=": _EQUAL, "<": _ORDER, "<=": _ORDER, ">": _ORDER, ">=": _ORDER}
_PLACES = {"operand": _SELECT, "template": _SUM, "atom": _POSTFIX}
_UNARY_SIGN = {"-": "-", "not": "!", "~": "~"}
C_TYPES = {"i32": "int", "i64": "long long", "f32": "float", "bool": "bool"}

_CXX_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t "
    "char32_t class compl concept const consteval constexpr constinit const_cast continue co_await "
    "co_return co_yield decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept not "
    "not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename union unsigned using virtual void "
    "volatile wchar_t while xor xor_eq blockIdx blockDim gridDim threadIdx warpSize"
)
CXX_WORDS = frozenset(_CXX_WORDS.split())


@dataclass(slots=True)
class Names:
    """The C++ names of one function's CuIR names.

    A name keeps the spelling that the source has for it; a new one keeps its own unless C++ or the
    headers have it already.
    """

    reserved: frozenset[str]
    spelled: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        return self.spelled.get(name, name)

    def choose(self, name: str, taken: frozenset[str] = frozenset()) -> str:
        """A C++ name for a new variable. `taken` are further names that it must not have."""
        chosen = name
        while chosen in self.reserved | CXX_WORDS | taken:
            chosen += "_"
        return chosen


@dataclass(frozen=True, slots=True)
class Emitter:
    """Writes the expressions of one function.

    `reuse` gives source text for a subexpression that stands in the source already, with its
    binding strength, so that the expert's own writing stays.
    """

    kinds: Kinds
    names: Names
    functions: frozenset[str]
    stream: str = "stream"
    reuse: Callable[[Expr], tuple[str, int] | None] | None = None

    def text(self, expr: Expr, strength: int = _SELECT) -> str:
        """`expr` as C++, in parentheses when it binds weaker than `strength`."""
        text, own = self.reused(expr) or self.write(expr)
        return f"({text})" if own < strength else text

    def reused(self, expr: Expr) -> tuple[str, int] | None:
        return self.reuse(expr) if self.reuse is not None else None

    def write(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Num(value):
                return number(value)
            case Name(id):
                return self.name(id), _ATOM
            case Str(value):
                raise LowerError(f"a text has no place in a kernel: {value!r}")
            case Attr(base, field_name):
                return f"{self.text(base, _POSTFIX)}.{field_name}", _POSTFIX
            case Unary(op, operand):
                inner = self.text(operand, _UNARY)
                # `--x` is another operator.
                space = " " if op == "-" and inner.startswith("-") else ""
                if space:
                    return f"-({inner})", _UNARY
                return f"{_UNARY_SIGN[op]}{inner}", _UNARY
            case Binary(op, left, right):
                return self.binary(op, left, right)
            case Compare(op, left, right):
                own = _COMPARE[op]
                # C++ binds `<` tighter than `==`; both sides are made plain to a reader.
                return f"{self.text(left, _SHIFT)} {op} {self.text(right, _SHIFT)}", own
            case Bool(op, left, right):
                own, sign = (_AND, "&&") if op == "and" else (_OR, "||")
                # Compilers warn about && inside || without parentheses; readers thank for them.
                need = _BIT_OR if op == "or" else own
                sides = [
                    self.side(left, need, own, op),
                    self.side(right, max(need, own + 1), None, op),
                ]
                return f"{sides[0]} {sign} {sides[1]}", own
            case Select(cond, then, other):
                parts = (self.text(cond, _OR), self.text(then, _OR), self.text(other, _SELECT))
                return f"{parts[0]} ? {parts[1]} : {parts[2]}", _SELECT
            case Call() | Index():
                return self.op(expr)
        raise LowerError(f"`{print_expr(expr)}` cannot stand here in C++")

    def side(self, expr: Expr, need: int, same: int | None, op: str) -> str:
        """An operand of a connective: a chain of the same one goes on without parentheses."""
        if same is not None and isinstance(expr, Bool) and expr.op == op:
            return self.text(expr, same)
        return self.text(expr, need)

    def name(self, id: str) -> str:
        if id in self.kinds.locals:
            return self.names.of(id)
        symbol = self.kinds.templates.names.get(id)
        if symbol is not None:
            return symbol.lower or symbol.name
        if id in self.functions or id == ARGS:
            return self.names.of(id)
        raise LowerError(
            f"nothing is named {id} here",
            fix="assign it before it is read, or name a field: args.x",
        )

    def binary(self, op: str, left: Expr, right: Expr) -> tuple[str, int]:
        kinds = (self.kinds.of(left), self.kinds.of(right))
        text = f"`{print_expr(Binary(op, left, right))}`"
        floating = "f32" in kinds
        if op == "/" and not floating and UNKNOWN not in kinds:
            raise LowerError(
                f"{text} divides two whole numbers, where C++ would truncate",
                fix="write f32(a) / f32(b), or a // b",
            )
        if op in ("//", "%", "&", "|", "^", "<<", ">>") and floating:
            raise LowerError(f"{text} is an operation on whole numbers", fix="cast with i32(...)")
        own = _BINARY[op]
        sign = "/" if op == "//" else op
        # & | ^ << >> mix with arithmetic in ways that nobody remembers.
        need = own if own >= _SUM else _UNARY
        need_right = own + 1 if own >= _SUM else _UNARY
        return f"{self.text(left, need)} {sign} {self.text(right, need_right)}", own

    # --- calls -------------------------------------------------------------------------------

    def op(self, expr: Call | Index) -> tuple[str, int]:
        if isinstance(expr, Index) and isinstance(expr.base, Name):
            id = expr.base.id
            if self.kinds.layout(id) or (id in self.functions and id not in self.kinds.locals):
                inner = ", ".join(self.text(e, _SUM) for e in expr.index)
                return f"{self.name(id)}<{inner}>", _ATOM
        if isinstance(expr, Call):
            plain = self.call(expr)
            if plain is not None:
                return plain
        found = self.kinds.templates.find(expr, self.kinds.has_kind)
        if found is None:
            what = expr.fn if isinstance(expr, Call) else print_expr(expr)
            raise LowerError(
                f"no template writes `{print_expr(expr)}` as C++",
                fix=f"declare {what} in engine/cuir/ops, with its C++ in `lower` (docs/lower.md)",
            )
        return self.filled(*found), _POSTFIX

    def call(self, expr: Call) -> tuple[str, int] | None:
        """Casts, scalar functions, and calls of the module's own functions."""
        if expr.kwargs:
            return None
        if expr.fn in self.functions:
            head = self.names.of(expr.fn)
            if expr.params:
                head += f"<{', '.join(self.text(p, _SUM) for p in expr.params)}>"
            return f"{head}({', '.join(self.text(a) for a in expr.args)})", _POSTFIX
        if expr.params:
            return None
        cast = self.kinds.templates.casts.get(expr.fn)
        if cast is not None and len(expr.args) == 1:
            return f"static_cast<{cast}>({self.text(expr.args[0])})", _POSTFIX
        scalar = self.kinds.templates.scalars.get(expr.fn)
        if scalar is None:
            return None
        if len(expr.args) != scalar.arity:
            raise LowerError(f"`{print_expr(expr)}`: {expr.fn} takes {scalar.arity} operands")
        return f"{expr.fn}({', '.join(self.text(a) for a in expr.args)})", _POSTFIX

    def filled(self, template: Template, holes: Holes) -> str:
        out: list[str] = []
        for piece in template.pieces:
            if not piece.hole:
                text = piece.text
                # An empty list takes its comma with it.
                if out and out[-1] == "" and text.startswith(", "):
                    text = text[2:]
                elif out and out[-1] == "" and len(out) > 1 and out[-2].endswith(", "):
                    out[-2] = out[-2][:-2]
                out.append(text)
            elif piece.hole == "stream" and "stream" not in holes:
                out.append(self.stream)
            else:
                out.append(self.hole(piece, template, holes))
        return "".join(out)

    def hole(self, piece: Piece, template: Template, holes: Holes) -> str:
        value = holes[piece.hole]
        strength = _PLACES[piece.place]
        if isinstance(value, tuple):
            return ", ".join(self.text(e, strength) for e in value)
        if isinstance(value, Lambda):
            return self.lambda_(value, self.kinds.lambda_kinds(template, holes, value))
        return self.text(value, strength)

    def lambda_(self, fn: Lambda, kinds: list[str]) -> str:
        """`[&](float x, int i) { return e; }`."""
        read = names_in(fn.body) - set(fn.params)
        outside = frozenset(self.names.of(name) for name in read)
        spelled = dict(self.names.spelled)
        words = []
        for param, kind in zip(fn.params, kinds, strict=True):
            chosen = self.names.choose(param, outside)
            spelled[param] = chosen
            words.append(f"{C_TYPES[kind]} {chosen}")
        inside = Emitter(
            self.kinds.inside(dict(zip(fn.params, kinds, strict=True))),
            Names(self.names.reserved, spelled),
            self.functions,
            self.stream,
            self.reuse,
        )
        return f"[&]({', '.join(words)}) {{ return {inside.text(fn.body)}; }}"


def number(value: int | float | bool) -> tuple[str, int]:
    """A literal: `1`, `1.0f`, `true`, `-INFINITY`."""
    if isinstance(value, bool):
        return ("true" if value else "false"), _ATOM
    if isinstance(value, int):
        text = str(value)
        if not -(2**31) < value < 2**31:
            text += "LL"
    elif math.isnan(value):
        text = "NAN"
    elif math.isinf(value):
        text = "INFINITY" if value > 0 else "-INFINITY"
    else:
        text = f"{value!r}f"
    return text, _UNARY if text.startswith("-") else _ATOM


def strength_of(expr: Expr) -> int:
    """How tightly `expr` binds when it is written without parentheses."""
    match expr:
        case Num(value):
            return number(value)[1]
        case Unary():
            return _UNARY
        case Binary(op):
            return _BINARY[op]
        case Compare(op):
            return _COMPARE[op]
        case Bool(op):
            return _AND if op == "and" else _OR
        case Select():
            return _SELECT
        case Name() | Str():
            return _ATOM
    return _POSTFIX


def child_strength(parent: Expr, index: int) -> int:
    """What the child at `index` (as in `nodes.children`) needs, in the place that it has."""
    match parent:
        case Unary():
            return _UNARY
        case Binary(op):
            own = _BINARY[op]
            return (own + index) if own >= _SUM else _UNARY
        case Compare():
            return _SHIFT
        case Bool(op):
            if op == "or":
                return _OR if index == 0 and _same(parent.left, op) else _BIT_OR
            return _AND + index
        case Select():
            return _SELECT if index == 2 else _OR
        case Attr():
            return _POSTFIX
        case Index():
            return _POSTFIX if index == 0 else _SELECT
        case Call(params=params) if index < len(params):
            return _SUM
    return _SELECT


def _same(expr: Expr, op: str) -> bool:
    return isinstance(expr, Bool) and expr.op == op
