"""CuIR as quoted text with holes: what it makes, what it finds, and that no name slips in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Lambda, Name, Num, Stmt, Tuple
from engine.cuir.parser import parse_block, parse_expr
from engine.cuir.rewrite import map_expr
from engine.cuir.text.quote import block, expr, matched, rewrites, stmt
from engine.errors import CuirError


def test_a_quote_is_what_its_text_says() -> None:
    made = expr("min(first + rows, args.Nq) - 1", first="q0", rows=64)
    assert made == parse_expr("min(q0 + 64, args.Nq) - 1")


def test_holes_for_names_statements_and_many() -> None:
    made = block(
        """
        view = gmem[i32](field, *sizes)
        *before
        for step in range(count):
            if view[*at, step:] <= first and not full(step, *at):
                return -step
        """,
        view="lists", field=parse_expr("args.lists"), sizes=(Num(1), Num(2)), count=3, first="k",
        before=parse_block("x = 1\ny = 2"), step="n", at=(Name("b"),), full="tile_full",
    )  # fmt: skip
    assert made == parse_block(
        "lists = gmem[i32](args.lists, 1, 2)\nx = 1\ny = 2\nfor n in range(3):\n"
        "    if lists[b, n:] <= k and not tile_full(n, b):\n        return -n"
    )


@pytest.mark.parametrize(
    ("text", "holes", "words"),
    [
        ("first + row", {"first": 1, "rows": 2}, "no value for row and no hole called rows"),
        ("first + 1", {"first": ("a",)}, "takes one expression"),
        ("f(first)", {"f": 1, "first": 1}, "stands where a name must"),
        ("min(*first)", {"first": 1}, "takes many expressions"),
        ("min(min, 1)", {"min": 1}, "no hole called min"),
    ],
)
def test_a_wrong_hole_is_said(text: str, holes: dict[str, object], words: str) -> None:
    with pytest.raises(CuirError, match=words):
        expr(text, **holes)  # type: ignore[arg-type]


def test_a_lambda_keeps_its_own_names() -> None:
    with pytest.raises(CuirError, match="no hole called x"):
        expr("map(tile, lambda x: x)", tile="s", x="y")
    made = expr("map(tile, *vectors, lambda x, *vectors: body)", tile="s", vectors=(Name("v"),),
                body=parse_expr("x + v"))  # fmt: skip
    assert made == parse_expr("map(s, v, lambda x, v: x + v)")


def test_a_number_under_a_minus_is_one_number() -> None:
    assert expr("-n", n=3) == Num(-3) == parse_expr("-3")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("x * c - top * c", "a * (b + 1) - m * (b + 1)", {"x": "a", "c": "b + 1", "top": "m"}),
        ("x * c - top * c", "a * b - m * d", None),
        ("min(pieces, sm_count())", "min(a, sm_count())", {"pieces": "a"}),
        ("min(pieces, sm_count())", "max(a, sm_count())", None),
        ("f(first, *_, last)", "g(a, b, c)", {"f": "g", "first": "a", "last": "c"}),
        ("f(first, *_, last)", "g(a)", None),
        ("keep(s, lambda i, j: body)", "keep(t, lambda i, j: i < j, at=[1, 2])",
         {"s": "t", "body": "i < j"}),
        ("keep(s, lambda i, j: body)", "keep(t, lambda a, j: a < j)", None),
        ("keep(s, f, at=[row, _])", "keep(t, f)", None),
        ("1", "1.0", None),
    ],
)  # fmt: skip
def test_what_a_pattern_finds(pattern: str, text: str, found: dict[str, str] | None) -> None:
    wanted = None if found is None else {k: parse_expr(v) for k, v in found.items()}
    assert matched(pattern, parse_expr(text)) == wanted


def only(text: str) -> Stmt:
    (made,) = parse_block(text)
    return made


def test_patterns_of_statements() -> None:
    mask = "if not full(*_):\n    *_\n    s = keep(s, *_)"
    found = only("if not tile_full(a):\n    x = 1\n    t = keep(t, f)")
    assert matched(mask, found) == {"full": Name("tile_full"), "s": Name("t")}
    assert matched(mask, only("if not tile_full(a):\n    t = keep(s, f)")) is None
    assert matched("s = map(s, *more)", only("s = map(s, a, b)")) == {
        "s": Name("s"), "more": Tuple((Name("a"), Name("b"))),
    }  # fmt: skip


def test_what_is_found_fills_another_quote() -> None:
    change = rewrites("keep(*tiles, lambda *names: body)", "keep(*tiles, lambda *names: not body)")
    node = parse_expr("keep(s, v, lambda v, i: i < v)")
    assert map_expr(node, change) == parse_expr("keep(s, v, lambda v, i: not i < v)")


NAMES = st.sampled_from(("a", "b", "c")).map(Name)
EXPRS = st.recursive(
    NAMES | st.integers(-9, 9).map(Num),
    lambda e: (
        st.builds(Binary, st.sampled_from(("+", "*", "//")), e, e)
        | st.builds(Lambda, st.just(("i",)), e)
    ),
    max_leaves=6,
)


@given(EXPRS, EXPRS)
def test_a_pattern_finds_what_was_filled_in(left: Binary, right: Binary) -> None:
    made = expr("min(left, right) + left", left=left, right=right)
    assert matched("min(left, right) + left", made) == {"left": left, "right": right}


def test_no_statement_is_more_than_one() -> None:
    with pytest.raises(CuirError, match="2 statements and not one"):
        stmt("*two", two=parse_block("x = 1\ny = 2"))
