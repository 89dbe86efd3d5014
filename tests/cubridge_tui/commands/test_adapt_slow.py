"""A headless run of a target that is right and too slow: not accepted, and what a person can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from engine.gates.g3_source.lowering_check import G3
from engine.gates.g3_source.speed import SPEED, Speed
from engine.gates.outcome import Found
from engine.service.session import stage_work
from engine.service.session.stage_work import Work
from engine.types import TOO_SLOW, Gate, Verdict, VerdictKind


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
