"""Headless runs of a target that is right and G3 refuses: too slow, what a person can do; spilled
registers, the next smaller tile."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.cli import main
from cubridge_tui.model.next_step import owed_now, undecided
from engine.build.machine_code.compare import Loss, Problem
from engine.child.client import Child
from engine.gates.g3_source.lowering_check import G3
from engine.gates.g3_source.speed import SPEED, Speed
from engine.gates.outcome import Found
from engine.service.executed.opened import work_of
from engine.service.session import stage_work
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench
from engine.types import TOO_SLOW, Gate, Verdict, VerdictKind
from sessions.store import Store


def test_accept_says_that_it_is_too_slow_and_how_a_person_may_take_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")

    def judged(self: Work, gate: Gate, begin: float, *_: object) -> Verdict:
        return self.found(gate, begin, Found(True, "quick"))

    speed = Speed(91764.0, 913.0, where="NVIDIA H100, S 8192")
    details = {SPEED: speed.to_json(), TOO_SLOW: True}
    slow = G3(VerdictKind.FAIL, f"too slow; {speed.words}", details, "nvcc")
    monkeypatch.setattr(Work, "_judge", judged)
    monkeypatch.setattr(Work, "weigh_lifted", lambda self: judged(self, Gate.G1, 0.0))
    monkeypatch.setattr(stage_work, "judge_lowered", lambda *_, **__: slow)
    code = main(
        ["adapt", "--kernel", "flash_fwd_sm80", "--spec", "causal", "--accept", "--json",
         "--store", str(tmp_path / "store.git")]
    )  # fmt: skip
    out = capsys.readouterr()
    result = json.loads(out.out)
    assert code == 1 and result["level"] == "none" and not result["accepted"]
    reason = result["stages"][-1]["reason"]
    assert reason.startswith("too slow; predicted to take ")
    assert "91,764 us, the bare kernel 913 us (NVIDIA H100, S 8192)" in reason
    assert "not accepted: the target is too slow" in out.err
    assert f"--session {result['session']}`: O there accepts it as overridden" in out.err


@pytest.mark.parametrize("spilling", [1, 100])
def test_what_spills_is_proposed_with_the_next_smaller_tile(
    spilling: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    pytest.importorskip("torch")

    def judged(self: Work, gate: Gate, begin: float, *_: object) -> Verdict:
        return self.found(gate, begin, Found(True, "quick"))

    built: list[bytes] = []

    def lowered(*given: Any, **_: object) -> G3:
        built.append(given[3])
        if len(built) > spilling:
            return G3(VerdictKind.PASS, "builds", {}, "nvcc")
        lost = Problem(Loss.SPILLS, "bf16_128", "flash_fwd", "spills: 4 bytes stored, 8 loaded",
                       fix="take a smaller tile")  # fmt: skip
        details = {"problems": [lost.to_json()], "fix": lost.fix}
        return G3(VerdictKind.FAIL, str(lost), details, "nvcc")

    monkeypatch.setattr(Work, "_judge", judged)
    monkeypatch.setattr(Work, "weigh_lifted", lambda self: judged(self, Gate.G1, 0.0))
    monkeypatch.setattr(stage_work, "judge_lowered", lowered)
    store = tmp_path / "store.git"
    code = main(
        ["adapt", "--kernel", "flash_fwd_sm80", "--spec", "causal", "--accept", "--json",
         "--store", str(store)]
    )  # fmt: skip
    out = capsys.readouterr()
    result = json.loads(out.out)
    advice = rf"  fix: take a smaller tile; or `.* --session {result['session']}`: O there accepts"
    found = re.findall(advice, out.err)
    assert len(found) == (spilling > 1), "once, where nothing else is left to try"
    least = [re.search(rb"BN = [^;]*?(\d+)\)*;", text) for text in built]
    assert [int(w[1]) for w in least if w is not None] == [32, *[16] * (len(built) - 1)]
    assert (code, result["accepted"]) == ((0, True) if spilling == 1 else (1, False))
    assert len(built) == len(set(built)), "each tile is built once, and the least ends it"
    with Child() as child:
        opened = Store.open(store)
        work = work_of(Bench(opened, child), opened.load(result["session"]))
        assert work.recipe is not None and work.narrower(work.recipe) == len(built) - 1
        (made,) = work.edits
        assert work.rules_text(work.recipe) == work.proposed_text(made)
        failed = owed_now(work.state).words.startswith("G3 found spills: D in the target pane")
        assert failed == (spilling > 1) and not undecided(work.state)
        (hunk,) = (h for h in made.hunks if "fewer keys" in h.title)
        assert "the price is more tiles" in hunk.reason
