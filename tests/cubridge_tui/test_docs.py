"""The pages about the app say what the app does now."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

from cubridge_tui.actions import as_markdown


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
