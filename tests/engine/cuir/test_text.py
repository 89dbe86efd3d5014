"""parse(print(x)) == x for any tree, ids included; what is not CuIR is refused with its place."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
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
    Return,
    Select,
    Slice,
    Str,
    Tuple,
    Unary,
)
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_expr, print_module
from engine.errors import CuirError

names = st.sampled_from(["a", "sK", "q0", "m_prev", "T", "λ"])
literals = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=True, allow_infinity=True),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1e-310, 5e-324, 1.7976931348623157e308, math.nan]),
).map(Num)
texts = st.text("ab'\"\\\n#@ é{}", max_size=12)


def grow(inner):
    some = st.lists(inner, max_size=3).map(tuple)
    keys = st.lists(
        st.tuples(st.sampled_from(["at", "box", "grid"]), inner),
        max_size=2,
        unique_by=lambda k: k[0],
    ).map(tuple)
    base = st.one_of(st.builds(Name, names), st.builds(Index, st.builds(Name, names), some1(inner)))
    return st.one_of(
        st.builds(Attr, st.just(Name("args")), names),
        st.builds(Call, names, some, keys, some),
        st.builds(Index, base, some1(inner)),
        st.builds(lambda b, i, s: Index(b, (*i, Slice(s))), base, some, inner),
        st.builds(Unary, st.sampled_from(["-", "not", "~"]), inner),
        st.builds(
            Binary,
            st.sampled_from(["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"]),
            inner,
            inner,
        ),
        st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner, inner),
        st.builds(Bool, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(Select, inner, inner, inner),
        st.builds(Lambda, st.sampled_from([(), ("i",), ("x", "i", "j")]), inner),
        st.builds(Tuple, some),
    )


def some1(inner):
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


exprs = st.recursive(
    st.one_of(literals, st.builds(Name, names), st.builds(Str, texts)), grow, max_leaves=10
)


def nest(inner):
    body = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(For, names, exprs, exprs, exprs, body),
        st.builds(If, exprs, body.filter(bool), body),
        st.builds(Opaque, texts, st.just(("a", "b")), st.just(()), body),
    )


stmts = st.recursive(
    st.one_of(
        st.builds(Assign, names, exprs),
        st.builds(lambda args: Do(Call("sync", args)), st.lists(exprs, max_size=2).map(tuple)),
        st.builds(Return, st.none() | exprs),
        st.builds(Opaque, texts, st.just(()), st.just(("c",))),
    ),
    nest,
    max_leaves=6,
)
functions = st.builds(
    Function,
    st.sampled_from(["host", "kernel", "device"]),
    st.just("f"),
    st.sampled_from([(), (Param("args"),), (Param("args"), Param("h", "i32"))]),
    st.sampled_from([(), ("T", "D")]),
    st.lists(st.tuples(st.just("threads"), exprs), max_size=1).map(tuple),
    st.lists(stmts, max_size=4).map(tuple),
)
modules = st.builds(
    lambda spec, fields, functions: Module(spec, fields, tuple(functions)),
    st.lists(st.tuples(st.just("arch"), exprs), max_size=1).map(tuple),
    st.sampled_from([(), (Field("q", "tensor"), Field("scale", "f32"), Field("n", "i64"))]),
    st.lists(functions, max_size=1),
)


@settings(max_examples=300, deadline=None)
@given(exprs)
def test_expressions_come_back(expr):
    again = parse_expr(print_expr(expr))
    assert print_expr(again) == print_expr(expr)
    assert parse_expr(print_expr(again)) == again


@settings(max_examples=200, deadline=None)
@given(modules)
def test_modules_come_back(module):
    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    assert parse_module(print_module(again)) == again


REFUSED = {
    "import os\n": "1:1",
    "@host\ndef f():\n    while True:\n        pass\n": "3:5",
    "@host\ndef f():\n    x = (lambda: 1)()\n": "3:9",
    "@host\ndef f():\n    x = [i for i in y]\n": "3:9",
    "@host\ndef f():\n    x.y = 1\n": "3:5",
    "@host\ndef f():\n    x = q[1:2]\n": "3:11",
    "@host\ndef f():\n    x = 'a' 'b' f'{x}'\n": "3:9",
    "@host\ndef f():\n    x = __import__('os').system('x')\n": "3:9",
    "@host\ndef f(a=1):\n    pass\n": "2:1",
    "@nope\ndef f():\n    pass\n": "2:1",
    "def f():\n    pass\n": "1:1",
    "@host\ndef f(:\n": "2:7",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_cuir_is_refused_with_its_place(text):
    with pytest.raises(CuirError) as error:
        parse_module(text, "x.cuir")
    assert str(error.value).startswith(f"x.cuir:{REFUSED[text]}:"), str(error.value)


def test_an_expression_nested_without_end_says_so() -> None:
    with pytest.raises(CuirError, match="nested too deeply"):
        parse_module("x = " + "-" * 100_000 + "1")
