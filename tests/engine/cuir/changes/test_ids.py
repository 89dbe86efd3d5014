from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.changes.diff import diff
from engine.cuir.changes.ids import assign, carry, carry_table, same_ids
from engine.cuir.nodes import Assign, Module, Name, Path, Stmt, walk
from engine.cuir.parser import parse_with_tables
from engine.cuir.printer import print_module
from tests.engine.cuir.changes.test_diff import kernel
from tests.engine.cuir.random_modules import edit_module, edited, modules


def at(module: Module, path: Path) -> Stmt:
    return dict(walk(module))[path]


def test_ids_are_short_and_unique() -> None:
    ids = assign(kernel())
    assert ids[("tile_count",)] == "f1"
    assert len(set(ids.values())) == len(ids)
    assert set(ids) == {p for p, _ in walk(kernel())} | {(f.name,) for f in kernel().functions}


def test_survivors_keep_their_ids_and_new_statements_get_new_ones() -> None:
    old = kernel()
    ids = assign(old)
    new = kernel(
        ("        sync()\n        s = zeros", "        fence()\n        sync()\n        s = zeros")
    )
    after = carry(ids, diff(old, new), new)
    last = max(int(i[1:]) for i in ids.values())
    assert after[("flash_fwd", 3, "body", 1)] == f"s{last + 1}"
    assert after[("flash_fwd", 3, "body", 2)] == ids[("flash_fwd", 3, "body", 1)]


def test_an_id_is_never_given_again() -> None:
    old = kernel()
    ids = assign(old)
    shorter = edit_module(old, ("launch", 2), ())
    without = carry(ids, diff(old, shorter), shorter)
    gone = set(ids.values()) - set(without.values())
    assert gone == {ids[("launch", 2)]}
    longer = edit_module(
        shorter, ("launch", 1), (at(shorter, ("launch", 1)), Assign("z", Name("y")))
    )
    again = carry(without, diff(shorter, longer), longer, used=ids.values())
    assert not gone & set(again.values())


def test_ids_in_a_text_tell_the_statements() -> None:
    old = kernel()
    ids = assign(old)
    text = print_module(old, ids).replace("m = row_max(s, m)", "top = largest(s)")
    back = parse_with_tables(text)
    found = diff(old, back.module, same_ids(ids, back.ids))
    assert [e.kind.value for e in found.edits] == ["change"]
    assert carry(ids, found, back.module) == ids


def test_an_id_that_stands_twice_proves_nothing() -> None:
    assert same_ids({("f", 0): "s1"}, {("f", 0): "s1", ("f", 1): "s1"}) == {}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_carried_ids_are_unique_and_complete(data: st.DataObject) -> None:
    old = data.draw(modules)
    new = data.draw(edited(old) | modules)
    ids = assign(old)
    found = diff(old, new)
    after = carry(ids, found, new)
    assert len(set(after.values())) == len(after)
    assert set(after) == {p for p, _ in walk(new)} | {(f.name,) for f in new.functions}
    for before, path in found.pairs.items():
        assert after[path] == ids[before]
    assert carry_table(dict(walk(old)), found).keys() == {
        path for path in found.pairs.values() if len(path) > 1
    }


@settings(max_examples=40, deadline=None)
@given(modules)
def test_printed_ids_parse_back(module: Module) -> None:
    ids = assign(module)
    back = parse_with_tables(print_module(module, ids))
    assert back.module == module
    assert back.ids == ids
