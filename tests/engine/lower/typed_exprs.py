"""Random well-typed scalar expressions over a few variables, for inverses and evaluation."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.cuir.nodes import (
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Name,
    Num,
    Select,
    Unary,
)

VARIABLES = {"a": "i32", "b": "i32", "x": "f32", "y": "f32", "t": "bool"}
FIELDS = {"Nk": "i32", "scale": "f32"}

Exprs = st.SearchStrategy[Expr]


def _leaf(kind: str) -> Exprs:
    names = [Name(n) for n, k in VARIABLES.items() if k == kind]
    names += [Attr(Name("args"), n) for n, k in FIELDS.items() if k == kind]  # type: ignore[misc]
    if kind == "i32":
        literals: Exprs = st.builds(Num, st.integers(-40, 40))
    elif kind == "f32":
        literals = st.builds(
            Num, st.sampled_from([0.0, 1.0, -1.5, 0.1, 1e-05, 3e20, float("inf"), float("-inf")])
        )
    else:
        literals = st.builds(Num, st.booleans())
    return literals | st.sampled_from(names)


def ints(depth: int) -> Exprs:
    if not depth:
        return _leaf("i32")
    i, f, b = ints(depth - 1), floats(depth - 1), bools(depth - 1)
    del f
    return st.one_of(
        _leaf("i32"),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^"]), i, i),
        st.builds(Binary, st.sampled_from(["<<", ">>"]), i, st.builds(Num, st.integers(0, 3))),
        st.builds(lambda e: _negative(e), i),
        st.builds(Unary, st.just("~"), i),
        st.builds(Select, b, i, i),
        st.builds(lambda f, p: Call(f, p), st.sampled_from(["min", "max"]), st.tuples(i, i)),
        st.builds(lambda e: Call("abs", (e,)), i),
        st.builds(lambda e: Call("i32", (e,)), b),
    )


def floats(depth: int) -> Exprs:
    if not depth:
        return _leaf("f32")
    i, f, b = ints(depth - 1), floats(depth - 1), bools(depth - 1)
    return st.one_of(
        _leaf("f32"),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), f, f),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), f, i),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), i, f),
        st.builds(lambda e: _negative(e), f),
        st.builds(Select, b, f, f),
        st.builds(Select, b, f, i),
        st.builds(lambda f, p: Call(f, p), st.sampled_from(["min", "max"]), st.tuples(f, f)),
        st.builds(lambda e: Call("abs", (e,)), f),
        st.builds(lambda e: Call("f32", (e,)), i | b),
        st.builds(lambda a, b, c: Call("fma", (a, b, c)), f, f, f),
        st.builds(lambda f, e: Call(f, (e,)), st.sampled_from(["exp2", "tanh", "sigmoid"]), f),
    )


def bools(depth: int) -> Exprs:
    if not depth:
        return _leaf("bool")
    i, f, b = ints(depth - 1), floats(depth - 1), bools(depth - 1)
    signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        _leaf("bool"),
        st.builds(Compare, signs, i, i),
        st.builds(Compare, signs, f, f),
        st.builds(Compare, signs, i, f),
        st.builds(Bool, st.sampled_from(["and", "or"]), b, b),
        st.builds(Unary, st.just("not"), b),
        st.builds(Select, b, b, b),
        st.builds(lambda e: Call("bool", (e,)), i),
    )


def _negative(expr: Expr) -> Expr:
    """A negation; of a literal it is the negative literal, as the parser reads it."""
    if isinstance(expr, Num) and not isinstance(expr.value, bool):
        return Num(-expr.value)
    return Unary("-", expr)


scalars: Exprs = ints(3) | floats(3) | bools(3)

# Loosely typed: what a person may write, with kinds mixed everywhere C++ would convert.
_any = ints(2) | floats(2) | bools(2)
loose: Exprs = st.one_of(
    st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), _any, _any),
    st.builds(Select, _any, _any, _any),
    st.builds(Bool, st.sampled_from(["and", "or"]), _any, _any),
    st.builds(lambda e: Unary("not", e), _any),
    st.builds(lambda f, p: Call(f, p), st.sampled_from(["min", "max"]), st.tuples(_any, _any)),
    st.builds(lambda e: Call("exp2", (e,)), _any),
    st.builds(lambda e: Call("float", (e,)), _any),
)
