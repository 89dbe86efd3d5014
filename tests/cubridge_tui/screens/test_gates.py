"""`w` where no gate failed: each gate's evidence, or what it waits for and the key that goes on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.model.gates import gates_lines, spans
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.screens.dialogs import TextDialog
from cubridge_tui.widgets.code_pane import CodePane
from engine.build.machine_code.ptxas import PtxasWarning, WarningKind
from engine.service.session.adaptation import Adaptation
from engine.types import UNFINISHED, Gate, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import bench_of, placed, verdict_of
from tests.cubridge_tui.model.test_built import build
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return path


def give(path: Path, session: str, gate: Gate, kind: VerdictKind, reason: str, **more: Any) -> None:
    with bench_of(Store.open(path)) as bench, bench.store.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        work.give(verdict_of(work, gate, kind, reason, more))


def part(lines: list[str], gate: str) -> str:
    """What is said of one gate."""
    begin = next(i for i, line in enumerate(lines) if line.startswith(gate))
    end = next((i for i in range(begin, len(lines)) if not lines[i]), len(lines))
    return "\n".join(lines[begin:end])


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_a_passed_g3_shows_what_the_build_found(store: Path, size: tuple[int, int]) -> None:
    session = placed(store)
    made = build(168, 4, 2)
    warned = PtxasWarning(WarningKind.SERIALISED_WGMMA, "C7510", "wgmma is serialised \x1b[2J")
    made["specialisations"][0]["warnings"] = [
        {"kind": warned.kind.value, "code": warned.code, "text": warned.text}
    ]
    give(
        store, session, Gate.G3, VerdictKind.PASS, "lifts to the target again", build=made,
        expert=build(160, 0, 3), changed_lines=21, total_lines=300,
    )  # fmt: skip
    async with Driver(session, size) as d:
        assert d.screen.snap is not None
        said = part(gates_lines(d.screen.snap), "G3")
        assert "168 (160)" in said and "8 (0)" in said and "2 (3)" in said
        assert "2 x 128 threads a multiprocessor, limited by registers" in said
        assert "21 of 300 lines (7 %)" in said and "C7510" not in said
        assert "wgmma is serialised" in said
        await d.press("w")
        assert isinstance(d.app.screen, TextDialog)
        await d.press("G")
        found = d.app.screen.query_one(CodePane).content.rows
        rows = " ".join(" ".join(r.text for r in found).split())
        for words in ("168 (160)", "limited by registers", "of the lowered source", "serialised"):
            assert words in rows
        assert "\x1b" not in d.text
        # The spans are those that the pane shows as new.
        pane = d.screen.grid.panes[Stage.LOWERED].content.rows
        new = {r.number for r in pane if r.kind is RowKind.ADD and r.number}  # not its next rows
        told = [n for a, b in spans(pane) for n in range(a, b + 1)]
        assert new and new <= set(told)
        await d.press("escape")
        assert len(d.app.screen_stack) == 2


def test_spans_are_runs_of_new_lines_and_places_where_lines_went() -> None:
    def row(kind: RowKind, number: int | None) -> Row:
        return Row("x", kind, number)

    same, add, gone = RowKind.SAME, RowKind.ADD, RowKind.DEL
    rows = [
        row(same, 1), row(gone, 2), row(add, 2), row(add, 3), row(same, 4), row(gone, 5),
        row(same, 5), row(add, 6),
    ]  # fmt: skip
    assert spans(rows) == [(2, 3), (5, 6)]
    assert spans([row(same, 1), row(same, 2)]) == []


@pytest.mark.parametrize(
    ("upto", "gate", "waits"),
    [
        (Stage.SOURCE, "G1", "Lift the source and run G1 (s)"),
        (Stage.SOURCE, "G2", "G1, which comes first"),
        (Stage.TARGET, "G3", "Lower to CUDA and run G3 (s)"),
        (Stage.TARGET, "G4", "G3, which comes first"),
        (Stage.LOWERED, "G4", "v runs it where a GPU is"),
    ],
)
async def test_a_gate_that_has_not_run_says_what_it_waits_for(
    store: Path, upto: Stage, gate: str, waits: str
) -> None:
    async with Driver(placed(store, upto), (80, 24)) as d:
        foot = d.text.split("\n")[-1]
        assert " w why" not in foot  # nothing is wrong
        await d.press("w")
        assert isinstance(d.app.screen, TextDialog)
        assert d.screen.snap is not None
        said = part(gates_lines(d.screen.snap), gate)
        assert "has not run" in said and f"waits for  {waits}" in said


@pytest.mark.parametrize(
    ("gate", "more", "waits"),
    [
        (Gate.G2, {UNFINISHED: True}, "another run: s begins it"),
        (Gate.G3, {UNFINISHED: True}, "another run: s begins it"),
        (Gate.G3, {"fix": "apt install nvcc"}, "apt install nvcc; then D in the lowered pane"),
        (Gate.G3, {"unlowered": True}, "a lowering"),
        (Gate.G3, {}, "O overrides it in your name"),
    ],
)
async def test_a_gate_without_a_verdict_says_how_to_finish_it(
    store: Path, gate: Gate, more: dict[str, Any], waits: str
) -> None:
    session = placed(store, Stage.LIFTED)
    with bench_of(Store.open(store)) as bench, bench.store.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        work.accept_all(work.propose_by_rules())
        if gate is Gate.G3:
            work.judge_target()
    reason = "the child ran out of memory, and this is a long reason for it " * 3
    give(store, session, gate, VerdictKind.NOT_RUN, reason.strip(), **more)
    async with Driver(session, (80, 24)) as d:
        assert d.screen.snap is not None
        await d.press("w")
        assert isinstance(d.app.screen, TextDialog)
        assert waits in part(gates_lines(d.screen.snap), gate.value)
        rows = d.app.screen.query_one(CodePane).content.rows
        whole = " ".join(" ".join(r.text for r in rows).split())
        assert reason.strip() in whole  # all of it, in 80 columns


async def test_a_failed_gate_leads_to_all_of_them(store: Path) -> None:
    session = placed(store)
    give(store, session, Gate.G3, VerdictKind.PASS, "fine", build=build(160, 0, 3))
    give(store, session, Gate.G4, VerdictKind.FAIL, "row 3 is off")
    async with Driver(session, (80, 24)) as d:
        assert " w why" in d.text.split("\n")[-1]
        await d.press("w")
        assert "g all gates" in d.text

        def whole() -> str:
            return "\n".join(r.text for r in d.app.screen.query_one(CodePane).content.rows)

        for _ in range(100):  # a key that comes before a dialog's grace is over is no answer to it
            await d.pilot.pause(0.1)
            await d.press("g")
            if "160" in whole():
                break
        assert "160" in whole() and "row 3 is off" in whole()


@pytest.mark.parametrize(
    ("upto", "stage", "gate"),
    [(Stage.SOURCE, Stage.LIFTED, "judge_lifted"), (Stage.TARGET, Stage.LOWERED, "judge_lowered")],
)
@pytest.mark.parametrize("key", ["s", "R", "D"])
async def test_what_a_step_made_is_shown_while_its_gate_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch, upto: Stage, stage: Stage, gate: str, key: str
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(Adaptation, gate, lambda *_: go_on.wait(60))
    async with Driver(placed(store, upto), (80, 24)) as d:
        d.screen.grid.lead(stage)
        d.screen.place_panes()
        assert not d.screen.grid.panes[stage].content.rows
        try:
            await d.pilot.press(key)
            async with asyncio.timeout(60):
                while not d.screen.grid.panes[stage].content.rows:
                    await d.pilot.pause(0.02)
            assert d.app.jobs.running and f"not {stage.value} yet" not in d.text
        finally:
            monkeypatch.setattr(Adaptation, gate, lambda *_: d.app.jobs.stop())
            go_on.set()
            d.app.jobs.stop()
