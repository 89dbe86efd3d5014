from __future__ import annotations

from hypothesis import given, settings

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module, walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from tests.engine.cuir.changes.test_diff import kernel
from tests.engine.cuir.random_modules import modules


def test_ids_are_short_and_unique() -> None:
    ids = assign(kernel())
    assert ids[("tile_count",)] == "f1"
    assert len(set(ids.values())) == len(ids)
    assert set(ids) == {p for p, _ in walk(kernel())} | {(f.name,) for f in kernel().functions}


@settings(max_examples=40, deadline=None)
@given(modules)
def test_a_text_with_ids_is_the_module(module: Module) -> None:
    assert parse_module(print_module(module, assign(module))) == module
