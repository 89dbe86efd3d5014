"""`cubridge specs list`: the example specs that come with CuBridge."""

from __future__ import annotations

import argparse

from cubridge_tui.console import show, show_json
from engine import resources


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list"], help="what to do")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    names = resources.list_specs()
    if args.json:
        show_json(
            {
                "folder": str(resources.specs_dir()),
                "specs": [
                    {"name": name, "sha256": resources.content_hash(resources.spec_path(name))}
                    for name in names
                ],
            }
        )
        return 0
    for name in names:
        show(f"{name}  {resources.spec_path(name)}")
    return 0
