from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.canonical import (
    CANONICAL,
    canonical,
    canonical_expr,
    chain_to_the_left,
    compare_upwards,
    equal,
    first_difference,
    one_nan,
    sign_in_the_literal,
)
from engine.cuir.nodes import (
    Assign,
    Binary,
    Bool,
    Compare,
    Expr,
    Function,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Select,
    Unary,
)
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import Compiler
from tests.engine.cuir.changes.test_diff import kernel
from tests.engine.cuir.random_modules import edited, modules

# --- every canonicalisation keeps every value ------------------------------------------------

ints = st.integers(-5, 5)
floats = st.sampled_from([0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan])
numbers = st.builds(Num, ints | floats)
arithmetic: st.SearchStrategy[Expr] = st.recursive(
    numbers | st.sampled_from([Name("x"), Name("i")]),
    lambda e: st.builds(Binary, st.sampled_from("+-*"), e, e) | st.builds(Unary, st.just("-"), e),
    max_leaves=4,
)
truths: st.SearchStrategy[Expr] = st.recursive(
    st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), arithmetic, arithmetic),
    lambda b: (
        st.builds(Bool, st.sampled_from(["and", "or"]), b, b) | st.builds(Unary, st.just("not"), b)
    ),
    max_leaves=5,
)
scalars = arithmetic | truths | st.builds(Select, truths, arithmetic, arithmetic)
environments = st.fixed_dictionaries({"x": floats, "i": ints})


def bits(value: object) -> object:
    """What tells two results apart: a zero's sign does, a NaN's payload does not."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return (type(value), value)


@pytest.mark.parametrize("rule", CANONICAL, ids=lambda rule: rule.__name__)
@settings(max_examples=150, deadline=None)
@given(expr=scalars, env=environments, mode=st.sampled_from(["exact", "typed"]))
def test_a_canonicalisation_keeps_the_value(rule, expr, env, mode) -> None:  # type: ignore[no-untyped-def]
    changed = rule(expr)
    assert bits(Compiler(mode).compile(changed)(env)) == bits(Compiler(mode).compile(expr)(env))


@settings(max_examples=200, deadline=None)
@given(expr=scalars, env=environments)
def test_the_canonical_form_keeps_the_value(expr: Expr, env: dict[str, float]) -> None:
    changed = canonical_expr(expr, {"x": "%l0"})
    value = Compiler("exact").compile(expr)(env)
    assert bits(Compiler("exact").compile(changed)({**env, "%l0": env["x"]})) == bits(value)


@settings(max_examples=200, deadline=None)
@given(scalars)
def test_the_canonical_form_is_its_own(expr: Expr) -> None:
    assert canonical_expr(canonical_expr(expr)) == canonical_expr(expr)


@pytest.mark.parametrize(
    ("rule", "text", "wanted"),
    [
        (compare_upwards, "a > b", "b < a"),
        (compare_upwards, "a >= b", "b <= a"),
        (compare_upwards, "a < b", "a < b"),
        (chain_to_the_left, "a and (b and c)", "a and b and c"),
        (chain_to_the_left, "a or (b or (c or d))", "a or b or c or d"),
        (chain_to_the_left, "a and (b or c)", "a and (b or c)"),
    ],
)
def test_what_a_canonicalisation_does(rule, text: str, wanted: str) -> None:  # type: ignore[no-untyped-def]
    assert print_expr(rule(parse_expr(text))) == wanted


def test_signs() -> None:
    assert sign_in_the_literal(Unary("-", Num(2.0))) == Num(-2.0)
    assert sign_in_the_literal(Unary("-", Num(True))) == Unary("-", Num(True))
    assert one_nan(Num(-math.nan)) == Num(math.nan)


def test_what_is_not_equal() -> None:
    for left, right in [
        ("a < b", "a <= b"),
        ("not a < b", "a >= b"),  # NaN tells them apart
        ("a + b", "b + a"),  # written so by someone: shown as a difference
        ("x * 1.0", "x * 1"),
        ("(a + b) + c", "a + (b + c)"),
    ]:
        assert canonical_expr(parse_expr(left)) != canonical_expr(parse_expr(right))


# --- names -----------------------------------------------------------------------------------


def test_local_names_take_no_part() -> None:
    new = kernel(
        ("    m = fill(", "    top = fill("),
        ("        m = row_max(s, m)", "        top = row_max(s, top)"),
        ("store(sQ, m)", "store(sQ, top)"),
        ("lambda i, j: j < args.Nk", "lambda row, col: args.Nk > col"),
    )
    assert equal(kernel(), new) and first_difference(kernel(), new) is None


def test_swapping_two_locals_is_a_difference() -> None:
    a = kernel(
        ("    q0 = block_id(0) * BM\n", "    q0 = block_id(0) * BM\n    q1 = 0\n    z = q0\n")
    )
    b = kernel(
        ("    q0 = block_id(0) * BM\n", "    q0 = block_id(0) * BM\n    q1 = 0\n    z = q1\n")
    )
    found = first_difference(a, b)
    assert found is not None and found.path == ("flash_fwd", 2)
    assert found.left == "z = q0" and found.right == "z = q1"


def test_a_lambda_parameter_hides_a_local() -> None:
    def module(text: str) -> Module:
        body = (Assign("x", Num(1)), Return(parse_expr(text)))
        return Module((), (), (Function("device", "f", (), (), (), body),))

    assert equal(module("map(s, lambda x: x)"), module("map(s, lambda y: y)"))
    assert not equal(module("map(s, lambda y: x)"), module("map(s, lambda y: y)"))
    assert not equal(module("map(s, lambda a, b: a)"), module("map(s, lambda a, b: b)"))


# --- where they differ -----------------------------------------------------------------------


def test_the_first_differing_op_is_named() -> None:
    new = kernel(("j < args.Nk", "j <= args.Nk"), ("store(sQ, m)", "store(sO, m)"))
    found = first_difference(kernel(), new)
    assert found is not None
    assert found.path == ("flash_fwd", 3, "body", 4)
    assert "j < args.Nk" in found.left and "j <= args.Nk" in found.right
    assert "flash_fwd" in str(found)


def test_a_missing_op_is_named() -> None:
    new = kernel(("        m = row_max(s, m)\n        sync()\n", "        m = row_max(s, m)\n"))
    found = first_difference(kernel(), new)
    assert found is not None and (found.left, found.right) == ("sync()", "")
    assert "only the first" in found.message
    back = first_difference(new, kernel())
    assert back is not None and "only the second" in back.message


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("scale: f32", "scale: i32"), ("Args", 3)),
        (("    scale: f32\n", ""), ("Args", 3)),
        (("D=128", "D=64"), ("specialisation()",)),
        (("threads=WARPS * 32", "threads=WARPS"), ("flash_fwd",)),
        (("tile_full(args, n: i32, *, BN)", "tile_full(args, n, *, BN)"), ("tile_full",)),
        (("in range(tiles)", "in range(1, tiles)"), ("flash_fwd", 3)),
    ],
)
def test_differences_outside_of_statements(change: tuple[str, str], path: tuple[object]) -> None:
    found = first_difference(kernel(), kernel(change))
    assert found is not None and found.path == path


def test_a_missing_function_is_named() -> None:
    new = replace(kernel(), functions=kernel().functions[1:])
    found = first_difference(kernel(), new)
    assert found is not None and found.path == ("tile_count",)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_there_is_a_first_difference_exactly_when_unequal(data: st.DataObject) -> None:
    a = data.draw(modules)
    b = data.draw(edited(a) | modules)
    assert (first_difference(a, b) is None) == equal(a, b)
    assert equal(a, a) and canonical(canonical(a)) == canonical(a)
    assert equal(a, b) or a != b


def test_lambdas_inside_lambdas_are_apart() -> None:
    expr = Lambda(("a",), Lambda(("b",), Binary("+", Name("a"), Name("b"))))
    assert print_expr(canonical_expr(expr)) == "lambda %0: lambda %1: %0 + %1"
