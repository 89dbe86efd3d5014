"""`cubridge kernels list`: the expert kernels that come with CuBridge."""

from __future__ import annotations

import argparse
import os
import tomllib
from typing import Any

from cubridge_tui.console import show, show_json
from engine import resources
from engine.errors import InputError, Where
from engine.files import read_text

ABOUT = "kernel.toml"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list"], help="what to do")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    kernels = [describe(name) for name in resources.list_kernels()]
    if args.json:
        show_json(
            {
                "folder": str(resources.kernels_dir()),
                "kernels": kernels,
                "include_sha256": resources.content_hash(resources.include_dir()),
            }
        )
        return 0
    for kernel in kernels:
        show(f"{kernel['name']}  {', '.join(kernel['archs'])}".rstrip())
        if kernel["title"]:
            show(f"  {kernel['title']}")
    return 0


def describe(name: str) -> dict[str, Any]:
    """A kernel's name, content hash, and what its `kernel.toml` says of it."""
    folder = resources.kernel_dir(name)
    file, about = folder / ABOUT, dict[str, Any]()
    if os.path.lexists(file):
        try:
            about = tomllib.loads(read_text(file, "mend the file"))
        except tomllib.TOMLDecodeError as error:
            raise InputError(
                f"not TOML: {error}", where=Where(str(file)), fix="correct the file"
            ) from error
    archs = about.get("archs", [])
    if not isinstance(archs, list):
        fix = 'write `archs = ["sm_80"]`'
        raise InputError("archs: not a list of texts", where=Where(str(file)), fix=fix)
    return {
        "name": name,
        "title": str(about.get("title", "")),
        "archs": [str(arch) for arch in archs],
        "sha256": resources.content_hash(folder),
    }
