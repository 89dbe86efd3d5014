"""Opaque ops in the app: said, marked, given meanings by a model's three steps or by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.widgets import TextArea

from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.screens.ask_model import ModelScreen
from cubridge_tui.widgets.line import Line
from cubridge_tui.widgets.stage_bar import StageBar
from engine.child.client import Child
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import find_kernel, find_spec
from engine.types import DecisionKind, Gate, Origin, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import bench_of
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.cubridge_tui.screens.test_ask_model import Asked
from tests.engine.llm import server as acts
from tests.engine.llm.server import Act, Server
from tests.engine.transfer.llm.shop import make_shop
from tests.engine.transfer.llm.test_lift_session import ANNOTATE, BIND, OPS, TRANSLATE

pytestmark = pytest.mark.usefixtures("no_warm_up")
Shop = tuple[Path, str]
HAND = "does: adds the row sums.\nreads: l, s\nwrites: l\nby: part\n\nl = row_sum(s, l)\n"


@pytest.fixture(scope="module")
def made_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A store with a session of a kernel with five opaque ops, lifted."""
    folder = make_shop(tmp_path_factory.mktemp("kernels") / "shop")
    path = tmp_path_factory.mktemp("opaque") / "store.git"
    store = Store.open(path)
    with bench_of(store) as bench:
        package = find_kernel(str(folder))
        spec = find_spec("softcap_causal")
        session = start(bench, package, spec, choose_options(package), "tester")
        with store.writer(session) as writer:
            Adaptation(bench, writer, "tester").lift()
    return path, session


@pytest.fixture
def shop(made_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A copy of it for one test; what runs CuIR is a table that passes everything."""
    path = tmp_path / "store.git"
    shutil.copytree(made_shop[0], path)
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    table = bench_of(Store.open(path)).child
    monkeypatch.setattr(Child, "call", lambda _, name, payload, **__: table.call(name, payload))
    return path, made_shop[1]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """A server that the person's environment names."""
    servers: list[Server] = []

    def make(*script: Act) -> Server:
        servers.append(Server(script))
        monkeypatch.setenv("OPENAI_BASE_URL", servers[-1].url)
        monkeypatch.setenv("CUBRIDGE_MODEL", "fake-7b")
        return servers[-1]

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield make
    for server in servers:
        server.stop()


def lifted_rows(d: Driver, text: str = "") -> list[Row]:
    rows = d.screen.grid.panes[Stage.LIFTED].content.rows
    return [r for r in rows if text in r.text]


def decision_line(d: Driver) -> str:
    return d.screen.query_one("#decision", Line).text


async def ask(d: Asked) -> None:
    """Open the model's screen, look, send, and go back to the hunks."""
    if not any(isinstance(s, ModelScreen) for s in d.app.screen_stack):
        await d.press("M")
    await d.until(lambda: d.model.state.ready)
    await d.settle()
    await d.press("s")
    await d.until(lambda: d.model.state.result)
    await d.settle()
    await d.press("escape")


async def test_opaque_ops_are_counted_marked_and_inspected(shop: Shop) -> None:
    async with Driver(shop[1]) as d:
        d.screen.grid.lead(Stage.LIFTED)
        await d.press("D")
        await d.press("w")
        state = d.screen.snap.state if d.screen.snap else None
        verdict = state.verdict(Gate.G1) if state else None
        assert verdict is not None and verdict.kind is VerdictKind.NOT_RUN
        assert "5 ops have no meaning: M asks a model" in decision_line(d)
        assert "5 of 5 opaque ops without meaning" in d.text
        assert [r.sign for r in lifted_rows(d, "opaque(")] == ["?"] * 5
        # The cursor stands on the first; w goes on to the next ones, in every pane.
        seen = []
        for _ in OPS:
            here = d.screen.current_opaque()
            assert here is not None
            seen.append(here.id)
            await d.press("w")
        assert seen == list(OPS) and "is opaque: " in d.status()
        while (here := d.screen.current_opaque()) is None or here.id != "s56":
            await d.press("w")
        assert "add_rows(l, s);" in (d.screen.grid.panes[Stage.SOURCE].row or Row("")).text
        await d.press("i")
        for words in ("opaque     s56, line", "text     add_rows(l, s);", "reads    ", "writes   "):
            assert words in d.text
        assert "none: G1 cannot run" in d.text


async def test_three_steps_by_a_model_each_decided_on(
    shop: Shop, serve: Callable[..., Server]
) -> None:
    server = serve(*map(acts.answer, (ANNOTATE, BIND, TRANSLATE)))
    async with Asked(shop[1]) as d:
        shown = d.pane("shown")
        assert "asks for   meanings of opaque ops, annotate 1/3" in shown
        assert "5 ops of it as CUDA text" in shown and "at most 4" in shown
        assert "asks for annotate 1/3" in d.line("decision") and not server.asked
        ready = d.model.state.ready
        assert ready is not None
        await ask(d)
        sent = sum(len(m["content"].encode()) for m in server.asked[0].body["messages"])
        assert sent == ready.outgoing.bytes and len(server.asked) == 1
        # Five hunks beside the opaque text; the cursor is on the first.
        assert d.screen.grid.focused_stage is Stage.LIFTED
        assert d.screen.current_hunk() == "meaning-1-annotate/s2"
        assert "Decide on 5 meanings" in decision_line(d)
        rows = d.screen.grid.panes[Stage.LIFTED].content.rows
        at = next(i for i, r in enumerate(rows) if "opaque('add_rows(l, s);'" in r.text)
        assert rows[at + 1].kind is RowKind.HEAD and "Say what s56 does" in rows[at + 1].text
        assert rows[at + 2].text.strip() == "does: adds the row sums of s to l."
        await d.press("A")
        assert "bind 2/3" in decision_line(d) and "M asks a model" in decision_line(d)
        await ask(d)
        await d.press("A")
        assert "translate 3/3" in decision_line(d)
        await ask(d)
        assert len(server.asked) == 3
        # One is rejected, one edited wrongly, then rightly; the others accepted.
        await d.press("a", "a", "a", "x", "a")
        snap = d.screen.snap
        assert snap is not None and snap.decision("meaning-1-translate/s56") is not None
        assert "1 of 5 opaque ops without meaning, 4 assumed" in d.text
        assert "Lift the source and run G1" in decision_line(d)
        await d.press("s")
        assert "1 op has no meaning" in decision_line(d)
        desk = d.screen.open_desk
        name = "meaning-1-translate/s56"
        d.screen.job("x", lambda: desk.edit(name, "m = row_max(s, m)"), quiet=True)
        await d.settle()
        head = next(r for r in lifted_rows(d, "Write s56 in CuIR"))
        assert "DRAFT, not applied" in head.text and "did not say that it writes" in head.text
        d.screen.job("x", lambda: desk.edit(name, "l = row_sum(s, l)"), quiet=True)
        await d.settle()
        assert "5 assumed" in d.text
        body = next(r for r in lifted_rows(d, "l = row_sum(s, l)"))
        assert (body.sign, body.origin, body.kind) == ("≈", "person", RowKind.ADD)
        assert any("assumed until G4 passes" in r.text for r in lifted_rows(d, "Write s56"))
        await d.press("s")
        verdict = d.screen.snap.state.verdict(Gate.G1) if d.screen.snap else None
        assert verdict is not None and verdict.kind is VerdictKind.PASS
        assert verdict.assumed == OPS
        assert "5 meanings assumed" in d.screen.query_one(StageBar).text
        # Taken back and made again: the lifted text follows.
        await d.press("u")
        assert "1 of 5 opaque ops without meaning" in d.text
        await d.press("U")
        assert "5 assumed" in d.text and not lifted_rows(d, "undecided")
    state = Store.open(shop[0]).load(shop[1]).state
    assert [p.id for p in state.proposals] == [
        "meaning-1-annotate", "meaning-1-bind", "meaning-1-translate",
    ]  # fmt: skip


async def test_the_person_may_ask_for_another_step_or_the_edit(
    shop: Shop, serve: Callable[..., Server]
) -> None:
    serve(acts.answer(ANNOTATE))
    async with Asked(shop[1]) as d:
        await ask(d)
        await d.press("a", "a")  # two of five
        await d.press("M")
        await d.until(lambda: d.model.state.ready)
        shown = d.pane("shown")
        assert "annotate 1/3" in shown and "sent back  3 undecided hunks" in shown
        await d.press("w")
        await d.until(lambda: d.model.state.ready)
        assert "bind 2/3: who executes them" in d.pane("shown")
        await d.press("w")
        await d.settle()
        assert d.model.topic.value == "edit"


async def test_a_meaning_is_written_by_hand_without_any_model(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "CUBRIDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    async with Driver(shop[1]) as d:
        while (here := d.screen.current_opaque()) is None or here.id != "s56":
            await d.press("w")
        assert "write meaning" in d.text
        await d.press("e")
        area = d.app.screen.query_one(TextArea)
        assert area.text.startswith("does: \nreads: ") and "by: part" in area.text
        # One that assigns what it did not name stays a draft, with its error.
        area.load_text(HAND.replace("l = row_sum", "m = row_sum"))
        await d.press("ctrl+s")
        assert "kept as a draft" in d.status() and "did not say that it writes" in d.status()
        assert d.screen.snap is not None and not d.screen.snap.meanings
        await d.press("e")
        area = d.app.screen.query_one(TextArea)
        assert "m = row_sum(s, l)" in area.text
        area.load_text(HAND)
        await d.press("ctrl+s")
        assert "s56 means what you wrote" in d.status()
        assert "4 of 5 opaque ops without meaning, 1 assumed" in d.text
        body = next(r for r in lifted_rows(d, "l = row_sum(s, l)"))
        assert (body.sign, body.origin) == ("≈", "person")
        # One stroke: undone and made again at once.
        await d.press("u")
        assert "5 of 5 opaque ops without meaning" in d.text
        await d.press("U")
        assert "1 assumed" in d.text
    state = Store.open(shop[0]).load(shop[1]).state
    assert [p.origin for p in state.proposals] == [Origin.PERSON] * 3
    kinds = {state.decision(p.id, "s56") for p in state.proposals}
    assert {k.kind for k in kinds if k} == {DecisionKind.ACCEPTED}


async def test_the_editor_outside_writes_it_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(shop[1]) as d:
        while (here := d.screen.current_opaque()) is None or here.id != "s56":
            await d.press("w")
        given: list[str] = []

        def outside(_: object, __: str, text: str) -> str:
            given.append(text)
            return text if len(given) == 1 else HAND

        monkeypatch.setattr("cubridge_tui.screens.adaptation.review.edit_outside", outside)
        await d.press("E")
        assert "came back unchanged" in d.status()
        await d.press("E")
        assert "s56 means what you wrote" in d.status()
