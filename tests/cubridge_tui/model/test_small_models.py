"""Layout, the next decision, the action table, the configuration: pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubridge_tui import actions
from cubridge_tui.config import load_config
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.layout import PANES, Wish, layout
from cubridge_tui.model.search import find, matches
from cubridge_tui.themes import load_themes
from engine.types import Stage

WISHES = st.builds(Wish, st.sampled_from([None, 0, 1, 2, 3]), st.booleans())


@given(
    st.integers(80, 400), st.integers(10, 100), WISHES, st.sampled_from(PANES),
    st.sets(st.sampled_from(PANES)),
)  # fmt: skip
def test_the_focused_pane_is_shown_and_no_code_is_narrower_than_58(
    width: int, height: int, wish: Wish, focused: Stage, have: set[Stage]
) -> None:
    found = layout(width, height, wish, focused, have)
    assert focused in found.panes
    if wish == Wish() and width >= 140:  # an empty pane takes no room
        assert set(found.panes) <= have | {focused} or height < 24
    assert len(set(found.panes)) == len(found.panes)
    assert set(found.hidden) | set(found.panes) == set(PANES)
    assert (width - (found.columns - 1)) // found.columns >= 58


def test_no_key_means_two_things_and_all_are_plain() -> None:
    assert actions.clashes(actions.ACTIONS) == []
    ids = [a.id for a in actions.ACTIONS]
    assert len(set(ids)) == len(ids)
    undeliverable = ("ctrl+m", "ctrl+i", "ctrl+enter", "shift+enter", "ctrl+h", "alt+")
    assert [a.id for a in actions.ACTIONS if "ctrl+z" in a.keys] == ["suspend"]
    for action in actions.ACTIONS:
        assert action.keys and not any(k.startswith(undeliverable) for k in action.keys), action.id
        assert "shift+" not in action.keys[0] or action.keys[0] == "shift+tab"


def test_a_keymap_moves_an_action_and_a_clash_is_told() -> None:
    moved = actions.with_keys(actions.ACTIONS, {"accept-hunk": "plus, a"})
    assert actions.key_of("accept-hunk", moved) == "+"
    clashing = actions.with_keys(actions.ACTIONS, {"accept-hunk": "x"})
    assert any("x is both" in c for c in actions.clashes(clashing))


def test_the_footer_shows_only_what_can_be_done() -> None:
    keys = {id for _, _, id in actions.footer(actions.ADAPTATION, Facts())}
    assert "step" not in keys and "accept-hunk" not in keys
    ready = Facts(step_blocked="", hunks=2, hunk="r/h1", accept_blocked="")
    keys = {id for _, _, id in actions.footer(actions.ADAPTATION, ready)}
    assert {"step", "accept-hunk", "accept-kernel"} <= keys
    busy = Facts(step_blocked="", hunks=2, hunk="r/h1", job="G2")
    assert actions.footer(actions.ADAPTATION, busy)[0][2] == "cancel"
    assert "step" not in {id for _, _, id in actions.footer(actions.ADAPTATION, busy)}


def test_the_documentation_has_the_table(root: Path) -> None:
    assert actions.as_markdown() in (root / "docs" / "app.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("words", "found"), [("ab", [(0, 2), (3, 5)]), ("AB", [(3, 5)]), ("", [])])
def test_search_ignores_case_until_it_has_capitals(
    words: str, found: list[tuple[int, int]]
) -> None:
    assert matches("ab AB", words) == found
    assert find(["x", "ab", "y"].__getitem__, 3, "ab", 1, 1) == 1
    assert find(["x", "y"].__getitem__, 2, "ab", 0, 1) is None


def test_which_configuration_wins(tmp_path: Path) -> None:
    user = tmp_path / "config" / "cubridge"
    user.mkdir(parents=True)
    (user / "config.toml").write_text(
        'theme = "light"\nmouse = 3\nthem = "x"\n[keys]\nacept-hunk = "a"\nstep = "n"\n'
    )
    (tmp_path / "cubridge.toml").write_text('theme = "high_contrast"\n')
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    ids = frozenset(a.id for a in actions.ACTIONS)
    config = load_config({}, environment, tmp_path, ids)
    assert config["theme"] == "high_contrast"
    assert config.values["theme"].source.endswith("cubridge.toml")
    assert config["mouse"] is True
    assert config.keymap == {"step": "n"}
    text = " ".join(config.warnings)
    assert "do you mean 'theme'" in text and "do you mean 'accept-hunk'" in text
    assert "mouse must be true or false" in text
    assert load_config({"theme": "dark"}, environment, tmp_path)["theme"] == "dark"
    assert load_config({}, environment | {"CUBRIDGE_THEME": "light"}, tmp_path)["theme"] == "light"
    (tmp_path / "cubridge.toml").write_text("theme = [")
    assert "is left out" in " ".join(load_config({}, environment, tmp_path).warnings)


def test_our_themes_have_the_same_styles() -> None:
    palettes, problems = load_themes()
    assert problems == () and len(palettes) == 4
    assert len({frozenset(p.styles) for p in palettes}) == 1


def test_a_persons_theme_names_only_what_it_changes(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('dark = false\n[styles]\nkeyword = "#ff0000 bold"\n')
    (tmp_path / "bad.toml").write_text('[styles]\nkeyword = "no such colour"\n')
    palettes, problems = load_themes(tmp_path)
    mine = next(p for p in palettes if p.name == "cubridge-mine")
    assert not mine.dark and str(mine.style("keyword")) == "bold #ff0000"
    assert mine.style("comment") == palettes[1].style("comment")
    assert len(problems) == 1 and "bad.toml" in problems[0]


def test_no_action_takes_a_key_that_moves_in_a_pane() -> None:
    """A focused pane keeps these for itself, so an action on one of them could never be done."""
    moves = set("hjklGJ") | {"up", "down", "left", "right", "home", "end", "pageup", "pagedown"}
    moves |= {"ctrl+u", "ctrl+d", "shift+up", "shift+down"}
    taken = {(a.id, k) for a in actions.ACTIONS for k in a.keys if k in moves}
    assert taken == set()
