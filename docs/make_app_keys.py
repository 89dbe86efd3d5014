"""Write the table of actions into `docs/app.md`: `python docs/make_app_keys.py`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "app.md"
BEGIN, END = "<!-- actions: begin -->\n", "<!-- actions: end -->\n"


def with_table(page: str, table: str) -> str:
    """The page with the table between its two marks."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + "\n" + table + "\n" + END + rest.split(END)[1]


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from cubridge_tui.actions import as_markdown

    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), as_markdown()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
