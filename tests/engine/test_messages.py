"""What the engine says may be read in the app: it names no option of a command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTION = re.compile(
    r"(?<![\w-])--(pack|host|python|model|base-url|runner|command|no-bench|lengths|wait|record)\b"
)
# Read on a command line alone: what its own options say, and recordings, which the app has not.
ELSEWHERE = {
    "engine/worker/orchestration/job_options.py",
    "engine/llm/record.py",
    "cubridge_tui/screens/gpu.py",
}


def texts(path: Path) -> Iterator[str]:
    """Every text of a module that is no docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize(
    "folder", ["engine/gpu", "engine/llm", "engine/service", "sessions", "cubridge_tui/screens"]
)
def test_no_message_that_the_app_shows_names_an_option(folder: str) -> None:
    found = [
        (str(path.relative_to(ROOT)), text)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ELSEWHERE
        for text in texts(path)
        if OPTION.search(text)
    ]
    assert not found
