"""From C++ expression trees to CuIR expressions, with their kinds and source ranges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
    Path,
    Select,
    Unary,
    children,
)
from engine.cuir.static.conversions import NUMBERS, RING, UNSIGNED, common, never_negative, promoted
from engine.lift.cpp.provenance import Range
from engine.lift.cpp.syntax import Node
from engine.lift.names.catalogue import Pattern, fill, match
from engine.lift.names.scope import C_TYPES, Local, Program, Scope, Signature, safe

_COMPARE = frozenset(["<", "<=", ">", ">=", "==", "!="])
_INT_ONLY = frozenset(["%", "&", "|", "^", "<<", ">>"])
_NAMED_ONLY = frozenset({"view", "stages", "barriers", "words", "stream"})  # always variables
_UNSIGNED = (
    "arithmetic without a sign: write static_cast<int>(..) around blockIdx, gridDim and sizeof"
)
_CASTS = {"i32": "i32", "i64": "i64", "f32": "f32", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class LambdaShape:
    """What an op passes to its lambda: first the elements of its tiles, then up to so many
    coordinates (a row vector has one, a tile two); and whether it takes a condition."""

    elements: tuple[str, ...]
    coordinates: int
    condition: bool

    def fits(self, kinds: tuple[str, ...]) -> bool:
        extra = kinds[len(self.elements) :]
        counts = range(1, self.coordinates + 1) if self.coordinates else (0,)
        same = kinds[: len(self.elements)] == self.elements
        return same and len(extra) in counts and set(extra) <= {"i32"}


class Unknown(Exception):
    """This C++ has no meaning in CuIR; `args[0]` says why, in words for the person."""


@dataclass(frozen=True, slots=True)
class Typed:
    expr: Expr
    kind: str


@dataclass
class Translator:
    """Translates the expressions of one function."""

    program: Program
    scope: Scope
    ranges: dict[int, Range] = field(default_factory=dict)
    inner: dict[int, Range] = field(default_factory=dict)
    # Where the compiler itself refuses what is false, numbers without a sign may be compared.
    compiles: bool = False
    # id() names an object only while it lives.
    alive: list[Expr] = field(default_factory=list)

    def note(self, expr: Expr, node: Node) -> None:
        self.ranges[id(expr)] = Range(node.start, node.end)
        self.alive.append(expr)

    def write_ranges(
        self, parts: dict[tuple[Path, str], Range], path: Path, role: str, expr: Expr
    ) -> None:
        """Writes the ranges of `expr` and everything in it under `role` (see provenance.py)."""
        pending = [(role, expr)]
        while pending:
            name, node = pending.pop()
            found = self.ranges.get(id(node))
            if found is not None:
                parts[path, name] = found
            if id(node) in self.inner:
                parts[path, f"{name}/params"] = self.inner[id(node)]
            pending += [(f"{name}/{at}", child) for at, child in enumerate(children(node))]

    def translate(self, node: Node) -> Typed:
        """The meaning of `node`. Raises `Unknown`."""
        typed = self.meaning(node)
        self.note(typed.expr, node)
        return typed

    def meaning(self, node: Node) -> Typed:
        local = self.scope.find(node.text) if node.kind == "name" else None
        if local is not None:
            if local.kind == "opaque":
                raise Unknown(f"`{node.text}` comes from an opaque op")
            return Typed(replace(local.cuir), local.kind)
        hidden = self.scope.find(named(node)) is not None
        for pattern in self.program.catalogue.candidates(node, only_general=hidden):
            found = self.instance(pattern, node)
            if found is not None:
                return found
        match node.kind:
            case "number":
                return number(node.text)
            case "name":
                return self.name(node)
            case "template":
                return self.template(node)
            case "member":
                return self.member(node)
            case "unary":
                return self.unary(node)
            case "binary":
                return self.binary(node)
            case "ternary":
                return self.ternary(node)
            case "cast":
                return self.cast(node)
            case "lambda":
                return self.lambda_(node)
            case "call":
                return self.call(node)
        raise Unknown(f"{node.kind} has no meaning here")

    # --- catalogue ---------------------------------------------------------------------------

    def instance(self, pattern: Pattern, node: Node) -> Typed | None:
        """The pattern's CuIR when `node` is an instance of it and its holes have their kinds."""
        found: dict[str, Node | tuple[Node, ...]] = {}
        if not match(pattern.tree, node, found):
            return None
        filled: dict[str, Expr | tuple[Expr, ...]] = {}
        kinds: dict[str, str] = {}
        items: dict[str, tuple[str, ...]] = {}
        scalars: list[str] = []
        for hole, value in found.items():
            if isinstance(value, tuple):
                many = [self.translate(v) for v in value]
                filled[hole] = tuple(t.expr for t in many)
                items[hole] = tuple(t.kind for t in many)
                scalars += items[hole]
                continue
            wanted = pattern.constraints.get(hole)
            if not self.may_be(value, wanted):
                return None
            if wanted == "lambda":
                elements = tuple(map(element, items.get(pattern.elements, ())))
                where = len(items.get("where", ()))
                typed = self.lambda_(value, LambdaShape(elements, where, pattern.condition))
                self.note(typed.expr, value)
            else:
                typed = self.translate(value)
            if wanted in NUMBERS:
                typed = self.converted(typed, wanted)
            elif wanted is not None and typed.kind.split(":")[0] != wanted:
                return None
            filled[hole] = typed.expr
            kinds[hole] = typed.kind
            scalars.append(typed.kind)
        return Typed(fill(pattern.cuir, filled), self.result(pattern, filled, kinds, scalars))

    def may_be(self, node: Node, wanted: str | None) -> bool:
        """Whether it is worth translating `node` for a hole of kind `wanted`."""
        if wanted == "lambda":
            return node.kind == "lambda"
        if wanted in _NAMED_ONLY:
            local = self.scope.find(node.text) if node.kind == "name" else None
            return local is not None and local.kind.split(":")[0] == wanted
        return True

    def result(
        self,
        pattern: Pattern,
        filled: dict[str, Expr | tuple[Expr, ...]],
        kinds: dict[str, str],
        scalars: list[str],
    ) -> str:
        if pattern.type == "same":
            kind = common(scalars)
            if kind is None:
                raise Unknown(f"{pattern.cxx} takes scalars")
            if UNSIGNED & set(scalars) and not self.compiles:
                raise Unknown(_UNSIGNED)
            return kind
        if pattern.type.startswith("view:"):
            written = filled[pattern.type[6:-1]]
            name = written.id if isinstance(written, Name) else ""
            # Elements of T arrive as float, as the primitive returns them.
            return f"view:{name if name in NUMBERS else 'f32'}"
        base, _, of = pattern.type.partition(":")
        if of.startswith("{"):
            found = element(kinds[of[1:-1]])
            return found if base == "element" else f"{base}:{found}"
        return pattern.type

    # --- names -------------------------------------------------------------------------------

    def name(self, node: Node) -> Typed:
        catalogue = self.program.catalogue
        if node.text == self.scope.args:
            return Typed(Name("args"), "args")
        if node.text in ("true", "false"):
            return Typed(Num(node.text == "true"), "bool")
        for table in (catalogue.constants, catalogue.types):
            if node.text in table:
                return Typed(replace(table[node.text].cuir), table[node.text].kind)
        if node.text in self.program.functions:
            return Typed(Name(safe(node.text)), "kernel")
        raise Unknown(f"unknown name `{node.text}`")

    def template(self, node: Node) -> Typed:
        known = self.program.catalogue.types.get(node.text)
        if known is not None:
            args = tuple(self.translate(kid).expr for kid in node.kids)
            return Typed(Index(replace(known.cuir), args), known.kind)
        signature = self.program.functions.get(node.text)
        if signature is not None and signature.kind == "kernel":
            return Typed(Index(Name(safe(node.text)), self.consts(node, signature)), "kernel")
        raise Unknown(f"unknown template `{node.text}`")

    def consts(self, node: Node, signature: Signature) -> tuple[Expr, ...]:
        """The template arguments of one of the file's functions."""
        if len(node.kids) != len(signature.consts):
            raise Unknown(f"`{node.text}` has {len(signature.consts)} template parameters")
        out: list[Expr] = []
        for kid, kind in zip(node.kids, signature.const_kinds, strict=True):
            typed = self.translate(kid)
            if kind == "type" and typed.kind not in ("type", "layout"):
                raise Unknown(f"a {typed.kind} where `{node.text}` takes a type")
            out.append(self.converted(typed, kind).expr)
        return tuple(out)

    def member(self, node: Node) -> Typed:
        base = node.kids[0]
        if base.kind == "name" and base.text == self.scope.args:
            kind = self.program.fields.get(node.text)
            if kind is None:
                raise Unknown(f"the argument struct has no field `{node.text}`")
            return Typed(Attr(Name("args"), node.text), kind)
        raise Unknown(f"unknown field `.{node.text}`")

    # --- arithmetic --------------------------------------------------------------------------

    def scalar(self, node: Node) -> Typed:
        typed = self.translate(node)
        if typed.kind not in NUMBERS:
            raise Unknown(f"arithmetic on a {typed.kind.split(':')[0]}")
        return typed

    def compared(self, *operands: Typed) -> None:
        """Raises `Unknown` where C++ compares, divides or chooses without a sign and CuIR with one:
        `n - blockIdx.x < 0` is never true. Counts alone are the same in both."""
        if self.compiles or not UNSIGNED & {o.kind for o in operands}:
            return
        if not all(never_negative(o.expr) for o in operands):
            raise Unknown(_UNSIGNED)

    def condition(self, node: Node) -> Expr:
        """`node` as a truth value: a number stands for `!= 0`."""
        typed = self.scalar(node)
        self.compared(typed)
        if typed.kind == "bool":
            return typed.expr
        return Compare("!=", typed.expr, Num(0.0 if typed.kind == "f32" else 0))

    def unary(self, node: Node) -> Typed:
        if node.text == "!":
            return Typed(Unary("not", self.condition(node.kids[0])), "bool")
        operand = self.scalar(node.kids[0])
        kind = common([operand.kind]) or "i32"
        if node.text == "+":
            return Typed(operand.expr, kind)
        if node.text == "~":
            if kind == "f32":
                raise Unknown("`~` on a float")
            return Typed(Unary("~", operand.expr), kind)
        if isinstance(operand.expr, Num) and not isinstance(operand.expr.value, bool):
            return Typed(Num(-operand.expr.value), kind)
        return Typed(Unary("-", operand.expr), kind)

    def binary(self, node: Node) -> Typed:
        if node.text in ("&&", "||"):
            left, right = (self.condition(kid) for kid in node.kids)
            return Typed(Bool("and" if node.text == "&&" else "or", left, right), "bool")
        if node.text in ("==", "!="):
            # Statuses and types compare too; everything else that compares is a number.
            sides = [self.translate(kid) for kid in node.kids]
            if sides[0].kind == sides[1].kind and sides[0].kind in ("status", "type"):
                return Typed(Compare(node.text, sides[0].expr, sides[1].expr), "bool")
        left_typed, right_typed = (self.scalar(kid) for kid in node.kids)
        if node.text in _COMPARE:
            self.compared(left_typed, right_typed)
            return Typed(Compare(node.text, left_typed.expr, right_typed.expr), "bool")
        return self.arithmetic(node.text, left_typed, right_typed)

    def arithmetic(self, sign: str, left: Typed, right: Typed) -> Typed:
        kind = common([left.kind, right.kind])
        if kind is None:
            raise Unknown(f"`{sign}` on what is no scalar")
        if kind == "f32" and sign in _INT_ONLY:
            raise Unknown(f"`{sign}` on floats")
        if sign in ("<<", ">>"):
            kind = promoted(left.kind)
            self.compared(right)
            if sign == ">>":
                self.compared(left)
        elif sign in RING:
            self.widened((left, right), kind)
        else:
            self.compared(left, right)
        sign = "//" if sign == "/" and kind != "f32" else sign
        return Typed(Binary(sign, left.expr, right.expr), kind)

    def widened(self, operands: tuple[Typed, ...], kind: str) -> None:
        """Raises `Unknown` where a number without a sign is widened to `kind`: what is below 0 in
        CuIR is a large one there."""
        for operand in operands:
            if operand.kind in UNSIGNED and operand.kind != kind:
                self.compared(operand)

    def ternary(self, node: Node) -> Typed:
        cond = self.condition(node.kids[0])
        then, other = self.translate(node.kids[1]), self.translate(node.kids[2])
        kind = then.kind if then.kind == other.kind else common([then.kind, other.kind])
        if kind is None or kind not in (*NUMBERS, "shared", "region", "barrier", "tensor"):
            raise Unknown("`?:` chooses between scalars")
        self.widened((then, other), kind)
        return Typed(Select(cond, then.expr, other.expr), kind)

    def cast(self, node: Node) -> Typed:
        kind = self.type_kind(node.kids[0])
        value = self.translate(node.kids[1])
        if kind not in _CASTS or value.kind not in NUMBERS:
            raise Unknown(f"a cast to {node.kids[0].text}")
        self.stored(value, kind)
        return Typed(Call(_CASTS[kind], (value.expr,)), kind)

    def type_kind(self, node: Node) -> str:
        return C_TYPES.get(node.text, "")

    def converted(self, value: Typed, kind: str) -> Typed:
        """`value` as C++ stores it in a variable of `kind`; implicit conversions become ops."""
        if value.kind == kind or kind not in NUMBERS or value.kind not in NUMBERS:
            if kind in NUMBERS and value.kind not in NUMBERS:
                raise Unknown(f"a {value.kind.split(':')[0]} where a number is declared")
            return value
        self.stored(value, kind)
        if kind == "i32" and value.kind in UNSIGNED:
            return Typed(value.expr, kind)  # CuIR's own kind of it
        expr = value.expr
        if isinstance(expr, Num) and kind == "f32" and not isinstance(expr.value, bool):
            return Typed(Num(float(expr.value)), kind)
        if isinstance(expr, Num) and kind == "i64":
            return Typed(expr, kind)
        if kind == "bool":
            zero = Num(0.0 if value.kind == "f32" else 0)
            return Typed(Compare("!=", expr, zero), kind)
        return Typed(Call(_CASTS[kind], (expr,)), kind)

    def stored(self, value: Typed, kind: str) -> None:
        """Raises `Unknown` where C++ stores another number than CuIR: an `int` takes what is right
        modulo 2^32, everything else the number itself."""
        if kind != "i32":
            self.compared(value)

    # --- functions ---------------------------------------------------------------------------

    def lambda_(self, node: Node, shape: LambdaShape | None = None) -> Typed:
        *params, body = node.kids
        self.scope.open()
        try:
            names: list[str] = []
            kinds: tuple[str, ...] = ()
            for param in params:
                kind = self.type_kind(param.kids[0])
                if kind not in NUMBERS:
                    raise Unknown(f"a lambda's parameter of type `{param.kids[0].text}`")
                name = self.scope.fresh(param.text, shadows=True)
                self.scope.declare(param.text, Local(Name(name), kind))
                names.append(name)
                kinds += (kind,)
            inside = self.translate(body)
        finally:
            self.scope.close()
        if inside.kind not in NUMBERS or inside.kind in UNSIGNED:
            raise Unknown("a lambda returns a scalar with a sign")
        if shape is not None:
            if not shape.fits(kinds):
                wanted = ", ".join((*shape.elements, *("i32",) * shape.coordinates))
                raise Unknown(f"the lambda takes ({', '.join(kinds)}), not ({wanted})")
            if shape.condition:
                inside = self.converted(inside, "bool")
        expr = Lambda(tuple(names), inside.expr)
        if node.inner is not None:
            self.inner[id(expr)] = Range(*node.inner)
        return Typed(expr, f"lambda:{inside.kind}")

    def call(self, node: Node) -> Typed:
        callee, *args = node.kids
        if callee.kind == "name" and callee.text in C_TYPES and len(args) == 1:
            return self.cast(Node("cast", "cast", (callee, args[0]), node.start, node.end))
        signature = self.program.functions.get(callee.text)
        if callee.kind not in ("name", "template") or signature is None:
            raise Unknown(f"unknown function `{callee.text}`" if callee.text else "unknown call")
        if signature.kind == "kernel":
            raise Unknown("a kernel is launched by `run<...>`")
        if len(args) != len(signature.params):
            raise Unknown(f"`{callee.text}` is called with other parameters than it has")
        params = self.consts(callee, signature)
        values = []
        for arg, kind in zip(args, signature.params, strict=True):
            if kind == "args":
                if arg.kind != "name" or arg.text != self.scope.args:
                    raise Unknown("the argument struct is passed on as it is")
                expr: Expr = Name("args")
                self.note(expr, arg)
            else:
                expr = self.converted(self.translate(arg), kind).expr
            values.append(expr)
        return Typed(Call(safe(callee.text), tuple(values), (), params), signature.result)


def element(kind: str) -> str:
    """The kind of a view's, region's, tile's or lambda's elements; of anything else itself."""
    return kind.split(":")[-1]


def named(node: Node) -> str:
    """The name that decides what `node` means: of a call its callee, of `x.f` its base."""
    while node.kind in ("call", "index", "member"):
        node = node.kids[0]
    return node.text if node.kind in ("name", "template") else ""


def number(text: str) -> Typed:
    """A C++ literal. Doubles and unsigned ones are unknown: they change the arithmetic around."""
    plain = text.replace("'", "").lower()
    hexadecimal = plain.startswith("0x")
    try:
        if ("p" in plain and hexadecimal) or (not hexadecimal and _floating(plain)):
            if not plain.endswith("f"):
                raise Unknown(f"a double literal: write `{text}f`")
            digits = plain[:-1]
            return Typed(Num(float.fromhex(digits) if hexadecimal else float(digits)), "f32")
        digits = plain.rstrip("l")
        if digits.endswith("u"):
            raise Unknown("an unsigned literal")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        value = int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        raise Unknown(f"the literal `{text}`") from None
    if value > 2**31 - 1:
        return Typed(Num(value), "i64")
    if len(digits) < len(plain):
        return Typed(Call("i64", (Num(value),)), "i64")
    return Typed(Num(value), "i32")


def _floating(plain: str) -> bool:
    if plain.startswith("0b"):
        return False
    return "." in plain or "e" in plain or plain.endswith("f")
