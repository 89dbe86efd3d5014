"""Parse CuIR text. Python's own `ast` gives the syntax; nothing is ever executed.

Every construct that CuIR does not have is a `CuirError` with line and column.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import NoReturn

from engine.cuir.functions import MOST
from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    Field,
    For,
    Function,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Opaque,
    Param,
    Path,
    Return,
    Select,
    Slice,
    Stmt,
    Str,
    Tuple,
    Unary,
)  # fmt: skip
from engine.errors import CuirError, Where

FIELD_TYPES = ("tensor", "i32", "i64", "f32")
FUNCTION_KINDS = ("host", "kernel", "device")

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_UNARY = {ast.USub: "-", ast.Not: "not", ast.Invert: "~"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A module, and the line of every statement and function."""

    module: Module
    lines: dict[Path, int]


def parse_module(text: str, file: str = "<cuir>") -> Module:
    """The module in `text`. Raises `CuirError` with line and column."""
    return parse_with_tables(text, file).module


def parse_with_tables(text: str, file: str = "<cuir>") -> Parsed:
    """The module with its line numbers."""
    return Parser(text, file).module()


def parse_expr(text: str, file: str = "<expr>") -> Expr:
    """One expression, as it would stand inside a CuIR statement."""
    parser = Parser(text, file)
    body = parser.tree.body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise CuirError("expected one expression", where=Where(file, 1, 1))
    return parser.expr(body[0].value)


def parse_block(text: str, file: str = "<hunk>") -> tuple[Stmt, ...]:
    """A block of statements (a hunk's text), indentation removed by the caller."""
    parser = Parser(text, file)
    return parser.block(parser.tree.body, ("",))


class Parser:
    """One text read; `engine.cuir.text.quote` adds holes to what may stand in it."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        text = text.removeprefix("\ufeff")  # the byte-order mark of some editors
        self.text_lines = text.split("\n")
        self.lines: dict[Path, int] = {}
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line, column = getattr(error, "lineno", None), getattr(error, "offset", None)
            reason = getattr(error, "msg", None) or str(error)
            if isinstance(error, RecursionError | MemoryError):  # often without a word
                reason, line = "an expression is nested too deeply to be read", self.deepest()
            elif "\0" in text:
                before = text.partition("\0")[0]
                line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
                reason = "a null byte, which no text holds"
            elif "integer string conversion" in reason:
                reason = "a whole number of more than 64 bits"
            raise CuirError(
                f"not CuIR: {reason}", where=Where(file, line, column or None)
            ) from None

    def deepest(self) -> int | None:
        """The line that cannot be read for its nesting, where it is one line by itself."""
        for number, line in enumerate(self.text_lines, 1):
            try:
                ast.parse(line.strip())
            except (RecursionError, MemoryError):
                return number
            except (SyntaxError, ValueError):
                continue
        return None

    def fail(self, node: ast.AST, message: str, fix: str | None = None) -> NoReturn:
        line = getattr(node, "lineno", None)
        column = getattr(node, "col_offset", None)
        if line is not None and column is not None:
            # ast counts UTF-8 bytes; people and editors count code points.
            raw = self.text_lines[line - 1].encode()[:column]
            column = len(raw.decode(errors="ignore")) + 1
        raise CuirError(message, where=Where(self.file, line, column), fix=fix)

    # --- module ------------------------------------------------------------------------------

    def module(self) -> Parsed:
        spec: tuple[tuple[str, Expr], ...] | None = None
        fields: tuple[Field, ...] | None = None
        functions: list[Function] = []
        for node in self.tree.body:
            match node:
                case ast.Expr(ast.Call(ast.Name("specialisation"), [], keywords)) if spec is None:
                    spec = tuple((self.keyword(k), self.expr(k.value)) for k in keywords)
                case ast.ClassDef(name="Args", bases=[], keywords=[], decorator_list=[]) if (
                    fields is None
                ):
                    fields = self.fields(node)
                case ast.FunctionDef():
                    functions.append(self.function(node))
                case _:
                    self.fail(node, "a module holds specialisation(...), class Args and functions")
        names = [f.name for f in functions]
        for function in functions:
            if names.count(function.name) > 1:
                raise CuirError(
                    f"function {function.name} is defined twice", where=Where(self.file)
                )
        module = Module(spec or (), fields or (), tuple(functions))
        return Parsed(module, self.lines)

    def fields(self, node: ast.ClassDef) -> tuple[Field, ...]:
        out: list[Field] = []
        for item in node.body:
            match item:
                case ast.AnnAssign(ast.Name(name), ast.Name(kind), None) if kind in FIELD_TYPES:
                    if any(f.name == name for f in out):
                        self.fail(item, f"field {name} is declared twice")
                    out.append(Field(name, kind))
                case ast.Pass():
                    pass
                case _:
                    self.fail(
                        item, f"a field is `name: type` with a type of {', '.join(FIELD_TYPES)}"
                    )
        return tuple(out)

    def function(self, node: ast.FunctionDef) -> Function:
        options: tuple[tuple[str, Expr], ...] = ()
        match node.decorator_list:
            case [ast.Name(kind)]:
                pass
            case [ast.Call(ast.Name(kind), [], keywords)]:
                options = tuple((self.keyword(k), self.expr(k.value)) for k in keywords)
            case _:
                self.fail(node, f"function {node.name} needs one of @host, @kernel, @device")
        if kind not in FUNCTION_KINDS:
            self.fail(node, f"unknown decorator @{kind}")
        a = node.args
        if a.posonlyargs or a.vararg or a.kwarg or a.defaults or any(a.kw_defaults):
            self.fail(node, "parameters have no defaults and no stars but the one before constants")
        params = []
        for arg in a.args:
            if arg.annotation is None:
                params.append(Param(arg.arg))
            elif isinstance(arg.annotation, ast.Name):
                params.append(Param(arg.arg, arg.annotation.id))
            else:
                self.fail(arg, "a parameter's type is one name")
        consts = tuple(arg.arg for arg in a.kwonlyargs)
        path: Path = (node.name,)
        self.note(path, node)
        body = self.block(node.body, path)
        return Function(kind, node.name, tuple(params), consts, options, body)

    # --- statements --------------------------------------------------------------------------

    def note(self, path: Path, node: ast.stmt) -> None:
        self.lines[path] = node.lineno

    def block(self, nodes: list[ast.stmt], prefix: Path) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for node in nodes:
            if isinstance(node, ast.Pass):
                continue
            path = (*prefix, len(out))
            self.note(path, node)
            out.append(self.stmt(node, path))
        return tuple(out)

    def stmt(self, node: ast.stmt, path: Path) -> Stmt:
        match node:
            case ast.Assign([ast.Name(target)], value):
                return Assign(target, self.expr(value))
            case ast.Expr(ast.Call(ast.Name("opaque")) as call):
                return self.opaque(call, ())
            case ast.Expr(ast.Call() as call):
                done = self.expr(call)
                assert isinstance(done, Call)
                return Do(done)
            case ast.With([ast.withitem(ast.Call(ast.Name("opaque")) as call, None)], body):
                return self.opaque(call, self.block(body, (*path, "meaning")))
            case ast.For(ast.Name(var), ast.Call(ast.Name("range"), args, []), body, []) if (
                1 <= len(args) <= 3
            ):
                bounds = [self.expr(a) for a in args]
                start = bounds[0] if len(bounds) > 1 else Num(0)
                stop = bounds[1] if len(bounds) > 1 else bounds[0]
                step = bounds[2] if len(bounds) > 2 else Num(1)
                return For(var, start, stop, step, self.block(body, (*path, "body")))
            case ast.If(test, body, orelse):
                then = self.block(body, (*path, "then"))
                return If(self.expr(test), then, self.block(orelse, (*path, "other")))
            case ast.Return(value):
                return Return(None if value is None else self.expr(value))
        self.fail(node, f"CuIR has no {type(node).__name__} statement")

    def opaque(self, call: ast.Call, meaning: tuple[Stmt, ...]) -> Opaque:
        named = {k.arg: k.value for k in call.keywords}
        match call.args:
            case [ast.Constant(str() as text)] if set(named) <= {"reads", "writes"}:
                lists = {key: self.names(value) for key, value in named.items() if key}
                return Opaque(text, lists.get("reads", ()), lists.get("writes", ()), meaning)
        self.fail(call, "an opaque op is opaque('text', reads=[...], writes=[...])")

    def names(self, node: ast.expr) -> tuple[str, ...]:
        match node:
            case ast.List(items):
                texts = [i.value for i in items if isinstance(i, ast.Constant)]
                names = tuple(t for t in texts if isinstance(t, str))
                if len(names) == len(items):
                    return names
        self.fail(node, "expected a list of names in quotes")

    # --- expressions -------------------------------------------------------------------------

    def keyword(self, node: ast.keyword) -> str:
        if node.arg is None:
            self.fail(node.value, "`**` does not exist in CuIR")
        return node.arg

    def expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(int() as value) if value > MOST:  # a minus is an operator of its own
                self.fail(node, "a whole number of more than 64 bits")
            case ast.Constant(bool() | int() | float() as value):
                return Num(value)
            case ast.Constant(str() as value):
                return Str(value)
            case ast.Name("inf"):
                return Num(math.inf)
            case ast.Name("nan"):
                return Num(math.nan)
            case ast.Name(id):
                return Name(id)
            case ast.Attribute(ast.Name("args"), field):
                return Attr(Name("args"), field)
            case ast.Call(fn, args, keywords):
                return self.call(node, fn, args, keywords)
            case ast.Subscript(base, index):
                items = index.elts if isinstance(index, ast.Tuple) else [index]
                return Index(self.expr(base), tuple(self.index(i) for i in items))
            case ast.UnaryOp(op, operand) if type(op) in _UNARY:
                inner = self.expr(operand)
                if (
                    isinstance(op, ast.USub)
                    and isinstance(inner, Num)
                    and not isinstance(inner.value, bool)
                ):
                    return Num(-inner.value)
                return Unary(_UNARY[type(op)], inner)
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return Binary(_BINARY[type(op)], self.expr(left), self.expr(right))
            case ast.Compare(left, ops, comparators) if all(type(o) in _COMPARE for o in ops):
                return self.compare(left, ops, comparators)
            case ast.BoolOp(op, values):
                name = "and" if isinstance(op, ast.And) else "or"
                out = self.expr(values[0])
                for term in values[1:]:
                    out = Bool(name, out, self.expr(term))
                return out
            case ast.IfExp(test, body, orelse):
                return Select(self.expr(test), self.expr(body), self.expr(orelse))
            case ast.Lambda(a, body):
                if a.posonlyargs or a.vararg or a.kwonlyargs or a.kwarg or a.defaults:
                    self.fail(node, "a lambda has plain parameters only")
                return Lambda(tuple(p.arg for p in a.args), self.expr(body))
            case ast.List(items):
                return Tuple(tuple(self.expr(i) for i in items))
            case ast.Starred():
                self.fail(node, "`*` does not exist in CuIR")
        self.fail(node, f"CuIR has no {type(node).__name__} expression")

    def index(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Slice):
            if node.lower is None or node.upper is not None or node.step is not None:
                self.fail(node, "a tile is written `start:`; its extent comes from the other side")
            return Slice(self.expr(node.lower))
        return self.expr(node)

    def compare(self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> Expr:
        # a < b < c reads as (a < b) and (b < c); the middle is a pure expression.
        out: Expr | None = None
        for op, right in zip(ops, rest, strict=True):
            link = Compare(_COMPARE[type(op)], self.expr(left), self.expr(right))
            out = link if out is None else Bool("and", out, link)
            left = right
        assert out is not None
        return out

    def call(
        self, node: ast.expr, fn: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> Call:
        params: tuple[Expr, ...] = ()
        match fn:
            case ast.Name(name):
                pass
            case ast.Subscript(ast.Name(name), index):
                items = index.elts if isinstance(index, ast.Tuple) else [index]
                params = tuple(self.expr(i) for i in items)
            case _:
                self.fail(node, "only a name, or a name with constants in brackets, can be called")
        return Call(
            name,
            tuple(self.expr(a) for a in args),
            tuple((self.keyword(k), self.expr(k.value)) for k in keywords),
            params,
        )
