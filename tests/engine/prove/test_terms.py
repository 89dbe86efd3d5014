"""A term says what the expression does: C's numbers, short circuits and device functions."""

from __future__ import annotations

from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Bool, Call, Compare, Expr, Name, Num, Select, Unary
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.static.device_scalars import DeviceScalars
from engine.prove.domain import domain_of
from engine.prove.solver import Proven, Witness, find
from engine.prove.terms import NotWhole, Path, Terms, Value, constant_of

A, B = z3.Ints("a b")


def _whole(inner: st.SearchStrategy[Expr], tests: st.SearchStrategy[Expr]) -> Any:
    divisors = st.sampled_from([1, 3, 64]).map(Num)
    calls = st.sampled_from(["min", "max"])
    return st.one_of(
        st.builds(Binary, st.sampled_from("+-*"), inner, inner),
        st.builds(Binary, st.sampled_from(["//", "%"]), inner, divisors),
        st.builds(Binary, st.sampled_from(["<<", ">>"]), inner, st.integers(0, 3).map(Num)),
        st.builds(lambda a: Binary("&", a, Num(7)), inner),
        st.builds(lambda f, a, b: Call(f, (a, b)), calls, inner, inner),
        st.builds(lambda f, a, d: Call(f, (a, d)), st.sampled_from(["floor_div", "floor_mod"]),
                  inner, divisors),
        st.builds(lambda a: Call("abs", (a,)), inner),
        st.builds(lambda op, a: Unary(op, a), st.sampled_from("-~"), inner),
        st.builds(Select, tests, inner, inner),
    )  # fmt: skip


LEAF = st.one_of(st.sampled_from([Name("a"), Name("b")]), st.integers(-9, 9).map(Num))
TESTS = st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), LEAF, LEAF)
BOTH = st.one_of(TESTS, st.builds(Bool, st.sampled_from(["and", "or"]), TESTS, TESTS))
EXPRESSIONS = st.recursive(LEAF, lambda inner: _whole(inner, BOTH), max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.integers(-300, 300), st.integers(-300, 300))
def test_a_term_is_what_the_executor_computes(expr: Expr, a: int, b: int) -> None:
    terms = Terms({}, {})
    value = z3.substitute(terms.whole(expr, {"a": A, "b": B}), (A, z3.IntVal(a)), (B, z3.IntVal(b)))
    want = int(DeviceScalars({}, {}).compile(expr)({"a": a, "b": b}))
    assert constant_of(value) == want


MODULE = """
specialisation(arch='sm_80', T=bf16, D=64)


class Args:
    Nq: i32


@device
def clamp(x: i32, *, N):
    if x < 0:
        return 0
    y = x
    if x > N:
        y = N
    return y


@device
def folded(args, x: i32):
    total = 0
    for k in range(0, 4):
        if x == k:
            return 100 + k
        total = total + clamp[10](x) * k
    return total + args.Nq
"""


@pytest.mark.parametrize("x", [-3, 0, 3, 4, 9, 10, 11, 5000])
def test_functions_that_branch_loop_and_return_early(x: int) -> None:
    module = parse_module(MODULE)
    functions = {f.name: f for f in module.functions}
    call = parse_expr("folded(args, x)")
    term = Terms(functions, {}).whole(call, {"args": {"Nq": A}, "x": B})
    want = DeviceScalars(functions, {}).compile(call)({"args": {"Nq": 7}, "x": x})
    assert constant_of(z3.substitute(term, (A, z3.IntVal(7)), (B, z3.IntVal(x)))) == want


def test_each_subexpression_is_shown_with_its_path_condition() -> None:
    seen: dict[str, Path] = {}

    def visit(expr: Expr, value: Value, path: Path) -> None:
        seen.setdefault(str(value), path)

    terms = Terms({}, {}, visit)
    terms.truth(parse_expr("b != 0 and a * 3 // b > 1"), {"a": A, "b": B})
    assert seen["b"] == ()
    (condition,) = seen["a*3"]
    assert isinstance(find((condition != (B != 0),), {}), Proven)
    assert all(need.path == seen["a*3"] for need in terms.needs)
    assert [str(need.claim) for need in terms.needs] == ["b > 0", "a*3 >= 0"]


@pytest.mark.parametrize("text", ["a * 0.5", "c + 1", "a & 6", "a // 0", "exp2(a)", "a << b"])
def test_what_has_no_term_is_refused(text: str) -> None:
    with pytest.raises(NotWhole):
        Terms({}, {}).value(parse_expr(text), {"a": A, "b": B})


def test_the_domain_is_what_is_legal() -> None:
    square = domain_of([parse_expr("Nq == Nk"), parse_expr("Nq >= D + 3")], {"D": 64})
    found = find(square.given, square.sizes, square.smallest)
    assert found == Witness({"B": 1, "Hq": 1, "Hkv": 1, "Nq": 67, "Nk": 67})
    size = square.sizes
    assert isinstance(find((*square.given, size["Nq"] < 67), {}), Proven)
    groups = (*square.given, size["Hq"] == 6, size["Hkv"] == 4)
    assert isinstance(find(groups, {}), Proven)
