"""Other bounds of the loop over keys, where a mask drops whole tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.cuir.parser import parse_expr as expr
from engine.foreign.probe.places import Found
from engine.graft.edits import apply
from engine.graft.tiles import fewer_tiles
from tests.engine.graft import made
from tests.engine.graft.test_cases import recipe

CAUSAL = "j <= i + Nk - Nq"
WINDOW = f"{CAUSAL} and i + Nk - Nq - j < 20"


def bounds(found: Found, keep: str) -> list[list[str]]:
    """The lines that each try changes, as they become."""
    loop = found.loops[0]
    data = loop.file.read_bytes()
    out: list[list[str]] = []
    for edits in fewer_tiles(recipe(keep), found, {loop.file: data}, loop.file == made.PLAIN):
        new = apply({loop.file: data}, edits)[loop.file].decode().splitlines()
        old = data.decode().splitlines()
        out.append([b.strip() for a, b in zip(old, new, strict=True) if a != b])
    return out


def test_the_loop_ends_sooner_where_its_bound_is_made() -> None:
    """What loads the next tile is told by the same bound."""
    assert bounds(made.mma(), CAUSAL) == [
        ["const int tiles = min((keys + kKeys - 1) / kKeys, "
         "(first + keys - rows + 64 + kKeys - 1) / kKeys);"]
    ]  # fmt: skip


def test_it_begins_later_and_each_end_is_tried_alone() -> None:
    end = "first < min(length, int(blockIdx.x) * 32 + 32)"
    first = "int first = max(0, (int(blockIdx.x) * 32 - 19) / kTile * kTile)"
    assert bounds(made.plain(), WINDOW) == [
        [f"for ({first}; {end}; first += kTile) {{"],
        [f"for (int first = 0; {end}; first += kTile) {{"],
        [f"for ({first}; first < length; first += kTile) {{"],
    ]


def test_what_loads_the_first_tile_before_the_loop_loads_the_new_one() -> None:
    first = "max(0, (first + keys - rows - 19) / kKeys)"
    with_load, alone, *_ = bounds(made.mma(), WINDOW)
    assert with_load[1:] == [
        f"load({first});",
        f"for (int tile = {first}; tile < tiles; tile++) {{",
    ]
    assert alone == [with_load[0], with_load[2]]


def test_a_loop_that_counts_down_ends_sooner_where_its_bound_is_made(tmp_path: Path) -> None:
    file = tmp_path / "down.cu"
    text = made.MMA.read_text("utf-8").replace(
        "for (int tile = 0; tile < tiles; tile++)",
        "const int begin = 0;\n  for (int tile = tiles - 1; tile >= begin; --tile)",
    )
    file.write_text(text, encoding="utf-8")
    end = text.index("tile >= begin") + 8
    loop = replace(made.mma().loops[0], file=file, compare=">=", step=-1, end=(end, end + 5),
                   line=text.count("\n", 0, end) + 1)  # fmt: skip
    found = made.found(file, "mma_attention", {"Nq": "rows", "Nk": "keys"}, [], loop)
    assert bounds(found, WINDOW) == [
        ["const int begin = max(0, (first + keys - rows - 19) / kKeys);"]
    ]
    assert bounds(found, CAUSAL) == []  # its first tile is made elsewhere


@pytest.mark.parametrize(
    "keep", ["True", "j != i", "floor_mod(j, 2) == 0", "j < i or j > i", "h == 0 or j <= i"]
)
def test_a_mask_that_drops_no_tile_for_certain(keep: str) -> None:
    assert bounds(made.plain(), keep) == []


@pytest.mark.parametrize(
    "change",
    [{"compare": ">="}, {"step": -16}, {"keys": 1}, {"row": ""}, {"row": "dot"}, {"line": 1},
     {"key": "first + 16"}],
)  # fmt: skip
def test_a_loop_that_is_not_understood_stays(change: dict[str, object]) -> None:
    found = made.plain()
    loop = replace(found.loops[0], **change)  # type: ignore[arg-type]
    assert bounds(replace(found, loops=(loop,)), CAUSAL) == []
    assert expr(CAUSAL)
