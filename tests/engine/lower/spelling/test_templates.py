"""The lowerer's table, and that it and the lifter's say the same."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Call, Expr, Index, Name, Slice, Tuple, walk_expr
from engine.cuir.ops.spelling import WORDS, Spelling
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.lift.cpp.syntax import Node, parse_expression
from engine.lift.cpp.tokens import Tokens
from engine.lift.names.catalogue import default_catalogue, fill, match
from engine.lower.spelling.templates import Template, by_op, default_templates


def test_holes_are_matched() -> None:
    table = default_templates()
    expr = parse_expr("keep(s, lambda i, j: j < n, at=[q0, k0])")
    assert isinstance(expr, Call)
    found = table.find(expr, lambda e, kind: kind == "lambda")
    assert found is not None
    template, holes = found
    assert holes["s"] == Name("s") and holes["where"] == (Name("q0"), Name("k0"))
    assert [p.hole for p in template.pieces if p.hole] == ["s", "where", "f"]


def made(*texts: str) -> Template:
    ((_, group),) = by_op((Spelling("none", (), texts),)).items()
    return group[0]


def test_places_tell_what_parentheses_are_needed() -> None:
    pieces = made("f({a}, {b}, {c}) -> f<{a}>({b}, {c}.x)").pieces
    assert {p.hole: p.place for p in pieces if p.hole} == {
        "a": "template", "b": "operand", "c": "atom",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("f({x}",), "does not parse"),
        (("f({x}) -> f({y})",), "holes"),
        (("f({x}) -> f()",), "holes"),
        (("f({x}, at={y})",), "keywords"),
        (("x",), "a call or an index"),
        (("f()", "f()"), "stands twice"),
    ],
)
def test_a_wrong_template_is_named(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(*texts)


def _heads(expr: Expr) -> str:
    """The op that an entry is about, told apart by its shape where it is an index."""
    if isinstance(expr, Call):
        return expr.fn
    assert isinstance(expr, Index)
    return "tile" if any(isinstance(i, Slice) for i in expr.index) else "index"


def test_whatever_lifts_can_be_lowered() -> None:
    """Every op and scalar function of the lifter's catalogue has a template, and the other way."""
    catalogue, table = default_catalogue(), default_templates()
    lifts: set[str] = set()
    for patterns in catalogue.by_head.values():
        lifts |= {_heads(p.cuir) for p in patterns if isinstance(p.cuir, Call | Index)}
    for pattern in catalogue.asm:
        lifts |= {n.fn for n in walk_expr(pattern.cuir) if isinstance(n, Call)}
    lowers = {_heads(t.cuir) for group in table.ops.values() for t in group}
    scalars = set(table.scalars)
    assert lifts - lowers - scalars == {"rcp"}  # `legal` writes it as a division
    assert lowers - lifts == set()
    missing = scalars - lifts
    assert missing == set(), f"written by the lowerer, and no longer read back: {missing}"


LAMBDA = "[&](float x) { return x; }"


def _written(template: Template, holes: dict[str, str]) -> str:
    return "".join(p.text or holes[p.hole] for p in template.pieces)


def _instance(expr: Expr) -> Expr:
    """The CuIR of a template with every hole a name of its own, list holes two names."""

    def many(items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        out: list[Expr] = []
        for item in items:
            if isinstance(item, Name) and item.id.startswith("holes__"):
                hole = item.id.removeprefix("holes__")
                out += [Name(f"{hole}1"), Name(f"{hole}2")]
            else:
                out.append(_instance(item))
        return tuple(out)

    match expr:
        case Name(id) if id.startswith("hole__"):
            return Name(id.removeprefix("hole__"))
        case Call(fn, args, kwargs, params):
            named = tuple((k, _instance(v)) for k, v in kwargs)
            return Call(fn, many(args), named, many(params))
        case Index(base, index):
            return Index(_instance(base), many(index))
        case Slice(start):
            return Slice(_instance(start))
        case Tuple(items):
            return Tuple(many(items))
    return expr


def _as_name(node: Node) -> Expr:
    return Name("f") if node.kind == "lambda" else Name(node.text)


@pytest.mark.parametrize(
    "template",
    [t for group in default_templates().ops.values() for t in group],
    ids=lambda t: print_expr(t.cuir),
)
def test_what_a_template_writes_the_catalogue_reads(template: Template) -> None:
    holes = {"stream": "stream"}
    for piece in template.pieces:
        if piece.hole and piece.hole != "stream":
            is_lambda = template.kinds.get(piece.hole) == "lambda"
            both = f"{piece.hole}1, {piece.hole}2"
            holes[piece.hole] = both if piece.many else LAMBDA if is_lambda else piece.hole
    catalogue = default_catalogue()
    text = _written(template, holes)
    node = parse_expression(Tokens(text.encode()).all, catalogue.templates)
    read = []
    for pattern in catalogue.candidates(node):
        found: dict[str, Node | tuple[Node, ...]] = {}
        if match(pattern.tree, node, found):
            values: dict[str, Expr | tuple[Expr, ...]] = {
                k: tuple(map(_as_name, v)) if isinstance(v, tuple) else _as_name(v)
                for k, v in found.items()
            }
            read.append(fill(pattern.cuir, values))
    assert _instance(template.cuir) in read, (text, [print_expr(r) for r in read])


def test_every_name_lifts_back() -> None:
    for word in WORDS:
        assert word.lower is None or word.lower in word.lift, word.name
