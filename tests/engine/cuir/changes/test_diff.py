from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import EditKind, after_text, before_text, hunks
from engine.cuir.changes.patch import apply
from engine.cuir.nodes import Module, walk
from engine.cuir.parser import parse_module
from tests.engine.cuir.random_modules import edited, modules

KERNEL = """\
specialisation(arch='sm_80', T=bf16, D=128)


class Args:
    q: tensor
    o: tensor
    Nk: i32
    scale: f32


@device
def tile_count(args, q0: i32, *, BN):
    return ceil_div(args.Nk, BN)


@device
def tile_full(args, n: i32, *, BN):
    return (n + 1) * BN <= args.Nk


@kernel(threads=WARPS * 32)
def flash_fwd(args, *, T, D, BM, BN, WARPS):
    q0 = block_id(0) * BM
    tiles = tile_count[BN](args, q0)
    m = fill(row_of[mma_acc[BM, D, WARPS]], -inf)
    for step in range(tiles):
        wait_async(0)
        sync()
        s = zeros(mma_acc[BM, BN, WARPS])
        gemm(s, sQ, transpose(sK[step]))
        s = keep(s, lambda i, j: j < args.Nk, at=[q0, step * BN])
        m = row_max(s, m)
        sync()
    store(sQ, m)


@host
def launch(args, *, T, D):
    BM = 128
    run(flash_fwd[T, D, BM, 64, 4], [args], grid=[1], threads=128, shared=0)
    return success
"""


def kernel(*changes: tuple[str, str]) -> Module:
    text = KERNEL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse_module(text)


def kinds(old: Module, new: Module) -> list[tuple[str, str]]:
    return [(e.kind.value, str(e.path[0])) for e in diff(old, new).edits]


def test_equal_modules_have_no_edits() -> None:
    found = diff(kernel(), kernel())
    assert not found and hunks(found) == ()
    assert all(found.pairs[path] == path for path, _ in walk(kernel()))


def test_one_changed_constant_is_one_change() -> None:
    old, new = kernel(), kernel(("BM = 128", "BM = 64"))
    (edit,) = diff(old, new).edits
    assert edit.kind is EditKind.CHANGE
    assert edit.old_path == edit.new_path == ("launch", 0)


def test_an_inserted_statement_is_found_where_it_stands() -> None:
    capped = "        s = map(s, lambda x: tanh(x))\n"
    new = kernel(("        s = keep(", f"{capped}        s = keep("))
    (edit,) = diff(kernel(), new).edits
    assert edit.kind is EditKind.INSERT
    assert edit.new_path == ("flash_fwd", 3, "body", 4)


def test_a_repeated_statement_is_inserted_once() -> None:
    new = kernel(
        ("        sync()\n        s = zeros", "        sync()\n        sync()\n        s = zeros")
    )
    assert kinds(kernel(), new) == [("insert", "flash_fwd")]


def test_a_loop_header_changes_without_its_body() -> None:
    new = kernel(("in range(tiles):", "in range(1, tiles):"))
    (edit,) = diff(kernel(), new).edits
    assert edit.kind is EditKind.CHANGE
    text = after_text(hunks(diff(kernel(), new))[0], new)
    assert text == "for step in range(1, tiles):\n"


def test_wrapping_in_an_if_moves_the_statement() -> None:
    line = "s = keep(s, lambda i, j: j < args.Nk, at=[q0, step * BN])"
    new = kernel(
        (f"        {line}", f"        if not tile_full[BN](args, step):\n            {line}")
    )
    found = diff(kernel(), new)
    assert [e.kind for e in found.edits] == [EditKind.INSERT, EditKind.MOVE]
    assert len(hunks(found)) == 1


def test_a_statement_that_changes_its_place_is_a_move() -> None:
    new = kernel(
        ("    m = fill(row_of[mma_acc[BM, D, WARPS]], -inf)\n", ""),
        ("    q0 = block", "    m = fill(row_of[mma_acc[BM, D, WARPS]], -inf)\n    q0 = block"),
    )
    found = diff(kernel(), new)
    assert [e.kind for e in found.edits] == [EditKind.MOVE]
    assert found.edits[0].old_path == ("flash_fwd", 2)
    assert found.edits[0].new_path == ("flash_fwd", 0)


def test_fields_are_told_by_name() -> None:
    new = kernel(("    scale: f32\n", "    window: i32\n    scale: f32\n"), ("Nk: i32", "Nk: i64"))
    assert [e.kind.value for e in diff(kernel(), new).edits] == ["change", "insert"]
    assert len(hunks(diff(kernel(), new))) == 2
    assert len(hunks(diff(kernel(), new), 1)) == 1  # as a proposal kept it that had stretches


def test_the_edits_of_a_device_function_are_one_hunk() -> None:
    new = kernel(
        (
            "    return ceil_div(args.Nk, BN)",
            "    last = min(args.Nk, q0 + 1)\n    return ceil_div(last, BN)",
        ),
        ("def tile_count(args, q0: i32, *, BN)", "def tile_count(args, q0: i32, *, BM, BN)"),
        ("tile_count[BN]", "tile_count[BM, BN]"),
        ("(n + 1) * BN <= args.Nk", "n * BN + BN <= args.Nk"),
    )
    found = hunks(diff(kernel(), new))
    assert [h.function for h in found] == ["tile_count", "tile_full", "flash_fwd"]
    assert len(found[0].edits) == 3
    assert before_text(found[0], kernel()).startswith("@device\ndef tile_count")


def test_new_and_gone_functions() -> None:
    helper = "@device\ndef slope(h: i32):\n    return 1.0\n\n\n"
    added = kernel(("@kernel", f"{helper}@kernel"))
    assert kinds(kernel(), added) == [("insert", "slope")]
    assert kinds(added, kernel()) == [("delete", "slope")]
    assert apply(diff(kernel(), added), kernel()) == added


def test_a_renamed_function_is_a_change() -> None:
    new = kernel(("def flash_fwd(", "def flash_alibi("), ("run(flash_fwd[", "run(flash_alibi["))
    assert kinds(kernel(), new) == [("change", "flash_alibi"), ("change", "launch")]


def test_a_diff_of_another_module_is_refused() -> None:
    found = diff(kernel(), kernel(("BM = 128", "BM = 64")))
    with pytest.raises(ValueError, match="another module"):
        apply(found, kernel(("BM = 128", "BM = 32")))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_applying_the_diff_gives_the_new_module(data: st.DataObject) -> None:
    old = data.draw(modules)
    new = data.draw(edited(old) | modules)
    found = diff(old, new)
    assert apply(found, old) == new
    assert bool(found) == (old != new)
    assert sorted(map(id, (e for h in hunks(found) for e in h.edits))) == sorted(
        map(id, found.edits)
    )


def test_a_statement_that_found_its_partner_is_not_paired_again() -> None:
    """Equal statements inside a loop that moves, one of which pairs with one outside of it."""
    head = "specialisation(arch='sm_80')\n\n\nclass Args:\n    a: i32\n\n\n@host\ndef t():\n"
    loop = ["for a in range(args.a):", "    pass"]
    old = parse_module(head + _indented(["return", "return", *loop, *_LOOP]))
    inner = [_LOOP[0], _LOOP[1], "    sync()", _LOOP[2]]
    new = parse_module(head + _indented([*loop, "if args.a:", *("    " + x for x in inner)]))
    found = diff(old, new)
    assert len(set(found.pairs.values())) == len(found.pairs)
    assert apply(found, old) == new


_LOOP = ("for a in range(0):", "    return", "    a = 0")


def _indented(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_part_of_the_hunks_can_be_applied(data: st.DataObject) -> None:
    old = data.draw(modules)
    new = data.draw(edited(old) | modules)
    found = diff(old, new)
    all_hunks = hunks(found)
    assert apply(found, old, ()) == old
    assert apply(found, old, all_hunks) == new
    part = [h for h in all_hunks if data.draw(st.booleans())]
    middle = apply(found, old, part)
    # What is left to accept leads to the same new module.
    assert apply(diff(middle, new), middle) == new
    assert {f.name for f in middle.functions} <= {f.name for f in (*old.functions, *new.functions)}


@settings(max_examples=30, deadline=None)
@given(modules)
def test_a_module_and_a_copy_of_it(module: Module) -> None:
    assert not diff(module, replace(module))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_diff_is_stable(data: st.DataObject) -> None:
    old = data.draw(modules)
    new = data.draw(edited(old))
    assert diff(old, new).edits == diff(old, new).edits
