"""The whole table of C++'s conversions: every operator and function on every pair of kinds.

One compiled file judges four things of each expression: its value as CuIR computes it (on numbers
and on tensors), its type as CuIR's checks and the lowerer tell it, and that lifting the C++ gives
the expression back. Counts (`block_id`, `sizeof`) are unsigned there, as CUDA's are.
"""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.functions import TooWide
from engine.cuir.nodes import (
    Assign,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Function,
    Module,
    Name,
    Num,
    Param,
    Select,
    Unary,
)
from engine.cuir.ops.spec import Mismatch
from engine.cuir.printer import print_expr
from engine.cuir.scalar import Compiler
from engine.cuir.static.conversions import UNSIGNED
from engine.cuir.static.infer import Typer
from engine.cuir.types import Scalar
from engine.lift.cpp.syntax import parse_expression
from engine.lift.cpp.tokens import Tokens
from engine.lift.functions.expressions import Translator
from engine.lift.names.catalogue import default_catalogue
from engine.lift.names.scope import Local, Program, Scope
from engine.lower.spelling.cpp_kinds import module_kinds
from engine.lower.spelling.emit import Emitter, Names
from engine.lower.spelling.legal import legal
from engine.lower.spelling.templates import default_templates

CC = shutil.which("g++") or shutil.which("c++")
TEMPLATES = default_templates()
BLOCK = Call("block_id", (Num(0),))
SIZE = Call("sizeof", (Name("f16"),))

# name: (kind, values); the two counts are expressions of their own.
NAMES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "i": ("i32", (-7, 3, 16_777_217)),
    "k": ("i32", (-2, 0, 5)),
    "w": ("i64", (-7, 3, 2**33 + 1)),
    "t": ("bool", (True, False, True)),
    "x": ("f32", (-2.5, 0.0, 16_777_216.0)),
}
OPERANDS: tuple[Expr, ...] = (*(Name(n) for n in NAMES), BLOCK, SIZE)
COUNTS = {BLOCK: (0, 1, 70_000), SIZE: (2, 2, 2)}
_C = {"i32": "int", "i64": "long long", "bool": "bool", "f32": "float"}
_BITS = {"i32": 32, "i64": 64}
_HEAD = """
#include <cmath>
#include <cstdio>
#include <algorithm>
using std::abs; using std::min; using std::max;
struct { unsigned x; } blockIdx;
struct f16 { short bits; };
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline int min(bool a, bool b) { return a < b ? a : b; }
inline int max(bool a, bool b) { return a < b ? b : a; }
inline int abs(bool a) { return a; }
template <typename I> constexpr I ceil_div(I a, I b) { return (a + b - 1) / b; }
constexpr int floor_div(int a, int b) {
  return a / b - ((a % b != 0 && ((a < 0) != (b < 0))) ? 1 : 0);
}
constexpr int floor_mod(int a, int b) {
  return a % b + ((a % b != 0 && ((a < 0) != (b < 0))) ? b : 0);
}
static void show(int v) { std::printf("i32 %d\\n", v); }
static void show(bool v) { std::printf("bool %d\\n", v ? 1 : 0); }
static void show(long long v) { std::printf("i64 %lld\\n", v); }
static void show(unsigned v) { std::printf("u32 %u\\n", v); }
static void show(unsigned long v) { std::printf("u64 %lu\\n", v); }
static void show(float v) { std::printf("f32 %a\\n", v); }
"""


def expressions() -> Iterator[Expr]:
    for a in OPERANDS:
        yield Unary("-", a)
        yield Unary("~", a)
        yield Unary("not", a)
        yield Call("abs", (a,))
        for cast in ("i32", "i64", "f32", "bool"):
            yield Call(cast, (a,))
    for a, b in itertools.product(OPERANDS, OPERANDS):
        for op in ("+", "-", "*", "/", "//", "%", "&", "|", "^"):
            yield Binary(op, a, b)
        for op in ("<", "<=", ">", ">=", "==", "!="):
            yield Compare(op, a, b)
        for op in ("and", "or"):
            yield Bool(op, a, b)
        for fn in ("min", "max", "ceil_div", "floor_div", "floor_mod"):
            yield Call(fn, (a, b))
        if (a == Name("x")) == (b == Name("x")):  # CuIR's number stays whole where it is chosen
            yield Select(Name("t"), a, b)
        # What a sign would change, one operation further on.
        yield Compare("<", Binary("-", a, b), Num(0))
        yield Binary("//", Binary("-", a, b), Num(3))
        yield Call("max", (Num(0), Binary("-", a, b)))
        yield Call("f32", (Binary("-", a, b),))
        yield Call("i64", (Binary("-", a, b),))
        yield Binary("+", Name("w"), Binary("-", a, b))
        yield Select(Compare(">", a, Num(0)), Binary("-", a, b), Name("w"))
    for a in OPERANDS:
        for count in (Num(3), Call("i64", (Num(2),)), SIZE):
            yield Binary("<<", a, count)
            yield Binary(">>", a, count)
            yield Binary(">>", Binary("-", a, Num(9)), count)


def module_of(expr: Expr) -> Module:
    params = tuple(Param(n, kind) for n, (kind, _) in NAMES.items())
    return Module((), (), (Function("device", "f", params, (), (), (Assign("r", expr),)),))


@dataclass(frozen=True, slots=True)
class Case:
    """An expression, the C++ that is written for it, its type in CuIR, and its values."""

    expr: Expr
    text: str
    kind: str
    values: tuple[Any, ...]


def case_of(expr: Expr) -> Case | None:
    """None where CuIR's checks refuse the expression."""
    try:
        typed = _Typer().type(expr, {n: Scalar(kind) for n, (kind, _) in NAMES.items()})
    except Mismatch:
        return None
    assert isinstance(typed, Scalar), print_expr(expr)
    module = legal(module_of(expr))
    assert legal(module) == module
    (assign,) = module.functions[0].body
    assert isinstance(assign, Assign)
    kinds = module_kinds(module, TEMPLATES)["f"]
    assert kinds.locals["r"] == typed.dtype, (print_expr(expr), kinds.locals["r"], typed.dtype)
    text = Emitter(kinds, Names(TEMPLATES.cxx_words()), frozenset()).text(assign.value)
    back = _lift(text, typed.dtype)
    assert back == assign.value, (print_expr(expr), text)
    return Case(expr, text, typed.dtype, tuple(_value(expr, at) for at in range(3)))


class _Typer(Typer):
    def __init__(self) -> None:
        super().__init__(module_of(Num(0)), None, {}, None)  # type: ignore[arg-type]

    def type(self, expr: Expr, scope: Any) -> Any:
        return Scalar("i32") if expr in COUNTS else super().type(expr, scope)


def _lift(text: str, kind: str) -> Expr:
    catalogue = default_catalogue()
    scope = Scope([{n: Local(Name(n), k) for n, (k, _) in NAMES.items()}])
    translator = Translator(Program(catalogue, {}, {}, catalogue.templates), scope)
    tree = parse_expression(Tokens(text.encode()).all, catalogue.templates)
    return translator.converted(translator.translate(tree), kind).expr


class _Counts(Compiler):
    """Counts are names of the environment."""

    def call(self, expr: Call) -> Any:
        return (lambda env: env[expr.fn]) if expr in COUNTS else super().call(expr)


def _value(expr: Expr, at: int) -> Any:
    """The value in typed mode, or None where C leaves it undefined; on tensors it is the same."""
    env: dict[str, Any] = {n: values[at] for n, (_, values) in NAMES.items()}
    env |= {c.fn: values[at] for c, values in COUNTS.items()}
    run = _Counts("typed").compile(expr)
    try:
        value = run(env)
    except (ZeroDivisionError, TooWide):
        return None
    wide = {bool: torch.bool, int: torch.int64, float: torch.float32}
    tensors = {n: torch.tensor([v], dtype=wide[type(v)]) for n, v in env.items()}
    got = run(tensors).item()
    assert got == value or (got != got and value != value), (print_expr(expr), env, value, got)
    return value


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value!r}f"
    return f"{value}LL" if abs(value) >= 2**31 else str(value)


@pytest.mark.skipif(CC is None, reason="no C++ compiler")
def test_a_compiler_agrees_on_the_whole_table(tmp_path: Path) -> None:
    cases = [case for expr in expressions() if (case := case_of(expr)) is not None]
    assert len(cases) > 1000
    lines: list[str] = []
    asked: list[tuple[Case, Any]] = []
    for at in range(3):
        words = [f"{_C[k]} {n} = {_literal(v[at])};" for n, (k, v) in NAMES.items()]
        words += [f"blockIdx.x = {COUNTS[BLOCK][at]}u;"]
        lines += ["{", *words]
        for case in cases:
            bits = _BITS.get(case.kind)
            value = case.values[at]
            if value is None or (bits and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)):
                continue
            asked.append((case, value))
            lines.append(f"  {{ const {_C[case.kind]} r = {case.text}; show(r); }}")
            if _kind(case) not in UNSIGNED:
                asked.append((case, value))
                lines.append(f"  show({case.text});")
        lines.append("}")
    (tmp_path / "t.cpp").write_text(f"{_HEAD}int main() {{\n" + "\n".join(lines) + "\n}\n")
    program = tmp_path / "t"
    command = [str(CC), "-std=c++17", "-O0", "-ffp-contract=off", "-w", "-o", str(program)]
    subprocess.run([*command, str(tmp_path / "t.cpp")], check=True, timeout=120)
    output = subprocess.run([str(program)], capture_output=True, text=True, timeout=60).stdout
    for line, (case, value) in zip(output.splitlines(), asked, strict=True):
        kind, number = line.split()
        got = float.fromhex(number) if "x" in number or "n" in number else int(number)
        assert kind == case.kind, (print_expr(case.expr), case.text, line)
        assert got == value or (math.isnan(got) and math.isnan(value)), (
            print_expr(case.expr), case.text, value, line,
        )  # fmt: skip


def _kind(case: Case) -> str:
    module = legal(module_of(case.expr))
    (assign,) = module.functions[0].body
    assert isinstance(assign, Assign)
    return module_kinds(module, TEMPLATES)["f"].of(assign.value)
