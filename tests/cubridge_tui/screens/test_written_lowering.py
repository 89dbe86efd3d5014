"""A target that the templates cannot write: told, asked for, decided on region by region."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.model.acceptance import lowered_patch
from cubridge_tui.model.review import taken_text
from cubridge_tui.model.rows import RowKind
from cubridge_tui.widgets.line import Line
from engine.gates.g3_source.lowering_check import G3
from engine.lower import lower as lower_module
from engine.lower.spelling.templates import default_templates
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.lowerings import lower_task
from engine.service.session.session_options import choose_options
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import DecisionKind, Gate, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import TableChild
from tests.cubridge_tui.screens.test_ask_model import Asked
from tests.cubridge_tui.screens.test_meanings import serve
from tests.engine.llm import server as acts
from tests.engine.llm.server import Server
from tests.engine.transfer.llm.shop import narrow
from tests.engine.transfer.llm.test_lower_session import answer
from tests.engine.transfer.recipes import recipe

__all__ = ["serve"]
pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture
def no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates that have never heard of `map`."""
    whole = default_templates()
    ops = {name: entries for name, entries in whole.ops.items() if name != "map"}
    monkeypatch.setattr(lower_module, "default_templates", lambda: replace(whole, ops=ops))


@pytest.fixture
def quick_g3(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3 without nvcc: only whether the bytes are the ones that are right."""

    def judge(work: Work, target: object, source: bytes, *_: object) -> G3:
        right = lower_module.lower(work.lifted, work.target, default_templates()).source
        if source == right:
            return G3(VerdictKind.PASS, "as the templates would", {})
        return G3(VerdictKind.FAIL, "lifts to another program [/]", {})

    monkeypatch.setattr(Work, "judge_source", judge)


@pytest.fixture(scope="module")
def made_target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A session whose target is judged; and what a model that knows all would answer."""
    folder = narrow(tmp_path_factory.mktemp("kernels") / "flash")
    path = tmp_path_factory.mktemp("target") / "store.git"
    store = Store.open(path)
    causal = recipe("x * rsqrt(f32(D))", "j <= i + (Nk - Nq)")
    with Bench(store, child=TableChild(causal)) as bench:  # type: ignore[arg-type]
        package = find_kernel(str(folder))
        spec = find_spec("causal")
        session = start(bench, package, spec, choose_options(package), "tester")
        with store.writer(session) as writer:
            work = Adaptation(bench, writer, "tester")
            work.lift()
            work.accept_all(work.propose_by_rules())
            work.judge_target()
            right = answer(lower_task(work))
    return path, session, right


@pytest.fixture
def target(
    made_target: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str, str]:
    path = tmp_path / "store.git"
    shutil.copytree(made_target[0], path)
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return path, *made_target[1:]


async def test_a_lowering_by_a_model_is_decided_on_region_by_region(
    target: tuple[Path, str, str], no_map: None, quick_g3: None, serve: Callable[..., Server]
) -> None:
    server = serve(acts.answer("no regions"), acts.answer(target[2]))

    def line() -> str:
        return d.screen.query_one("#decision", Line).text

    class Lowered(Asked):
        async def press(self, *keys: str) -> None:
            if keys == ("M",) and not self.begun:
                self.begun = True
                assert "Lower to CUDA and run G3" in self.text
                await super().press("s")
                assert "The templates cannot write this target: M lets a model" in self.text
            await super().press(*keys)

        begun = False

    async with Lowered(target[1]) as d:
        verdict = d.model.snap.state.verdict(Gate.G3)
        assert verdict is not None and verdict.kind is VerdictKind.NOT_RUN
        assert "map" in verdict.reason
        shown = d.pane("shown")
        assert "asks for   the lowering" in shown and "the CUDA source of" in shown
        assert not server.asked
        await d.key("s")
        await d.until(lambda: d.model.state.live and d.model.state.live.waiting)
        await d.key("s")
        await d.until(lambda: d.model.state.result)
        await d.settle()
        assert verdict.reason.split("\n")[0] in server.asked[0].prompt
        await d.press("d")
        assert "+" not in d.line("status") and "edit of the answer" in d.line("status")
        await d.press("escape")
        # A diff against the expert's source, a head line for every region.
        assert d.screen.grid.focused_stage is Stage.LOWERED
        snap = d.screen.snap
        assert snap is not None and snap.regions
        count = len(snap.regions)
        assert f"Decide on {count} regions" in line() and f"{count} undecided" in d.text
        rows = d.screen.grid.panes[Stage.LOWERED].given.rows
        heads = [r for r in rows if r.kind is RowKind.HEAD]
        assert len(heads) == count and all("of the source" in r.text for r in heads)
        source = d.screen.open_desk.work.text(Stage.SOURCE, "kernel.cu")
        assert taken_text(rows) == source
        await d.press("x")
        assert d.screen.snap and d.screen.snap.regions[0][2] is not None
        await d.press("A")
        work = d.screen.open_desk.work
        partly = work.text(Stage.LOWERED, "kernel.cu")
        assert taken_text(d.screen.grid.panes[Stage.LOWERED].given.rows) == partly != source
        assert "Lower to CUDA and run G3" in line()
        await d.press("s")
        assert "G3 failed" in line() and "M lets a model write" in line()
        await d.press("u", "u")
        assert d.screen.snap.regions[0][2] is None
        await d.press("A")
        assert {x.kind for _, _, x in d.screen.snap.regions if x} == {DecisionKind.ACCEPTED}
        await d.press("s")
        verdict = d.screen.snap.state.verdict(Gate.G3)
        assert verdict is not None and verdict.kind is VerdictKind.PASS
        whole = work.text(Stage.LOWERED, "kernel.cu")
        assert taken_text(d.screen.grid.panes[Stage.LOWERED].given.rows) == whole
        patch = lowered_patch(d.screen.snap)
        assert patch and not any("undecided" in x or "Rewrite" in x for x in patch)
        assert d.screen.snap.links.lines[Stage.LOWERED]
    state = Store.open(target[0]).load(target[1]).state
    assert [p.id for p in state.proposals] == ["rules", "lowering-1"]
