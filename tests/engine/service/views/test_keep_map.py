"""The picture of a mask: what the target keeps is computed from its own schedule and predicate."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError
from engine.lower.spelling.legal import legal
from engine.resources import specs_dir
from engine.service.views.keep_map import KeepMap
from engine.service.views.target_mask import TileClass
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import VARIANTS, lifted, recipe

SIZES = ((70, 33), (1, 130), (140, 150))
MORE = {
    "prefix": recipe(keep="j < 256 or j <= i"),
    "flags": recipe(keep="keep_it[i, j]", extra=(Input("keep_it", "extra", "bool", ("Nq", "Nk")),)),
    "two_tables": recipe(
        keep="dq[b, i] == dk[b, j]",
        extra=(Input("dq", "extra", "i32", ("B", "Nq")), Input("dk", "extra", "i32", ("B", "Nk"))),
    ),
    "per_head": recipe(keep="i - j <= reach[h]", extra=(Input("reach", "extra", "i32", ("Hq",)),)),
}


def sizes(nq: int, nk: int) -> dict[str, int]:
    return {"B": 2, "Hq": 4, "Hkv": 2, "Nq": nq, "Nk": nk, "D": 128, "Dv": 128}


def carried(kernel: str, wanted: Recipe) -> tuple[Module, Module, KeepMap]:
    base = lifted(kernel)
    planned = plan(base, wanted)
    trail = list(apply(base, planned.steps))
    target = trail[-1][1] if trail else base
    return base, target, KeepMap(wanted, target, planned.binding, sizes(150, 190), 1, 3, base=base)


def wrong(picture: KeepMap) -> set[tuple[int, int]]:
    return {
        (i, j)
        for i in range(picture.queries)
        for j, pair in enumerate(picture.row(i))
        if not pair.same
    }


@pytest.mark.parametrize("kernel", ("flash_fwd_sm80", "flash_fwd_sm90"))
@pytest.mark.parametrize("name", sorted(VARIANTS | MORE))
def test_what_the_rules_write_keeps_what_the_spec_keeps(kernel: str, name: str) -> None:
    wanted = (VARIANTS | MORE)[name]
    base = lifted(kernel)
    planned = plan(base, wanted)
    trail = list(apply(base, planned.steps))
    target = trail[-1][1] if trail else base
    for nq, nk in SIZES[:2] if kernel.endswith("90") else SIZES:
        picture = KeepMap(wanted, target, planned.binding, sizes(nq, nk), 1, 3, base=base)
        assert wrong(picture) == set()


@pytest.mark.parametrize(
    ("old", "new", "pair"),
    [
        # an off-by-one predicate drops the diagonal of partial tiles
        ("lambda i, j: j < args.Nk and j <= i + (args.Nk - args.Nq)", None, (0, 40)),
        # a schedule that ends a tile early never visits the last keys
        ("return max(0, ceil_div(", "return max(0, -1 + ceil_div(", None),
    ],
)
def test_a_wrong_target_differs_where_it_is_wrong(
    old: str, new: str | None, pair: tuple[int, int] | None
) -> None:
    wanted = VARIANTS["softcap_causal"]
    base, target, _ = carried("flash_fwd_sm80", wanted)
    text = print_module(target)
    if new is None:
        line = next(x for x in text.split("\n") if " keep(s, lambda" in x)
        broken = text.replace(line, line.replace("j <= i", "j < i"))
    else:
        line = next(x for x in text.split("\n") if "ceil_div(min(" in x)
        broken = text.replace(line, line.replace("ceil_div(min(", "-1 + ceil_div(min("))
    assert broken != text
    bad = parse_module(broken, "bad.cuir")
    binding = plan(base, wanted).binding
    picture = KeepMap(wanted, bad, binding, sizes(150, 190), base=base)
    found = wrong(picture)
    assert found
    if pair is not None:
        assert pair in found
        assert all(j == i + 40 for i, j in found)
    else:
        assert all(picture.tile_class(i, j) is TileClass.SKIP for i, j in found)


def test_classes_say_what_the_schedule_does() -> None:
    _, _, picture = carried("flash_fwd_sm80", VARIANTS["window"])
    rows, keys = picture.tile
    kinds = {
        picture.tile_class(i, j)
        for i in range(0, picture.queries, rows)
        for j in range(0, picture.keys, keys)
    }
    assert TileClass.PARTIAL in kinds
    for i in (0, 149):
        for j, pair in enumerate(picture.row(i)):
            if picture.tile_class(i, j) is TileClass.SKIP:
                assert not pair.got
            if picture.tile_class(i, j) is TileClass.FULL:
                assert pair.got


def test_without_a_target_the_spec_alone_is_drawn() -> None:
    picture = KeepMap(recipe(keep="j <= i"), None, None, sizes(5, 7))
    assert [p.wanted for p in picture.row(2)] == [True] * 3 + [False] * 4
    assert picture.tile == (64, 64)
    large = KeepMap(recipe(keep="j <= i"), None, None, sizes(150, 190), tile=(64, 64))
    tiles = [[large.tile_class(i, j).name for j in (0, 64, 128)] for i in (0, 64, 128)]
    assert tiles == [["PARTIAL", "SKIP", "SKIP"], ["FULL", "PARTIAL", "SKIP"],
                     ["FULL", "FULL", "PARTIAL"]]  # fmt: skip


def test_what_cannot_be_drawn_says_so() -> None:
    wanted = VARIANTS["softcap_causal"]
    base, target, _ = carried("flash_fwd_sm80", wanted)
    function = target.function("tile_full")
    bad = replace(
        target,
        functions=tuple(
            replace(f, params=f.params[:3]) if f is function else f for f in target.functions
        ),
    )
    with pytest.raises(CuBridgeError, match="schedule"):
        KeepMap(wanted, bad, plan(base, wanted).binding, sizes(5, 7), base=base)


def test_no_torch_is_loaded(root: Path) -> None:
    code = (
        "import sys\n"
        "import tests.engine.service.views.test_keep_map as t\n"
        "_, _, p = t.carried('flash_fwd_sm80', t.MORE['two_tables'])\n"
        "[p.row(i) for i in range(20)]\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


WRONG_WINDOWS = {
    "keep": ("j >= i + offset - 299", "j >= i + offset - 298"),
    "full": ("args.Nq + 299 >= last", "args.Nq + 330 >= last"),
    "full_by_block": ("BN, 64](args, b, h, row0, n)", "BN, 64](args, b, h, q0, n)"),
    # No more than there are: a warpgroup that waits for a tile that nobody loads shows no rows.
    "lead": (
        "return max(0, end - max(begin, own_end))",
        "return min(end - begin, 1 + max(0, end - max(begin, own_end)))",
    ),
}


@pytest.mark.parametrize(
    ("kernel", "what"),
    [("flash_fwd_sm80", w) for w in ("keep", "full")]
    + [("flash_fwd_sm90", w) for w in WRONG_WINDOWS],
)
def test_failing_rows_are_those_of_g2(kernel: str, what: str) -> None:
    """Whole tiles are taken without the predicate, so a wrong one shows in partial tiles alone:
    which those are, one kernel asks for a block of rows, the other for each warpgroup's."""
    from engine.gates.deck import Case
    from engine.gates.g1_g2.by_recipe import BY_RECIPE
    from engine.gates.runs.case_run import exact
    from engine.gates.runs.subject import Subject
    from engine.spec.read import read_recipe

    spec = specs_dir() / "sliding_window_causal.py"
    wanted = read_recipe(spec, {"window": 300})
    base = lifted(kernel)
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    text = print_module(legal(target))
    old, new = WRONG_WINDOWS[what]
    assert old in text
    bad = parse_module(text.replace(old, new), "bad.cuir")
    subject = Subject(bad, wanted, planned.binding, spec, {"window": 300})
    found = 0
    for nq, nk in ((450, 450), (193, 501), (130, 390)):
        at = sizes(nq, nk) | {"B": 1, "Hq": 1, "Hkv": 1}
        failure, _ = exact(BY_RECIPE, subject, Case(1, 1, 1, nq, nk), 0)
        example = failure.counterexample if failure is not None else None
        rows = {i for i, _ in wrong(KeepMap(wanted, bad, planned.binding, at, base=base))}
        assert len(rows) == (example["wrong_rows"] if example is not None else 0), (nq, nk)
        assert example is None or example["i"] in rows
        found += len(rows)
    assert found > 0


@pytest.mark.parametrize(
    ("keep", "dims"),
    [
        ("j < lens[b]", ("B",)),
        ("i - j < lens[h] and j <= i", ("Hq",)),
        ("j < lens[b, h]", ("B", "Hq")),
        ("j < lens", ()),
    ],
)
def test_an_example_of_a_length_keeps_something_and_masks_something(
    keep: str, dims: tuple[str, ...]
) -> None:
    """A number that goes with no row or key: a mask of no keys, or of all, would show nothing."""
    wanted = recipe(keep=keep, extra=(Input("lens", "extra", "i32", dims),))
    for b, h in ((0, 0), (1, 3)):
        picture = KeepMap(wanted, None, None, sizes(150, 190), b, h)
        kept = [pair.wanted for i in range(150) for pair in picture.row(i)]
        assert any(kept) and not all(kept)
        (said,) = picture.examples()
        assert said.startswith("lens ") and int(said.split()[1]) > 1
