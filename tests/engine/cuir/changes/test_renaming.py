"""A new version's names for what an old one has: found where only names differ, never a program
changed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from engine.cuir.canonical import equal
from engine.cuir.changes.renaming import Renaming, renaming
from engine.cuir.nodes import Module, Param
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from tests.engine.cuir.changes.test_diff import KERNEL, kernel
from tests.engine.cuir.random_modules import modules


def test_locals_constants_and_functions_that_were_renamed_are_found() -> None:
    new = KERNEL
    for old, now in (
        ("tiles", "count"), ("tile_full", "all_kept"), (" m", " top"),
        (", m)", ", top)"), ("BM", "ROWS"), ("step", "tile"),
    ):  # fmt: skip
        new = new.replace(old, now)
    found = renaming(kernel(), parse_module(new))
    assert print_module(found(kernel())) == print_module(parse_module(new))
    assert found.functions == {"tile_full": "all_kept"}
    assert found.inside["flash_fwd"] == {
        "tiles": "count", "m": "top", "BM": "ROWS", "step": "tile"
    }  # fmt: skip


def test_a_name_that_what_is_renamed_beside_has_already_is_not_given_again() -> None:
    new = kernel(("tiles = ", "cap = "), ("range(tiles)", "range(cap)"))
    beside = kernel(("    m = fill", "    cap = 2\n    m = fill"))
    assert renaming(kernel(), new).inside == {"flash_fwd": {"tiles": "cap"}}
    assert not renaming(kernel(), new, [beside])


def test_a_lambda_that_would_catch_the_name_keeps_it_from_being_given() -> None:
    line = "    m = fill(row_of[mma_acc[BM, D, WARPS]], -inf)\n"
    for body, found in (("x * cap", True), ("x * cap + tiles", False)):
        old = kernel((line, f"{line}    z = map(m, lambda x, cap: {body})\n"))
        new = kernel(
            ("tiles = ", "cap = "), ("range(tiles)", "range(cap)"),
            (line, f"{line}    z = map(m, lambda x, y: {body.replace('cap', 'y')})\n"),
        )  # fmt: skip
        assert renaming(old, new).of("flash_fwd") == ({"tiles": "cap"} if found else {})


def test_a_name_that_stays_is_not_taken_for_another() -> None:
    added = ("    tiles = ", "    first = tile_count[BN](args, q0)\n    tiles = ")
    assert not renaming(kernel(), kernel(added))


def constants_as_parameters(module: Module) -> Module:
    """The module with its constants as parameters, whose names take no part in equality."""
    functions = (
        replace(f, params=(*f.params, *map(Param, f.consts)), consts=()) for f in module.functions
    )
    return replace(module, functions=tuple(functions))


@settings(max_examples=100)
@given(modules, modules)
def test_renaming_changes_no_program(old: Module, new: Module) -> None:
    made = Renaming({}, renaming(old, new).inside)(old)
    assert equal(constants_as_parameters(old), constants_as_parameters(made))
