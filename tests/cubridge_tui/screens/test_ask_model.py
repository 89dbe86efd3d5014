"""A model asked from the app: consent, stream, attempts, steering, cancel; a real local server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.widgets import Input

from cubridge_tui.screens.ask_model import ModelScreen
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from engine.child.client import Child
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.lift import lift
from engine.llm.types import Message
from engine.service.models.llm_gates import ModelGates
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import find_kernel
from engine.transfer.llm.outcome import Outcome, Reached
from engine.types import DecisionKind, Origin, Stage
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.llm import server as acts
from tests.engine.llm.server import Act, Server
from tests.engine.transfer.llm.answers import id_of, line_of

pytestmark = pytest.mark.usefixtures("no_warm_up")
Proposed = tuple[Path, str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """A server that the person's environment names."""
    servers: list[Server] = []

    def make(*script: Act) -> Server:
        server = Server(script)
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("CUBRIDGE_MODEL", "fake-7b")
        return server

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield make
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def quick_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that know one right answer: what they find is other tests' business."""

    def judge(module: Module, _: object) -> Outcome:
        if "* 2.0" in print_module(module):
            return Outcome(Reached.PASSED, "")
        example = {"b": 0, "h": 1, "i": 2, "expected": 1.5, "got": -1.0}
        return Outcome(Reached.G2, "O is wrong [/]", details={"counterexample": example})

    monkeypatch.setattr(ModelGates, "judge", lambda self, recipe: judge)


def edit(module: Module, factor: str) -> str:
    """An answer that scales otherwise."""
    line = line_of(module, "scale_log2 =")
    return (
        f"Scale by {factor}. smem[threadIdx.x][/ 2]\n\n```edit\n"
        f"<<<<<<< {id_of(module, 'scale_log2 =')}\n{line}\n=======\n"
        f"{line} * {factor}\n>>>>>>>\n```\n"
    )


class Asked(Driver):
    """The app with the model's screen open."""

    child: ClassVar[Child | None] = None  # one that several apps use, one after another

    async def __aenter__(self) -> Asked:
        if self.child is not None:
            self.app.bench.child = self.child
        await super().__aenter__()
        await self.press("M")
        await self.until(lambda: self.model.state.ready is not None or self.model.state.problem)
        await asyncio.sleep(0.2)  # the grace period
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)  # type: ignore[arg-type]
        if self.child is not None:
            self.app.bench.child = Child()  # the app closes its own, not the one that was lent
        self.app.close()

    @property
    def model(self) -> ModelScreen:
        return next(s for s in self.app.screen_stack if isinstance(s, ModelScreen))

    async def until(self, true: Callable[[], Any], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, screen_text(self.app)
            await self.pilot.pause(0.02)

    async def key(self, key: str) -> None:
        """A key while something runs: nothing is waited for."""
        await self.pilot.press(key)
        await self.pilot.pause(0.05)

    def line(self, id: str) -> str:
        return self.model.query_one(f"#{id}", Line).text

    def pane(self, id: str) -> str:
        return "\n".join(r.text for r in self.model.query_one(f"#{id}", CodePane).content.rows)


@pytest.fixture(scope="module", autouse=True)
def lent() -> Iterator[None]:
    """One torch child reads the bundled spec for all tests of this file."""
    with Child() as child, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Asked, "child", child)
        yield


@pytest.fixture
def module() -> Module:
    """What the session's model is given to edit."""
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    return lift(package, options.specialisation, options.arch).module


async def test_nothing_is_sent_before_the_person_saw_where_and_what(
    proposed: Proposed, serve: Callable[..., Server]
) -> None:
    server = serve()
    async with Asked(proposed[1]) as d:
        shown = d.pane("shown")
        place = server.url.split("/")[2]
        assert f"to         {place}   (on this machine, without a key)" in shown
        assert "model      fake-7b" in shown
        assert "the lifted kernel flash_fwd_sm80 as CuIR" in shown and "bytes" in shown
        assert "undecided hunks: rejected when this is sent" in shown
        assert f"bytes to {place}, model fake-7b" in d.line("decision")
        assert server.asked == []
        await d.press("p")
        assert "You edit CUDA attention kernels" in d.pane("shown")
        await d.press("escape")
        assert server.asked == []
        assert d.screen.snap is not None and all(x is None for _, _, x in d.screen.snap.hunks)


async def test_an_answer_that_passes_becomes_a_proposal(
    proposed: Proposed, serve: Callable[..., Server], module: Module
) -> None:
    server = serve(acts.answer(edit(module, "2.0")))
    async with Asked(proposed[1]) as d:
        said = d.model.state.ready
        assert said is not None
        await d.press("s")
        await d.until(lambda: d.model.state.result)
        await d.settle()
        assert len(server.asked) == 1
        sent = sum(len(m["content"].encode()) for m in server.asked[0].body["messages"])
        assert sent == said.outgoing.bytes
        assert "c1r0   ✓ passed" in d.pane("attempts") and "11+7 tok" in d.pane("attempts")
        assert "smem[threadIdx.x][/ 2]" in d.pane("shown")
        await d.press("d")
        assert "* 2.0" in d.pane("shown")
        await d.press("escape")
        assert d.screen.grid.focused_stage is Stage.TARGET
        assert d.screen.current_hunk() == "model-1/h1"
        await d.press("a")
        assert "* 2.0" in (d.screen.snap.target_text if d.screen.snap else "")
    state = Store.open(proposed[0]).load(proposed[1]).state
    assert [p.origin for p in state.proposals] == [Origin.RULES, Origin.MODEL]
    kept = {state.decision("rules", h.id) for h in state.proposals[0].hunks}
    assert {k.kind for k in kept if k} == {DecisionKind.REJECTED}


async def test_a_failed_round_waits_for_the_persons_line(
    proposed: Proposed, serve: Callable[..., Server], module: Module
) -> None:
    server = serve(acts.answer(edit(module, "3.0")), acts.answer(edit(module, "2.0")))
    async with Asked(proposed[1]) as d:
        await d.key("s")
        await d.until(lambda: d.model.state.live and d.model.state.live.waiting)
        await d.until(lambda: "what the gates found about c1r0" in d.line("decision"))
        assert "O is wrong [/]" in d.pane("attempts")
        assert len(server.asked) == 1
        await d.key("d")
        await d.key("d")
        assert "counterexample" in d.pane("shown")
        await d.key("t")
        await d.pilot.press(*"twice")
        await d.pilot.press("enter")
        await d.until(lambda: d.model.state.result)
        await d.settle()
        assert "twice" in server.asked[1].prompt and "O is wrong" in server.asked[1].prompt
        assert "c1r1   ✓ passed" in d.pane("attempts")
        # Two answers side by side, as edits.
        await d.press("tab", "tab")
        d.model.upper.go_to(0)
        d.model.state.look = type(d.model.state.look).EDIT
        await d.press("o")
        d.model.upper.go_to(1)
        await d.settle()
        assert "* 3.0" in d.pane("held") and "* 2.0" in d.pane("shown")


async def test_a_stream_is_shown_as_it_comes_and_cancelled_at_once(
    proposed: Proposed, serve: Callable[..., Server]
) -> None:
    def drip(to: acts.Handler) -> None:
        to.start()
        for n in range(10_000):
            if to.server.stopping.is_set():
                return
            to.chunk({"content": f"line {n} \x1b]52;c;aGk=\x07\n"})
            time.sleep(0.01)

    serve(drip)
    async with Asked(proposed[1]) as d:
        await d.key("s")
        await d.until(lambda: "line 20 " in d.pane("shown"))
        seen = screen_text(d.app)
        assert "\x1b" not in seen and "a second" in d.line("decision")
        # Nothing waits for it: the cursor moves and another screen opens meanwhile.
        await d.key("question_mark")
        assert "Cancel at once" in screen_text(d.app)
        await d.key("escape")
        begin = time.monotonic()
        await d.key("ctrl+c")
        await d.until(lambda: not d.app.jobs.running, 5)
        assert time.monotonic() - begin < 1.0
        await d.settle()
        assert "c1r0   ✗ incomplete" in d.pane("attempts")
    state = Store.open(proposed[0]).load(proposed[1]).state
    assert [p.origin for p in state.proposals] == [Origin.RULES]


@pytest.mark.parametrize("decided", [DecisionKind.REJECTED, None])
async def test_comments_on_hunks_that_were_not_taken_go_with_the_rest(
    proposed: Proposed, serve: Callable[..., Server], module: Module, decided: DecisionKind | None
) -> None:
    server = serve(acts.answer(edit(module, "2.0")))
    async with Asked(proposed[1]) as d:
        await d.press("escape")
        name = d.hunk("scale_log2 =")
        desk = d.screen.open_desk
        d.screen.job("x", lambda: desk.comment(name, "keep the scale here"), quiet=True)
        if decided is not None:
            d.screen.job("x", lambda: desk.decide(name, decided), quiet=True)
        await d.settle()
        await d.press("M")
        await d.until(lambda: f"comment    {name}" in d.pane("shown"))
        await asyncio.sleep(0.2)
        assert f"comment    {name}" in d.pane("shown")
        await d.press("s")
        await d.until(lambda: d.model.state.result)
        assert "keep the scale here" in server.asked[0].prompt


async def test_an_edited_prompt_is_shown_again_and_sent_as_it_is(
    proposed: Proposed, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(acts.answer("no edit"))
    async with Asked(proposed[1]) as d:
        monkeypatch.setattr("cubridge_tui.editor.edit_outside", lambda *_: "only this")
        await d.press("e")
        await d.until(lambda: d.model.state.ready)
        ready = d.model.state.ready
        assert ready is not None and ready.prompt[-1] == Message("user", "only this")
        assert "the prompt as you edited it" in d.pane("shown")
        await asyncio.sleep(0.2)
        await d.key("s")
        await d.until(lambda: d.model.state.live and d.model.state.live.waiting)
        await d.key("x")
        await d.until(lambda: d.model.state.result)
        assert server.asked[0].body["messages"][-1]["content"] == "only this"
        assert "unreadable" in d.pane("attempts")


async def test_without_a_server_the_screen_says_what_to_do(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "CUBRIDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    async with Asked(proposed[1], (80, 24)) as d:
        assert "no model is named" in d.text
        await d.press("s")
        assert "look at what would be sent first" in d.line("status")
        await d.press("m")
        d.app.screen.query_one(Input).value = "http://127.0.0.1:9/v1 m"
        await d.pilot.press("enter")
        await d.until(lambda: d.model.state.ready)
        assert "127.0.0.1:9" in d.line("decision")
        await asyncio.sleep(0.2)
        await d.press("s")
        await settled(d.app, d.pilot)
        assert "127.0.0.1:9" in d.line("status") + d.text


async def test_a_run_goes_on_while_its_screen_is_closed(
    proposed: Proposed, serve: Callable[..., Server], module: Module
) -> None:
    server = serve(acts.slow(1.0, acts.answer(edit(module, "2.0"))))
    async with Asked(proposed[1]) as d:
        await d.key("s")
        await d.key("escape")
        assert "model" in d.text and "ctrl+c" in d.text
        await d.until(lambda: not d.app.jobs.busy)
        await d.settle()
        assert len(server.asked) == 1
        assert "Decide on 1 hunk" in d.text
        await d.press("M")
        assert "c1r0   ✓ passed" in d.pane("attempts")


async def test_a_server_that_is_down_can_be_asked_again(
    proposed: Proposed, serve: Callable[..., Server], tmp_path: Path
) -> None:
    folder = tmp_path / "xdg_config_home" / "cubridge"
    folder.mkdir()
    (folder / "llm.toml").write_text("[limits]\nretries = 0\nconnect_s = 1\n")
    serve().stop()
    async with Asked(proposed[1], (80, 24)) as d:
        await d.key("s")
        await d.settle()
        assert "gave no answer" in d.text
        assert d.line("decision").startswith(" Next: s  shows the request again")
        assert "s ask again" in d.line("keys")
        await d.press("s")
        assert d.model.state.ready is not None
        assert "sends" in d.line("decision") and "gave no answer" not in d.text


async def test_what_is_missing_is_mended_by_a_key_of_the_app(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "CUBRIDGE_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    async with Asked(proposed[1], (120, 40)) as d:
        assert "no model is named; m names a server and a model" in d.text
        assert "--model" not in d.text


async def test_a_server_of_ones_own_network_needs_no_key(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUBRIDGE_MODEL", "some")
    async with Asked(proposed[1], (160, 40)) as d:
        assert "export OPENAI_API_KEY=... and start the app again, or m names a server" in d.text
        await d.press("m", *"http", "colon", "slash", "slash", *"gpu", "space", *"some", "enter")
        assert "sends" in d.line("decision") and "gpu" in d.line("decision")
