"""Random scalar expressions, and what their names stand for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from engine.cuir.nodes import (
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
)  # fmt: skip

KINDS = {"doc": "int", "flag": "bool", "slope": "float"}
EXTREME = st.sampled_from(["min", "max"])
COMPARE = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def integers() -> st.SearchStrategy[Expr]:
    """Integer expressions over j, i, sizes and a load."""
    leaves = st.one_of(
        st.sampled_from([Name(n) for n in ("j", "i", "Nq", "Nk")]),
        st.integers(-6, 9).map(Num),
        st.sampled_from([Index(Name("doc"), (Name(n),)) for n in ("i", "j")]),
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(Binary, st.sampled_from(["+", "-"]), inner, inner),
            st.builds(lambda a, n: Binary("*", Num(n), a), inner, st.integers(-3, 3)),
            st.builds(lambda a: Unary("-", a), inner),
            st.builds(lambda a: Call("abs", (a,)), inner),
            st.builds(lambda f, a, b: Call(f, (a, b)), EXTREME, inner, inner),
            st.builds(lambda f, a, n: Call(f, (a, Num(n))),
                      st.sampled_from(["floor_div", "floor_mod"]), inner, st.integers(1, 5)),
        )  # fmt: skip

    return st.recursive(leaves, grow, max_leaves=6)


def predicates() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        st.builds(Compare, COMPARE, integers(), integers()),
        st.sampled_from([Index(Name("flag"), (Name("i"), Name("j"))), Num(True), Num(False)]),
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(Bool, st.sampled_from(["and", "or"]), inner, inner),
            st.builds(lambda a: Unary("not", a), inner),
            st.builds(Select, inner, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=5)


def values() -> st.SearchStrategy[Expr]:
    """Float expressions over x, a slope, and integers."""
    leaves = st.one_of(
        st.just(Name("x")),
        st.just(Index(Name("slope"), (Name("h"),))),
        st.sampled_from([Num(0.5), Num(0.1), Num(50.0), Num(-2.0), Num(1 / 3)]),
        integers(),
        st.just(Call("rsqrt", (Name("D"),))),
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(Binary, st.sampled_from(["+", "-", "*"]), inner, inner),
            st.builds(
                lambda a, n: Binary("/", a, Num(n)), inner, st.sampled_from([2.0, 50.0, -3.0])
            ),
            st.builds(
                lambda f, a: Call(f, (a,)), st.sampled_from(["tanh", "abs", "sigmoid"]), inner
            ),
            st.builds(Select, st.builds(Compare, COMPARE, integers(), integers()), inner, inner),
            st.builds(
                lambda f, a, b: Call(f, (a, b)), st.sampled_from(["min", "max"]), inner, inner
            ),
        )

    return st.recursive(leaves, grow, max_leaves=6)


def environments() -> st.SearchStrategy[dict[str, Any]]:
    def build(n_q: int, n_k: int, i: float, j: float, salt: int, x: float) -> dict[str, Any]:
        return {
            "Nq": n_q, "Nk": n_k, "i": int(i * n_q), "j": int(j * n_k), "x": x,
            "h": 1, "Hq": 3, "D": 8,
            "doc": lambda at: (at * 7 + salt) % 3,
            "flag": lambda a, b: (a * 5 + b * 3 + salt) % 4 < 2,
            "slope": lambda h: 0.25 + salt / 7,
        }  # fmt: skip

    unit = st.floats(0, 0.999)
    size = st.integers(1, 12)
    return st.builds(build, size, size, unit, unit, st.integers(0, 9), st.floats(-20, 20))
