"""Wrong edits: all are on record for the text that they are of, and some are judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import wild_edits
from benchmarks.wild_edits import KERNELS, RESULTS, RIGHT_ONE, digest, judge, sources
from engine.build.tools.toolchain import find_toolchain
from engine.child.client import Child
from engine.errors import CuBridgeError


def _nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


def test_each_edit_is_on_record_and_no_wrong_one_passed() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["edits"]
    wanted = {
        f"{name}: {right.spec}: {wrong or RIGHT_ONE}": (digest(kernel, right, text), bool(wrong))
        for name, kernel in KERNELS.items()
        for right in kernel.rights
        for wrong, text in sources(kernel, right)
    }
    assert {key: (row["of"], row["wrong"]) for key, row in rows.items()} == wanted
    assert [key for key, row in rows.items() if row["passed"] == row["wrong"]] == []
    assert sum(row["wrong"] for row in rows.values()) >= 150


@pytest.mark.skipif(not _nvcc(), reason="nvcc compiles the kernels")
@pytest.mark.parametrize(
    ("name", "spec", "edit"),
    [
        ("plain", "causal", "the diagonal is dropped"),
        ("mma", "sliding_window", "one key of the tail"),
    ],
)
def test_some_are_told_apart_here(name: str, spec: str, edit: str, tmp_path: Path) -> None:
    kernel = KERNELS[name]
    (right,) = (r for r in kernel.rights if r.spec == spec)
    text = dict(sources(kernel, right))[edit]
    with Child() as child:
        passed, said = judge(kernel, right, text, child, tmp_path)
    assert not passed and "O is wrong in" in said
    assert wild_edits.summed({"a": {"wrong": True, "passed": passed}}).count('"wrong passes": 0')
