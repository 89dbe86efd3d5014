"""Loops that go by one count through a ring of buffers: the tiles move, the ring does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.foreign.probe.places import Loop
from engine.graft.edits import Edit, apply
from engine.graft.tiles import fewer_tiles
from tests.engine.graft import made
from tests.engine.graft.test_cases import recipe

WINDOW = "j <= i and i - j < 20"
TEXT = """\
__global__ void kernel(Tensors g, int length) {
  __shared__ Tile ring[STAGES];
  __shared__ Barrier full[STAGES], empty[STAGES];
  const int block = blockIdx.x;
  for (int s = 0; s < STAGES; s++) start(full[s], empty[s]);
  for (int ahead = 0; ahead < STAGES - 1; ahead++) load(ring[ahead], g.k, ahead, full[ahead]);
  if (is_loader()) {
    const int last = block - 1;
    for (int t = STAGES - 2; t <= last; ++t) {
      load(ring[(t + 1) % STAGES], g.k, {0, t + 1}, full[(t + 1) % STAGES]);
      wait(empty[t % STAGES], t / STAGES % 2);
    }
  } else {
    const int last = block;
    for (int tile = 0; tile <= last; tile++) {
      wait(full[tile % STAGES], (tile / STAGES) % 2);
      scores = q * ring[tile % STAGES];
      const int first_key = tile * 32 + g.start[tile];
      if (tile == last) mask(scores, 2 * tile);
      arrive(empty[tile % STAGES]);
    }
  }
}
"""
MOVED = """\
  const int first_tile = max(0, (block * 32 - 19) / 32);
  for (int ahead = 0; ahead < STAGES - 1; ahead++) load(ring[ahead], g.k, ahead + first_tile, full[ahead]);
    for (int t = STAGES - 2; t <= last - first_tile; ++t) {
      load(ring[(t + 1) % STAGES], g.k, {0, t + first_tile + 1}, full[(t + 1) % STAGES]);
    for (int tile = 0; tile <= last - first_tile; tile++) {
      const int first_key = (tile + first_tile) * 32 + g.start[tile + first_tile];
      s = (tile + first_tile) * 32;
      if ((tile + first_tile) == last) mask(scores, 2 * (tile + first_tile));
"""  # noqa: E501


def tried(folder: Path, text: str, **change: object) -> list[str]:
    """The lines that come with each try, where scores are written after `first_key`."""
    file = folder / "ring.cu"
    file.write_text(text, encoding="utf-8")
    first, end = text.index("tile = ") + 7, text.index("tile <= last") + 8
    loop = Loop(file, text.count("\n", 0, end) + 1, "tile", (first, first + 1), (end, end + 4),
                "<=", 32, "tile * 32", 1, "block * 32", 32)  # fmt: skip
    found = made.found(file, "kernel", {"Nq": "length", "Nk": "length"}, [],
                       replace(loop, **change))  # type: ignore[arg-type] # fmt: skip
    at = text.index(";", text.index("first_key =")) + 1
    scores = Edit(file, at, at, "\n      s = tile * 32;", "Scores", "")
    out = []
    for edits in fewer_tiles(recipe(WINDOW), found, {file: text.encode()}, True, [scores]):
        new = apply({file: text.encode()}, edits)[file].decode()
        old = text.splitlines()
        out.append("".join(f"{line}\n" for line in new.splitlines() if line not in old))
    return out


def test_tiles_move_and_the_ring_does_not(tmp_path: Path) -> None:
    assert tried(tmp_path, TEXT) == [MOVED]


def test_a_name_that_is_taken_is_not_taken_again(tmp_path: Path) -> None:
    (one,) = tried(tmp_path, TEXT.replace("scores", "first_tile"))
    assert "const int first_tile_ = " in one


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (TEXT.replace("tile % STAGES", "0"), {}),  # no ring
        (TEXT.replace("block = blockIdx.x", "other = 0").replace("last = block", "block = 3"), {}),
        (TEXT.replace("tile = 0", "tile = 1"), {}),
        (TEXT, {"step": 2, "keys": 64}),
    ],
)
def test_what_is_not_understood_stays(tmp_path: Path, text: str, change: dict[str, object]) -> None:
    assert tried(tmp_path, text, **change) == []
