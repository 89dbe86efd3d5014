"""A patched kernel probed again at the places of its hooks."""

from __future__ import annotations

import shutil
from dataclasses import replace
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
    """And a place that is not reached any more, as where a mask drops all its tiles, lacks none."""
    data, never = MMA.read_bytes(), b"    if (tiles < 0) {\n      sum[0] = s[0][0];\n    }\n"
    after = data.index(b"\n    }\n", data.index(b"mma(s[n], a, b);")) + 6
    file = tmp_path / "mma.cu"
    data = data[: after + 1] + never + data[after + 1 :]
    file.write_bytes(data)
    place = Place(file, after, 91, "mma_attention", "s", 16, "s[@ / 4][@ % 4]", {})
    idle = replace(place, after=data.index(b"sum[0] = s[0][0];") + 17, line=93)
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 64, "Nk": 64, "D": 64}
    asked = Asked(file, Flags("sm_80"), reference=specs_dir() / "full.py", sizes=(sizes,))
    now = overlaid(asked, {file: data}, tmp_path / "now")
    hook = Hook((place, idle), 1.0, 0.125, 1, "", probed={**sizes, "Dv": 64})
    with Child() as child:
        answer = child.call("recipe", {"path": str(asked.reference), "options": {}})
        recipe = recipe_from_json(answer["recipe"])
        patched = Patched(asked, now, tmp_path / "now", ())
        found = same_scores([hook], recipe, patched, child, find_toolchain(), lambda text: None)
    assert found.ok and found.reason.startswith("probed again, 8192 scores"), found.reason
    assert found.reason.endswith("; mma.cu:93: s is not reached any more")
