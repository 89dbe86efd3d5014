"""The whole example of docs/wild.md: its source and its spec, imported and looked into."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError
from engine.foreign.package import read_package
from engine.foreign.probe.find import find
from engine.graft.kernel import load_executed

PAGE = Path(__file__).parents[3] / "docs" / "wild.md"
SQUARE = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": 32, "Nk": 32, "D": 8, "causal": 1}


def _nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _nvcc(), reason="nvcc compiles the kernel of these tests")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the two files, which is the current one."""
    blocks = dict(re.findall(r"```(cuda|python)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    (tmp_path / "theirs.cu").write_text(blocks["cuda"], "utf-8")
    (tmp_path / "causal.py").write_text(blocks["python"], "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_import_keeps_its_cases_and_probing_tells_lengths_apart(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["theirs.cu", "--reference", "causal.py", "--arch", "sm_80"]
    assert main(["import", *words, "--sizes", "causal=1", "--head-dim", "8"]) == 0
    assert "G1 passes" in capsys.readouterr().out
    asked = load_executed(example / "theirs").asked  # can be adapted as it is
    assert len(asked.sizes) >= 4 and {s["causal"] for s in asked.sizes} == {1}
    assert any(s["Nq"] != s["Nk"] for s in asked.sizes) and {s["D"] for s in asked.sizes} == {8}
    # The kernel stands in an anonymous namespace; all cases that are known have equal lengths.
    found = find(replace(read_package(example / "theirs"), sizes=(SQUARE,)))
    (place,) = found.hooks[0].places
    assert (place.sizes["Nq"], place.sizes["Nk"]) == ("len_q", "len_k")
    assert dict(place.coordinates) == {"b": "batch", "h": "head", "i": "row", "j": "key"}
    again = found.hooks[0].again
    assert again["Nq"] != again["Nk"] and again["Hq"] != again["Hkv"]


def test_a_mask_that_is_right_for_equal_lengths_alone_does_not_pass(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = example / "theirs.cu"
    text = path.read_text("utf-8")
    assert text.count("row + len_k - len_q + 1") == 1
    path.write_text(text.replace("row + len_k - len_q + 1", "row + 1"), "utf-8")
    case = " ".join(f"{n}={s}" for n, s in SQUARE.items())
    words = ["theirs.cu", "--reference", "causal.py", "--arch", "sm_80", "--sizes", case]
    assert main(["check", *words]) == 1
    shown = capsys.readouterr()
    assert "is run, too: no other case has unlike lengths" in shown.err
    assert "the longest case has 32 keys" in shown.err
    wrong = [line for line in shown.out.splitlines() if " is wrong in " in line]
    assert wrong and all("Nk 64" in line for line in wrong)
