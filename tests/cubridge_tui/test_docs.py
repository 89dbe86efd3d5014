"""The pages about the app say what the app does now."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType

from cubridge_tui.actions import as_markdown
from cubridge_tui.cli import APP_OPTIONS, COMMANDS, app_parser


def script(root: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, root / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_keys_is_the_action_table(root: Path) -> None:
    page = (root / "docs" / "app.md").read_text(encoding="utf-8")
    keys = script(root, "make_app_keys")
    assert keys.with_table(page, as_markdown()) == page, "run: python docs/make_app_keys.py"


def test_the_tour_has_its_pictures_and_nothing_else(root: Path) -> None:
    page = (root / "docs" / "tour.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(tour/([^)]+)\)", page))
    assert named == {p.name for p in (root / "docs" / "tour").glob("*.svg")}
    for name in named:
        text = (root / "docs" / "tour" / name).read_text(encoding="utf-8")
        ET.fromstring(text)
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)
        assert "url(" not in text.replace("url(#", "")  # nothing is fetched from elsewhere


def test_help_and_the_pages_name_all_that_the_app_takes(
    root: Path, cubridge: Callable[..., CompletedProcess[str]]
) -> None:
    shown = cubridge("--help").stdout
    parser = app_parser()
    options = {o for a in parser._actions for o in a.option_strings} - {"-h", "--help"}
    assert options == {name for name, _, _ in APP_OPTIONS}
    pages = [(root / name).read_text(encoding="utf-8") for name in ("README.md", "docs/app.md")]
    for name, value, words in APP_OPTIONS:
        assert f"{name} {value}".strip() in shown and words in shown
        for page in pages:
            assert f"[{f'{name} {value}'.strip()}]" in page, name
    for name, (_, summary) in COMMANDS.items():
        assert summary in shown
        assert re.search(rf"(cubridge|·) {name}\b", pages[0]), f"README.md lacks {name}"
