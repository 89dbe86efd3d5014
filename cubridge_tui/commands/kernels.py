"""`cubridge kernels list`: the expert kernels that come with CuBridge."""

from __future__ import annotations

import argparse

from cubridge_tui.console import show, show_json
from engine import resources


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list"], help="what to do")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    names = resources.list_kernels()
    if args.json:
        show_json(
            {
                "folder": str(resources.kernels_dir()),
                "kernels": [
                    {"name": name, "sha256": resources.content_hash(resources.kernel_dir(name))}
                    for name in names
                ],
                "include_sha256": resources.content_hash(resources.include_dir()),
            }
        )
        return 0
    for name in names:
        show(f"{name}  {resources.kernel_path(name)}")
    return 0
