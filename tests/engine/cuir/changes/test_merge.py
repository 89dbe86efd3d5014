"""Three-way merges: what one side left is the other's; what both changed is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.changes.merge import Merged, merge
from engine.cuir.matching import match_modules
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from tests.engine.cuir.changes.test_diff import KERNEL, kernel
from tests.engine.cuir.random_modules import edited, modules

KEEP = "        s = keep(s, lambda i, j: j < args.Nk, at=[q0, step * BN])\n"
CAP = "        s = map(s, lambda x: tanh(x))\n"
WAIT, SYNC = "        wait_async(0)\n", "        sync()\n"
MASKED = KEEP.replace("j < args.Nk", "j < args.Nk and j <= i")


def three(theirs: tuple[str, str], mine: tuple[str, str]) -> Merged:
    return merge(kernel(), kernel(theirs), kernel(mine))


@settings(max_examples=60)
@given(st.data())
def test_where_one_side_left_the_old_module_the_other_one_stands(data: st.DataObject) -> None:
    old = data.draw(modules)
    new = data.draw(edited(old))
    new = Module(old.spec, new.fields, new.functions)
    assert merge(old, new, old) == Merged(new, frozenset())
    both = merge(old, new, new)
    assert both == Merged(new, frozenset())
    mine = merge(old, old, new)
    assert not mine.conflicts
    assert set(mine.module.functions) == set(new.functions)  # their order is the old one's
    assert set(mine.module.fields) == set(new.fields)


def test_changes_of_other_statements_come_together() -> None:
    made = three(("BM = 128", "BM = 64"), (KEEP, CAP + MASKED))
    assert made == Merged(kernel(("BM = 128", "BM = 64"), (KEEP, CAP + MASKED)), frozenset())


def test_a_statement_beside_one_that_they_changed_is_no_conflict() -> None:
    fixed = ("gemm(s, sQ, transpose(sK[step]))", "gemm(s, sQ, transpose(sK[step % 2]))")
    made = three(fixed, (KEEP, CAP + KEEP))
    assert made == Merged(kernel(fixed, (KEEP, CAP + KEEP)), frozenset())


def test_one_statement_that_both_changed_is_mine_and_told() -> None:
    theirs = (KEEP, KEEP.replace("j < args.Nk", "j <= args.Nk"))
    made = three(theirs, (KEEP, MASKED))
    assert made.module == kernel((KEEP, MASKED))
    assert made.conflicts == {("flash_fwd", 3, "body", 4)}


def test_other_names_of_lambda_parameters_are_no_change() -> None:
    theirs = (KEEP, KEEP.replace("i, j: j", "row, col: col"))
    assert three(theirs, (KEEP, MASKED)) == Merged(kernel((KEEP, MASKED)), frozenset())
    assert three((KEEP, MASKED), theirs) == Merged(kernel((KEEP, MASKED)), frozenset())


def test_two_statements_put_in_one_place_are_told() -> None:
    made = three((KEEP, "        wait_group(0)\n" + KEEP), (KEEP, CAP + KEEP))
    assert made.module == kernel((KEEP, CAP + KEEP))
    assert made.conflicts == {("flash_fwd", 3, "body", 4)}


def test_a_function_that_they_took_away_and_mine_changed_is_told() -> None:
    body = "@device\ndef tile_full(args, n: i32, *, BN):\n    return (n + 1) * BN <= args.Nk\n\n\n"
    theirs = parse_module(KERNEL.replace(body, ""))
    mine = kernel(("(n + 1) * BN <= args.Nk", "n * BN < args.Nk"))
    made = merge(kernel(), theirs, mine)
    assert print_module(made.module) == print_module(mine)
    assert ("tile_full",) in made.conflicts and ("tile_full", 0) in made.conflicts
    assert merge(kernel(), theirs, kernel()).module == theirs


def test_added_fields_and_functions_follow_what_they_followed() -> None:
    theirs = kernel(("    Nk: i32\n", "    Nk: i32\n    B: i32\n"))
    added = "@device\ndef slot(args):\n    return 0\n\n\n@kernel("
    mine = kernel(("    scale: f32\n", "    scale: f32\n    window: i32\n"), ("@kernel(", added))
    made = merge(kernel(), theirs, mine)
    assert [f.name for f in made.module.fields] == ["q", "o", "Nk", "B", "scale", "window"]
    assert [f.name for f in made.module.functions][2:] == ["slot", "flash_fwd", "launch"]
    assert not made.conflicts


def test_what_one_side_put_among_statements_that_the_other_took_away_stays() -> None:
    put, gone = (WAIT + SYNC, WAIT + CAP + SYNC), (WAIT + SYNC, "")
    stays = Merged(kernel((WAIT + SYNC, CAP)), frozenset())
    assert three(put, gone) == stays
    assert three(gone, put) == stays


def test_what_was_taken_away_of_two_alike_is_told() -> None:
    old, mine = (WAIT + SYNC, SYNC + WAIT + SYNC), (WAIT + SYNC, SYNC)
    theirs = (WAIT + SYNC, SYNC + CAP + WAIT + SYNC)
    made = merge(kernel(old), kernel(theirs), kernel(mine))
    assert made.module == kernel(mine)
    assert made.conflicts


def test_a_statement_that_became_one_of_other_blocks_is_taken_or_told() -> None:
    old = kernel()
    branch = ("    for step in range(tiles):\n", "    if tiles > 0:\n")
    theirs = kernel(branch, ("sK[step]", "sK[0]"), ("step * BN]", "0]"))
    mine = kernel((KEEP, CAP + KEEP))
    pairs = match_modules(old, old)
    assert merge(old, theirs, old, pairs) == Merged(theirs, frozenset())
    made = merge(old, theirs, mine, pairs)
    assert made.module == mine
    assert ("flash_fwd", 3) in made.conflicts
