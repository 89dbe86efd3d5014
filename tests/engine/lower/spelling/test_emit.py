"""Scalar expressions to C++ and back."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cuir.canonical import canonical_expr
from engine.cuir.nodes import Call, Expr, Function, Module, Name, Num, Param, Return
from engine.cuir.nodes import Field as ArgsField
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import Compiler
from engine.errors import LowerError
from engine.lift.cpp.syntax import parse_expression
from engine.lift.cpp.tokens import Tokens
from engine.lift.functions.expressions import Translator
from engine.lift.names.catalogue import default_catalogue
from engine.lift.names.scope import Local, Program, Scope
from engine.lower.spelling.cpp_kinds import Kinds, module_kinds
from engine.lower.spelling.emit import Emitter, Names
from engine.lower.spelling.legal import legal
from engine.lower.spelling.templates import default_templates
from tests.engine.lower.typed_exprs import FIELDS, VARIABLES, loose, scalars

CC = shutil.which("g++")
TEMPLATES = default_templates()


def module_of(expr: Expr) -> Module:
    params = (Param("args"), *(Param(n, k) for n, k in VARIABLES.items()))
    function = Function("device", "f", params, (), (), (Return(expr),))
    return Module((), tuple(ArgsField(n, k) for n, k in FIELDS.items()), (function,))


def made_legal(expr: Expr) -> Expr:
    stmt = legal(module_of(expr)).functions[0].body[0]
    assert isinstance(stmt, Return) and stmt.value is not None
    return stmt.value


def kinds_of(expr: Expr) -> Kinds:
    return module_kinds(module_of(expr), TEMPLATES)["f"]


def emit(expr: Expr) -> str:
    return Emitter(kinds_of(expr), Names(TEMPLATES.cxx_words()), frozenset()).text(expr)


def lift(text: str) -> Expr:
    catalogue = default_catalogue()
    program = Program(catalogue, FIELDS, {}, catalogue.templates)
    scope = Scope([{n: Local(Name(n), k) for n, k in VARIABLES.items()}])
    tree = parse_expression(Tokens(text.encode()).all, catalogue.templates)
    return Translator(program, scope).translate(tree).expr


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scalars)
def test_lifting_inverts_emission(expr: Expr) -> None:
    assert canonical_expr(lift(emit(expr))) == canonical_expr(expr), emit(expr)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(loose)
def test_legal_expressions_come_back_and_keep_their_value(expr: Expr) -> None:
    wanted = made_legal(expr)
    assert canonical_expr(lift(emit(wanted))) == canonical_expr(wanted), emit(wanted)
    assert made_legal(wanted) == wanted
    env = {"a": 3, "b": -2, "x": 0.75, "y": -2.5, "t": True, "args": {"Nk": 5, "scale": 0.5}}
    values: list[Any] = []
    for candidate in (expr, wanted):
        try:
            values.append(Compiler("exact").compile(candidate)(env))
        except ZeroDivisionError:
            values.append("division by zero")
    same = values[0] == values[1] or all(v != v for v in values)
    assert same, (print_expr(wanted), values)


@pytest.mark.parametrize(
    ("cuir", "cxx"),
    [
        ("(a + b) * 2", "(a + b) * 2"),
        ("a + b * 2", "a + b * 2"),
        ("a - (b - 1)", "a - (b - 1)"),
        ("a - b - 1", "a - b - 1"),
        ("a // b % 3", "a / b % 3"),
        ("a // (b * 3)", "a / (b * 3)"),
        ("x / y", "x / y"),
        ("x / a", "x / a"),
        ("f32(a) / b", "static_cast<float>(a) / b"),
        ("1.0 / x", "1.0f / x"),
        ("1e-05 * x", "1e-05f * x"),
        ("-inf if t else x", "t ? -INFINITY : x"),
        ("a if t else b if a < b else 0", "t ? a : a < b ? b : 0"),
        ("(a if t else b) + 1", "(t ? a : b) + 1"),
        ("not t", "!t"),
        ("not (t and a < b)", "!(t && a < b)"),
        ("t and a < b and x < y", "t && a < b && x < y"),
        ("t or a < b and x < y", "t || (a < b && x < y)"),
        ("(t or a < b) and x < y", "(t || a < b) && x < y"),
        ("-a * b", "-a * b"),
        ("-(a * b)", "-(a * b)"),
        ("a - -3", "a - -3"),
        ("- -a", "-(-a)"),
        ("(a & 3) + 1", "(a & 3) + 1"),
        ("a + 1 << 2", "(a + 1) << 2"),
        ("a < b == t", "(a < b) == t"),
        ("min(a, args.Nk)", "min(a, args.Nk)"),
        ("exp2(x * args.scale - LOG2E)", "exp2(x * args.scale - LOG2E)"),
        ("i32(t) + 4294967296", "static_cast<int>(t) + 4294967296LL"),
    ],
)
def test_spelling(cuir: str, cxx: str) -> None:
    expr = parse_expr(cuir)
    if cuir == "a < b == t":  # CuIR reads a chain as Python does
        expr = parse_expr("(a < b) == t")
    assert emit(expr) == cxx


@pytest.mark.parametrize(
    ("cuir", "words"),
    [
        ("a / b", "truncate"),
        ("x % y", "whole numbers"),
        ("x // y", "whole numbers"),
        ("nobody + 1", "nothing is named nobody"),
        ("frobnicate(a)", "declare frobnicate"),
        ("exp2(a, b)", "takes 1"),
        ("'text'", "text"),
    ],
)
def test_what_cpp_cannot_say_is_an_error(cuir: str, words: str) -> None:
    with pytest.raises(LowerError, match=words):
        emit(parse_expr(cuir))


def test_conversions_are_written_out() -> None:
    for before, after in [
        ("a / b", "f32(a) / f32(b)"),
        ("a / 2", "f32(a) / 2.0"),
        ("exp2(a)", "exp2(f32(a))"),
        ("min(a, x)", "min(f32(a), x)"),
        ("max(x, 0)", "max(x, 0.0)"),
        ("not a", "not a != 0"),
        ("x if a else y", "x if a != 0 else y"),
        ("x and t", "x != 0.0 and t"),
        ("float(a)", "f32(a)"),
        ("rcp(x + y)", "1.0 / (x + y)"),
        ("a * x", "a * x"),
    ]:
        assert print_expr(made_legal(parse_expr(before))) == after


# --- what a C++ compiler makes of it ---------------------------------------------------------

_ENVIRONMENTS = [
    {"a": 3, "b": -2, "x": 0.75, "y": -2.5, "t": True, "Nk": 5, "scale": 0.5},
    {"a": -7, "b": 4, "x": -0.0, "y": 2.0**-100, "t": False, "Nk": 0, "scale": -1.25},
    {"a": 0, "b": 9, "x": math.inf, "y": 3.5, "t": True, "Nk": 2, "scale": 0.125},
]
_HEAD = """
#include <cmath>
#include <cstdio>
#include <algorithm>
using std::abs; using std::min; using std::max; using std::fma;
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
struct Args { int Nk; float scale; };
static void show(int v) { std::printf("%d\\n", v); }
static void show(bool v) { std::printf("%d\\n", v ? 1 : 0); }
static void show(long long v) { std::printf("%lld\\n", v); }
static void show(float v) { std::printf("%a\\n", v); }
"""


def _pure(expr: Expr) -> bool:
    """Functions whose last bit the library decides stay out, and shifts of what may be below 0."""
    text = print_expr(expr)
    return not any(name in text for name in ("exp2", "tanh", "sigmoid", "fma", "<<", "i32("))


def _within(expr: Expr, env: dict[str, Any]) -> Any:
    """The value in typed mode, or None where C++ leaves it undefined."""
    args = {k: env[k] for k in FIELDS}
    try:
        value = Compiler("typed").compile(expr)({**env, "args": args})
    except ZeroDivisionError:
        return None
    return value


@pytest.mark.skipif(CC is None, reason="no C++ compiler")
def test_a_compiler_computes_the_same(tmp_path: Path) -> None:
    found: list[tuple[Expr, dict[str, Any], Any]] = []

    @settings(max_examples=250, deadline=None, derandomize=True, database=None)
    @given(scalars.filter(_pure), st.sampled_from(_ENVIRONMENTS))
    def gather(expr: Expr, env: dict[str, Any]) -> None:
        value = _within(expr, env)
        whole = not isinstance(value, float)
        if value is not None and (not whole or abs(value) < 2**24):
            found.append((expr, env, value))

    gather()
    assert len(found) > 100
    lines = []
    for expr, env, _ in found:
        words = " ".join(f"{_C[k]} {n} = {_literal(env[n])};" for n, k in VARIABLES.items())
        args = f"Args args{{{env['Nk']}, {_literal(env['scale'])}}};"
        lines.append(f"{{ {words} {args} show({emit(expr)}); }}")
    text = f"{_HEAD}int main() {{\n" + "\n".join(lines) + "\n}\n"
    (tmp_path / "t.cpp").write_text(text)
    program = tmp_path / "t"
    command = [str(CC), "-std=c++17", "-O0", "-ffp-contract=off", "-w", "-o", str(program)]
    subprocess.run([*command, str(tmp_path / "t.cpp")], check=True, timeout=120)
    output = subprocess.run([str(program)], capture_output=True, text=True, timeout=60).stdout
    for line, (expr, env, value) in zip(output.splitlines(), found, strict=True):
        got = float.fromhex(line) if "x" in line else float(line)
        same = got == float(value) or (got != got and value != value)
        assert same, (print_expr(expr), env, value, line)


_C = {"i32": "int", "f32": "float", "bool": "bool"}


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "INFINITY" if math.isinf(value) else f"{value!r}f"
    return str(value)


def test_a_lambda_parameter_never_hides_what_the_body_reads() -> None:
    expr = parse_expr("map(s, lambda v: v * w)")
    assert isinstance(expr, Call)
    kinds = Kinds(TEMPLATES, {}, {}, {"s": "tile:f32", "w": "f32"})
    names = Names(TEMPLATES.cxx_words(), {"w": "v"})
    text = Emitter(kinds, names, frozenset()).text(expr)
    assert text == "map(s, [&](float v_) { return v_ * v; })"


def test_lambda_parameters_have_the_kinds_of_their_operands() -> None:
    locals_ = {"s": "tile:f32", "ids": "tile:i32", "doc": "view:i32", "q0": "i32"}
    kinds = Kinds(TEMPLATES, {}, {}, locals_)
    emitter = Emitter(kinds, Names(TEMPLATES.cxx_words()), frozenset())
    text = emitter.text(
        parse_expr("map(s, ids, lambda x, d, i, j: x if d == doc[j] else 0.0, at=[q0, 0])")
    )
    assert text == (
        "map(s, ids, at(q0, 0), [&](float x, int d, int i, int j) "
        "{ return d == doc(j) ? x : 0.0f; })"
    )
    assert emitter.text(Num(True)) == "true"
