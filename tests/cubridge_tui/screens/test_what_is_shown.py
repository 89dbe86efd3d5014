"""What a person needs on every screen is on it, at every size: the next key, the way out, help."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.lists import read_lists
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line
from engine.types import Stage
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")
SIZES = ((80, 24), (120, 40), (200, 60), (300, 80))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "CUBRIDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return placed(path, Stage.LOWERED)


@pytest.mark.parametrize("size", SIZES)
async def test_the_next_key_the_way_out_and_help(session: str, size: tuple[int, int]) -> None:
    async with Driver(session, size) as d:

        def look(way_out: str) -> None:
            lines = d.text.split("\n")
            decision = "".join(t for t, _ in d.app.screen.query_one("#decision", Line)._left)
            assert "Next:" in decision
            assert any(decision[:70].rstrip() in line for line in lines), decision
            footer = lines[-1]
            assert "…" not in footer and "? help" in footer and way_out in footer, footer

        look("q quit")
        for key in ("v", "M"):
            await d.press(key)
            look("esc back")
            await d.press("escape")
        await d.press("K")
        look("esc back")
        await d.press("escape")
        d.app.open_replay(session)
        await d.settle()
        look("esc leave")
        await d.press("G")
        look("esc leave")
        assert "Next: c continues from here" in d.text


@pytest.mark.parametrize("size", SIZES)
async def test_the_start_screen_divides_its_rows(session: str, size: tuple[int, int]) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        panes = {name: app.screen.query_one(f"#{name}", CodePane) for name in
                 ("kernels", "specs", "sessions")}  # fmt: skip
        assert sum(p.region.height for p in panes.values()) + 5 + (size[0] < 100) == size[1]
        assert all(p.scrollable_content_region.height >= 2 for p in panes.values())
        if size[1] >= 40:  # whole where there is room
            specs = panes["specs"]
            assert specs.scrollable_content_region.height == len(specs.content.rows)
        panes["specs"].focus()
        await settled(app, pilot)
        lists = read_lists(Store.open(app.store.path), Path.cwd())
        words = next(s.words for s in lists.specs if s.label == "softcap_causal")
        assert words in " ".join(screen_text(app).split())  # uncut, in the row or under it
    app.close()


async def test_a_footer_keeps_its_ends_and_a_banner_has_no_ellipsis(session: str) -> None:
    async with Driver(session, (60, 24)) as d:
        bar = d.screen.query_one(KeyBar)
        shown = actions.footer(actions.ADAPTATION, d.screen.facts())
        assert actions.ways_out(shown) == 2
        assert bar.text.endswith("? help  q quit ") and len(bar.text) <= 60
        left_out = [
            f" {key} {word} " for key, word, _ in shown if f" {key} {word} " not in bar.text
        ]
        assert all(len(bar.text) + len(each) > 60 for each in left_out)
        x = bar.text.index("q quit")
        assert bar.action_at(x) == "quit"
        d.screen.query_one(Banner).say("short")
        await d.settle()
        line = next(row for row in d.text.split("\n") if "short" in row)
        assert line.strip() == "short"
