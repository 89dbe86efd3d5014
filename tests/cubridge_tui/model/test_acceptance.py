"""The patch that an acceptance shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cubridge_tui.model.acceptance import lowered_patch
from cubridge_tui.model.builder import Builder
from engine.service.session.stage_work import Work
from engine.types import Stage
from sessions.store import Store
from tests.cubridge_tui.made import bench_of, placed


@pytest.mark.parametrize("spec", ["softcap_causal", "alibi_causal"])
def test_the_patch_makes_the_lowered_bytes_of_the_experts(tmp_path: Path, spec: str) -> None:
    name = placed(tmp_path / "store.git", spec=spec)
    store = Store.open(tmp_path / "store.git")
    session = store.load(name)
    with bench_of(store, spec) as bench:
        patch = lowered_patch(Builder(Work(bench, session)).snapshot())
    source = session.artifact(Stage.SOURCE, "kernel.cu").data
    (tmp_path / "kernel.cu").write_bytes(source)
    (tmp_path / "made.patch").write_text("\n".join(patch) + "\n")
    subprocess.run(["git", "apply", "made.patch"], cwd=tmp_path, check=True)
    lowered = session.artifact(Stage.LOWERED, "kernel.cu").data
    assert (tmp_path / "kernel.cu").read_bytes() == lowered != source
