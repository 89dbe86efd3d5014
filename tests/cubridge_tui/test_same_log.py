"""One adaptation through the app and one headless: the same event log, times and ids aside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import engine.service.session.stage_work as work_module
from cubridge_tui import desk as desk_module
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.cli import main
from engine.gates.g3_source.lowering_check import G3
from engine.gates.outcome import Found
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, find_spec
from engine.types import Gate, Verdict, VerdictKind
from sessions.events import encode
from sessions.store import Store
from tests.cubridge_tui.screens.test_adaptation import Driver

TIMES = re.compile(r'"(seconds|time|id)": ?("[^"]*"|[0-9.]+)')


def plain_log(store: Path, session: str) -> list[Any]:
    """The events without what differs between any two runs."""
    out = []
    for event in Store.open(store).load(session).events:
        line = json.loads(encode(event))
        text = TIMES.sub('"\\1": 0', json.dumps(line["data"], sort_keys=True))
        # The package tells how long the gates took, so two of them have two hashes.
        package = line["data"].get("name") == "package.tar"
        out.append((line["type"], line["actor"], "package" if package else text))
    return out


@pytest.fixture
def quick_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that pass at once: what the log holds is under test here, not what they find."""
    pytest.importorskip("torch")

    def judged(self: Work, gate: Gate, begin: float, *_: object) -> Verdict:
        return self.found(gate, begin, Found(True, "quick"))

    def weighed(self: Work) -> Verdict:
        return judged(self, Gate.G1, 0.0)

    monkeypatch.setattr(Work, "_judge", judged)
    monkeypatch.setattr(Work, "weigh_lifted", weighed)
    for name in ("judge_lowered", "judge_apart"):
        monkeypatch.setattr(
            work_module, name, lambda *_, **__: G3(VerdictKind.PASS, "quick", {}, "nvcc")
        )


async def test_the_app_and_the_command_line_write_the_same_log(
    quick_gates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headless, through = tmp_path / "headless.git", tmp_path / "app.git"
    spec = find_spec("softcap_causal")
    code = main(
        ["adapt", "--kernel", "flash_fwd_sm80", "--spec", str(spec), "--accept", "--quiet",
         "--store", str(headless)]
    )  # fmt: skip
    assert code == 0
    monkeypatch.setenv("CUBRIDGE_STORE", str(through))
    with Bench(Store.open(through)) as bench:
        from cubridge_tui.headless import actor

        session = desk_module.begin(bench, "flash_fwd_sm80", spec, actor())
    async with Driver(session) as d:
        assert isinstance(d.app, CuBridgeApp)
        await d.press("s", "s", "A", "s", "s", "s")
        assert "accept at cpu-verified" in d.text
        await d.press("A")
        assert "Accepted" in d.text
    made = plain_log(through, session)
    wanted = plain_log(headless, Store.open(headless).sessions()[0].id)
    assert [m[0] for m in made] == [w[0] for w in wanted]
    assert made == wanted
