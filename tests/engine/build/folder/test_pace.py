"""How far a build is, and how long it will take by what earlier ones took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.build.folder.ninja import ninja_text
from engine.build.folder.pace import Pace, earlier_seconds
from engine.build.tools.toolchain import find_toolchain
from engine.errors import MissingTool

KEYS = ("f16_64", "f16_96", "f16_128", "f16_256")


def built(root: Path, name: str, arch: str, when: int, *log: str) -> None:
    """A folder of the cache, as a build leaves it."""
    try:
        toolchain = find_toolchain()
    except MissingTool:
        pytest.skip("there is no nvcc")
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text(ninja_text(toolchain, arch, KEYS, ["kernel.cu"]))
    (folder / ".ninja_log").write_text("\n".join(("# ninja log v7", *log, "")))
    (folder / ".lock").touch()
    os.utime(folder / ".lock", (when, when))


def test_the_last_build_for_the_arch_tells_how_long_each_took(tmp_path: Path) -> None:
    built(tmp_path, "a", "sm_80", 100, "0\t5000\t1\tf16_64.o\tx", "0\t5000\t1\tf16_64.ptx\tx")
    built(tmp_path, "b", "sm_80", 200, "500\t7500\t1\tf16_64.o\tx", "0\t9000\t1\tf16_96.o\tx")
    built(tmp_path, "c", "sm_90a", 300, "0\t40000\t1\tf16_64.o\tx", "broken", "x\ty\t1\tz.o\tx")
    (tmp_path / "d").mkdir()  # one that only began
    assert earlier_seconds(tmp_path, "sm_80") == {"f16_64": 7.0, "f16_96": 9.0}
    assert earlier_seconds(tmp_path, "sm_90a") == {"f16_64": 40.0}
    assert earlier_seconds(tmp_path / "nowhere", "sm_80") == {}


def test_it_tells_how_many_are_compiled_and_the_time_once_it_knows() -> None:
    pace = Pace(KEYS, 2, {})
    assert pace.words(0.0) == "0 of 4 compiled"
    pace.ended("f16_64")
    assert pace.words(40.0) == "1 of 4 compiled, about 2 min left"
    pace.ended("f16_96")
    pace.ended("another")
    assert pace.words(50.0) == "2 of 4 compiled, about 50 s left"
    assert pace.going
    for key in KEYS:
        pace.ended(key)
    assert pace.words(99.0) == "4 of 4 compiled" and not pace.going


def test_earlier_builds_tell_the_time_at_once() -> None:
    times = dict(zip(KEYS, (20.0, 20.0, 20.0, 60.0), strict=True))
    assert Pace(KEYS, 2, times).words(0.0) == "0 of 4 compiled, about 60 s left"
    assert Pace(KEYS, 99, times).words(0.0) == "0 of 4 compiled, about 60 s left", "the longest"
    assert Pace(KEYS, 1, {"f16_64": 30.0}).words(0.0) == "0 of 4 compiled, about 2 min left"
    assert Pace(KEYS, 2, dict.fromkeys(KEYS, 2.0)).words(0.0) == "0 of 4 compiled"
    pace = Pace(KEYS, 2, times)
    pace.ended("f16_64")
    assert pace.words(30.0) == "1 of 4 compiled, about 2 min left", "it is slower this time"


def test_what_earlier_builds_said_runs_down_and_is_not_said_once_it_was_wrong() -> None:
    pace = Pace(KEYS, 2, dict.fromkeys(KEYS, 30.0))
    assert pace.words(20.0) == "0 of 4 compiled, about 40 s left"
    assert pace.words(55.0) == pace.words(900.0) == "0 of 4 compiled"


def test_nothing_is_counted_of_nothing() -> None:
    pace = Pace([], 2, {})
    pace.ended("bf16_128")
    assert "0 of 0" not in pace.words(1.0)
