"""The catalogue: every spelling works, broken ones are refused, new ones need no code."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Call, walk_expr
from engine.cuir.ops import OPS, SPELLINGS
from engine.cuir.ops.spelling import Spelling
from engine.cuir.printer import print_module
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.lift.files.lifter import lift_source
from engine.lift.names.catalogue import catalogue, default_catalogue
from tests.engine.lift.sources import BINDING, frame


def calls() -> set[str]:
    """Every op or function that the catalogue can write."""
    known = default_catalogue()
    exprs = [p.cuir for bucket in known.by_head.values() for p in bucket]
    exprs += [p.cuir for p in known.asm]
    return {n.fn for e in exprs for n in walk_expr(e) if isinstance(n, Call)}


def test_every_op_of_the_catalogue_is_declared():
    assert calls() <= set(OPS) | set(FUNCTIONS) | set(CASTS)


def test_every_declared_op_has_a_spelling():
    assert set(OPS) | set(FUNCTIONS) <= calls()


def test_a_new_spelling_is_one_text():
    text = "exchange<{n}>({t:tile}, {at...}) -> exchange({t}, {n}, [{at...}])"
    more = catalogue((*SPELLINGS, Spelling("tile:{t}", (text,), ())))
    source = frame("s = exchange<3>(s, i, j + 1);")
    assert lift_source(source, BINDING, "sm_80").opaque
    lifted = lift_source(source, BINDING, "sm_80", catalogue=more)
    assert not lifted.opaque
    assert "s = exchange(s, 3, [i, j + 1])" in print_module(lifted.module)


def test_a_new_instruction_is_one_text():
    text = "griddepcontrol.wait -> wait_for_grid()"
    more = catalogue((*SPELLINGS, Spelling("none", (), (), (text,))))
    source = frame('asm volatile("griddepcontrol.wait;" ::: "memory");')
    assert lift_source(source, BINDING, "sm_80").opaque
    lifted = lift_source(source, BINDING, "sm_80", catalogue=more)
    assert not lifted.opaque and "wait_for_grid()" in print_module(lifted.module)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("none", "f({x}", "C\\+\\+ does not parse"),
        ("none", "f({x}) -> f({x}", "CuIR does not parse"),
        ("nothing", "f({x})", "unknown kind nothing"),
        ("tile", "f({x})", "unknown kind tile"),
        ("tile:{y}", "f({x})", "unknown kind"),
        ("none", "f({x}) -> f({y})", "holes"),
        ("none", "f({x:thing})", "unknown kind thing"),
        ("none", "sync()", "stands twice"),
    ],
)
def test_a_wrong_spelling_is_named(kind: str, text: str, words: str):
    with pytest.raises(ValueError, match=words):
        catalogue((*SPELLINGS, Spelling(kind, (text,), ())))


@pytest.mark.parametrize("text", ["x", "x -> y", "x -> f({n})"])
def test_a_wrong_instruction_is_named(text: str):
    with pytest.raises(ValueError, match="x: "):
        catalogue((Spelling("none", (), (), (text,)),))
