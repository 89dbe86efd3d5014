"""The picture of a mask as glyphs: readable without colours, computed a row at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from cubridge_tui.model import mask_words
from cubridge_tui.model.mask import MaskGrid, legend
from cubridge_tui.model.mask_sizes import (
    choices,
    failing_case,
    legal_sizes,
    outcomes,
    sizes_of_case,
    tiles,
)
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.deck import Tiles, quick
from engine.service.views.keep_map import KeepMap, Pair
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import lifted, recipe

CAUSAL = recipe(keep="j <= i + (Nk - Nq)")


def grid(break_it: bool = False, nq: int = 150, nk: int = 150) -> MaskGrid:
    base = lifted("flash_fwd_sm80")
    planned = plan(base, CAUSAL)
    target = [*apply(base, planned.steps)][-1][1]
    if break_it:
        text = print_module(target)
        line = next(x for x in text.split("\n") if " keep(s, " in x)
        target = parse_module(text.replace(line, line.replace("j <= i", "j < i")), "bad.cuir")
    sizes = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": nq, "Nk": nk, "D": 128, "Dv": 128}
    return MaskGrid(KeepMap(CAUSAL, target, planned.binding, sizes, base=base))


def glyphs(picture: MaskGrid, i: int) -> str:
    return "".join(picture.pair_cell(i, j).glyph for j in range(picture.keys))


def test_glyphs_alone_tell_kept_masked_skipped_and_tile_class() -> None:
    picture = grid()
    while picture.compute() is not None:
        pass
    assert picture.done and not picture.wrong
    first = glyphs(picture, 0)
    assert first.startswith("▓▄ ")
    # Rows 0 to 127 visit keys up to 127: the last tile is never visited.
    assert set(first[128:]) == {"·"}
    later = glyphs(picture, 130)
    assert later.startswith("█" * picture.columns)
    assert "▓" in later and "▄" in later
    assert [picture.tile_cell(1, n).glyph for n in range(picture.tiles[1])] == list("████▓")


def test_wrong_pairs_are_signed_by_the_side_that_keeps_them() -> None:
    """Also in the tile view, and where one cell has both."""
    module = lifted("flash_fwd_sm80")  # it keeps every pair
    sizes = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 4, "Nk": 4, "D": 128, "Dv": 128}
    binding = plan(module, CAUSAL).binding

    def drawn(keep: str) -> MaskGrid:
        picture = MaskGrid(KeepMap(recipe(keep=keep), module, binding, sizes, base=module))
        while picture.compute() is not None:
            pass
        return picture

    more = drawn("j <= i")
    assert [glyphs(more, i) for i in (0, 2)] == ["▓+++", "▓▓▓+"]
    assert more.tile_cell(0, 0).glyph == "+"
    less = MaskGrid(more.picture)
    less.picture.row = lambda i: [Pair(True, j != 0 or i == 3) for j in range(4)]  # type: ignore[method-assign]
    while less.compute() is not None:
        pass
    assert [glyphs(less, i)[0] for i in (0, 2)] == ["-", "-"]
    assert less.tile_cell(0, 0).glyph == "-"
    mixed = MaskGrid(more.picture)
    mixed.picture.row = lambda i: [Pair(i % 2 == 0, i % 2 == 1)] * 4  # type: ignore[method-assign]
    while mixed.compute() is not None:
        pass
    assert glyphs(mixed, 0) == "××××" and mixed.tile_cell(0, 0).glyph == "×"


def test_hunks_that_are_undecided_are_why_rows_differ() -> None:
    picture = grid(break_it=True)
    while picture.compute() is not None:
        pass

    def said(undecided: int) -> str:
        return "".join(text for text, _ in mask_words.finding(picture, "", undecided))

    assert said(0) == " × 150 failing rows"
    assert said(2) == " 150 rows of the target as decided so far differ: 2 hunks undecided"
    assert said(1).endswith(": 1 hunk undecided")


def test_wrong_pairs_and_their_rows_are_found() -> None:
    picture = grid(break_it=True)
    picture.compute(37)
    assert picture.wrong == {37: 37}
    assert picture.pair_cell(36, 37).glyph == "…" or picture.pair(36, 37) is None
    picture.compute(36)
    assert picture.pair_cell(36, 37).glyph == "-"
    assert picture.tile_cell(0, 1).glyph == "-"
    assert "the spec keeps it, the target masks it" in picture.describe(37, 37)
    while picture.compute() is not None:
        pass
    assert len(picture.wrong) == 150
    assert picture.next_wrong(37, 1) == 38
    assert picture.next_wrong(0, -1) == 149


def test_rows_that_keep_nothing_are_known() -> None:
    picture = grid(nq=40, nk=33)
    while picture.compute() is not None:
        pass
    assert picture.empty == set(range(7))
    assert not picture.wrong


def test_an_unknown_row_is_shown_as_such() -> None:
    picture = grid()
    assert set(glyphs(picture, 0)) == {"…"}
    assert picture.compute(10) == 10
    assert picture.compute() == 0
    assert picture.known == 2


def test_sizes_come_from_what_a_verdict_quotes() -> None:
    text = "B 2, heads 4/2, Nq 70, Nk 33, peaked"
    sizes = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 70, "Nk": 33}
    assert sizes_of_case(text) == sizes
    assert sizes_of_case("no case") is None
    assert failing_case({"runs": [{"case": "x"}, {"case": text}]}) == sizes
    assert failing_case({"counterexample": {"case": text}, "runs": []}) == sizes
    assert failing_case({"runs": "odd"}) is None


TILE = Tiles(128, 32)


def test_offered_sizes_obey_the_spec() -> None:
    square = replace(CAUSAL, constraints=(parse_expr("Nq == Nk"),))
    offered = choices(square, 128, None, TILE)
    assert offered and all(s["Nq"] == s["Nk"] for s in offered)
    wanted = legal_sizes(square, {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 3, "Nk": 9, "D": 64})
    assert wanted is not None and wanted["Nq"] == wanted["Nk"] == 9
    failing = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 70, "Nk": 33}
    assert choices(CAUSAL, 64, failing, TILE)[0] == failing | {"D": 64, "Dv": 64}


@pytest.mark.parametrize(
    ("constraints", "fits"),
    [
        (("Nq % 128 == 0", "Nk % 128 == 0"), lambda s: s["Nq"] % 128 == s["Nk"] % 128 == 0),
        (("Nk == 2000",), lambda s: s["Nk"] == 2000),
        (("Nq == Nk", "Nk % 96 == 0"), lambda s: s["Nq"] == s["Nk"] and s["Nk"] % 96 == 0),
        (("Hq == Hkv", "Nq == Nk"), lambda s: s["Hq"] == s["Hkv"] and s["Nq"] == s["Nk"]),
    ],
)
def test_what_the_spec_forbids_is_never_offered(constraints: tuple[str, ...], fits: object) -> None:
    asked = replace(CAUSAL, constraints=tuple(map(parse_expr, constraints)))
    offered = choices(asked, 128, None, TILE)
    assert callable(fits) and offered and all(map(fits, offered))
    assert legal_sizes(replace(CAUSAL, constraints=(parse_expr("Nq < 0"),)), offered[0]) is None


@pytest.mark.parametrize(
    "keep",
    [
        "j <= i + (Nk - Nq) and i + (Nk - Nq) - j < 1024",
        "j <= i or j < 700",
        "i // 512 == j // 512",
        "j <= i + (Nk - Nq)",
        "j <= i and i - j < 48",
    ],
)
def test_the_first_sizes_show_every_part_of_the_mask(keep: str) -> None:
    """Each comparison comes out both ways: a window is seen to end, a prefix to be passed."""
    asked = recipe(keep=keep)
    comparisons = keep.count("<") + keep.count("==")
    first = choices(asked, 128, None, TILE)[0]
    assert outcomes(asked, first) == 2 * comparisons
    assert first["Nq"] > TILE.rows and first["Nk"] > TILE.keys


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_sizes_and_tiles_are_the_kernels_own(kernel: str) -> None:
    module = lifted(kernel)
    tile = tiles(module)
    sizes = {(s["Nq"], s["Nk"]) for s in choices(CAUSAL, 128, None, tile)}
    assert sizes == {(c.Nq, c.Nk) for c in quick(tile) if c.Nq and c.Nk}
    planned = plan(module, CAUSAL)
    target = [*apply(module, planned.steps)][-1][1]
    whole = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 150, "Nk": 150, "D": 128, "Dv": 128}
    drawn = KeepMap(CAUSAL, target, planned.binding, whole, base=module).tile
    # Three warpgroups ask for the class of 64 rows each; a block of the other kernel, for its own.
    assert drawn == (64 if kernel.endswith("90") else tile.rows, tile.keys)
    assert KeepMap(CAUSAL, None, None, whole, tile=drawn).tile == drawn


def test_the_legend_has_the_cursors_glyph_and_fits_80_columns() -> None:
    shares = {"█": "40%", "▓▀▄": "12%", "·": "48%"}
    for width, differs in product((80, 120), (False, True)):
        entries = legend(differs, width, shares)
        text = "".join(f" {glyph} {words} " for glyph, _, words in entries)
        assert "□" in text and len(text) <= width
        assert all((f"{s} " in text) is (width == 120 or not differs) for s in shares.values())
        assert [sign in text for sign in "+-×"] == [differs] * 3


@pytest.mark.parametrize("text", ["1080 57", "1080,57", " 1080, 57 "])
def test_a_pair_may_have_a_comma(text: str) -> None:
    assert mask_words.place_problem(text) == "" and mask_words.size_problem(text) == ""
    assert mask_words.numbers(text) == [1080, 57]
    assert mask_words.place_problem(f"{text},3") and mask_words.place_problem("1080;57")


def test_a_mask_at_a_glance_is_told_by_its_tiles_alone() -> None:
    """Shares and the order of visits need no row; cells of several tiles say the worst of them."""
    picture = grid(nq=512, nk=512)
    assert picture.tile_cell(0, 0).glyph == "…" and "not known yet" in picture.describe(0, 0)
    while (part := picture.next_part) is not None:
        picture.compute_tiles(part)
    assert (
        picture.known == 0 and sum(picture.counts.values()) == picture.tiles[0] * picture.tiles[1]
    )
    assert mask_words.shares(picture) == {"█": "38%", "▓▀▄": "25%", "·": "38%"}
    assert mask_words.kept(picture) == ""  # no row is known
    assert "visited 1 of 4" in picture.describe(0, 0)
    assert picture.group_cell(range(2), range(1)).glyph == "▓"  # one full, one partial
    assert picture.group_cell(range(1), range(10, 12)).glyph == "·"
    assert picture.compute() == picture.rows - 1  # of a large mask the ends of parts come first
    broken = grid(break_it=True, nq=512, nk=512)
    broken.compute(130)
    assert broken.group_cell(range(4), range(16)).style == "fail"


def test_only_proven_goals_of_the_schedule_are_told() -> None:
    proofs = [
        {"about": "the tile schedule", "goal": "visited tiles exist", "answer": "proven"},
        {"about": "the tile schedule", "goal": "tiles are visited once", "answer": "unknown"},
        {"about": "the order of work", "goal": "pieces are taken once", "answer": "proven"},
    ]
    assert mask_words.proven({"proofs": proofs}) == " proven for all sizes: visited tiles exist"
    assert mask_words.proven({}) == ""


def test_of_an_executed_kernel_the_work_is_told() -> None:
    assert mask_words.executed({"proofs": []}) == ""
    details = {"work": {"cases": 2, "before": 12_500_000, "after": 3_400_000}}
    assert mask_words.executed(details) == (
        " executed as PTX: 12,500,000 thread instructions of the source, 3,400,000 of the patch in "
        "the same 2 cases; its tiles are not drawn"
    )
