"""A patched kernel probed again at the places of its hooks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.child.client import Child
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.overlay import overlaid
from engine.foreign.probe.places import Hook, Place
from engine.graft.compare import Patched, same_scores
from engine.resources import specs_dir
from engine.spec.recipes.recipe_json import recipe_from_json
from tests.engine.graft.made import MMA

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc compiles the kernel")


def test_all_scores_of_a_register_tile_are_looked_at(tmp_path: Path) -> None:
    data = MMA.read_bytes()
    after = data.index(b"\n    }\n", data.index(b"mma(s[n], a, b);")) + 6
    place = Place(MMA, after, 91, "mma_attention", "s", 16, "s[e / 4][e % 4]", {})
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 64, "Nk": 64, "D": 64}
    asked = Asked(MMA, Flags("sm_80"), reference=specs_dir() / "full.py", sizes=(sizes,))
    now = overlaid(asked, {MMA: data}, tmp_path)
    hook = Hook((place,), 1.0, 0.125, 1, "", probed={**sizes, "Dv": 64})
    with Child() as child:
        answer = child.call("recipe", {"path": str(asked.reference), "options": {}})
        recipe = recipe_from_json(answer["recipe"])
        patched = Patched(asked, now, tmp_path, ())
        found = same_scores([hook], recipe, patched, child, find_toolchain(), lambda text: None)
    assert found.ok and found.reason.startswith("probed again, 8192 scores"), found.reason
