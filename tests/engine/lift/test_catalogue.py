"""The catalogue as data: every entry works, broken files are refused, new entries need no code."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Call, walk_expr
from engine.cuir.ops import OPS
from engine.cuir.printer import print_module
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.errors import LiftError
from engine.lift.catalogue import default_catalogue, parse_catalogue
from engine.lift.lifter import lift_source
from engine.resources import kernels_dir
from tests.engine.lift.sources import BINDING, frame

FILE = kernels_dir() / "catalogue" / "lift.toml"
TEXT = FILE.read_text()


def calls() -> set[str]:
    """Every op or function that the catalogue can write."""
    catalogue = default_catalogue()
    exprs = [p.cuir for bucket in catalogue.by_head.values() for p in bucket]
    exprs += [p.cuir for p in catalogue.asm]
    return {n.fn for e in exprs for n in walk_expr(e) if isinstance(n, Call)}


def test_every_op_of_the_catalogue_is_declared():
    assert calls() <= set(OPS) | set(FUNCTIONS) | set(CASTS)


def test_every_declared_op_has_a_spelling():
    assert set(OPS) | set(FUNCTIONS) <= calls()


def test_a_new_spelling_is_one_entry():
    entry = """
[[op]]
cxx = "exchange<{n}>({t:tile}, {at...})"
cuir = "exchange({t}, {n}, [{at...}])"
type = "tile:{t}"
"""
    catalogue = parse_catalogue((TEXT + entry).encode(), "mine.toml")
    source = frame("s = exchange<3>(s, i, j + 1);")
    assert lift_source(source, BINDING, "sm_80").opaque
    lifted = lift_source(source, BINDING, "sm_80", catalogue=catalogue)
    assert not lifted.opaque
    assert "s = exchange(s, 3, [i, j + 1])" in print_module(lifted.module)


def test_a_new_instruction_is_one_entry():
    entry = '\n[[asm]]\nptx = "griddepcontrol.wait"\ncuir = "wait_for_grid()"\n'
    catalogue = parse_catalogue((TEXT + entry).encode(), "mine.toml")
    source = frame('asm volatile("griddepcontrol.wait;" ::: "memory");')
    assert lift_source(source, BINDING, "sm_80").opaque
    lifted = lift_source(source, BINDING, "sm_80", catalogue=catalogue)
    assert not lifted.opaque and "wait_for_grid()" in print_module(lifted.module)


BROKEN = {
    "syntax": "version = ",
    "version": TEXT.replace("version = 1", "version = 2"),
    "unknown table": TEXT + "\n[other]\n",
    "cxx": TEXT + '\n[[op]]\ncxx = "f({x}"\ntype = "none"\n',
    "cuir": TEXT + '\n[[op]]\ncxx = "f({x})"\ncuir = "f({x}"\ntype = "none"\n',
    "type": TEXT + '\n[[op]]\ncxx = "f({x})"\ntype = "nothing"\n',
    "a tile of nothing": TEXT + '\n[[op]]\ncxx = "f({x})"\ntype = "tile"\n',
    "a tile of another hole": TEXT + '\n[[op]]\ncxx = "f({x})"\ntype = "tile:{y}"\n',
    "no type": TEXT + '\n[[op]]\ncxx = "f({x})"\n',
    "unknown key": TEXT + '\n[[op]]\ncxx = "f({x})"\ntype = "none"\nhook = "x"\n',
    "hole": TEXT + '\n[[op]]\ncxx = "f({x})"\ncuir = "f({y})"\ntype = "none"\n',
    "kind of a hole": TEXT + '\n[[op]]\ncxx = "f({x:thing})"\ntype = "none"\n',
    "twice": TEXT + '\n[[op]]\ncxx = "sync()"\ntype = "none"\n',
    "lambda": TEXT + '\n[[op]]\ncxx = "f({x:lambda})"\ntype = "tile"\n',
    "asm": TEXT + '\n[[asm]]\nptx = "x"\n',
    "symbol": TEXT.replace("[constants]", '[constants]\nX = "x"'),
    "scalar": TEXT.replace("[scalar]", '[scalar]\nf = 3'),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_catalogue_is_refused(name: str):
    with pytest.raises(LiftError) as caught:
        parse_catalogue(BROKEN[name].encode(), "mine.toml")
    assert caught.value.where is not None and caught.value.where.file == "mine.toml"
    assert caught.value.fix
