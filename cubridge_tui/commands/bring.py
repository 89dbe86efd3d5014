"""`cubridge import KERNEL.cu --reference SPEC`: a kernel of others as a folder, after its G1."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from cubridge_tui.console import say, show
from cubridge_tui.headless_foreign import PASSED, asked_from, check_and_report, kernel_options

DRAFT = "launcher.cu"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", help="a CUDA source with its launcher")
    parser.add_argument("--out", metavar="FOLDER", help="the folder to write (./NAME)")
    kernel_options(parser)


def folder_of(args: argparse.Namespace) -> Path:
    """The folder that is written."""
    return Path(args.out or Path(args.kernel).stem)


def run(args: argparse.Namespace) -> int:
    from engine.errors import InputError
    from engine.foreign.package import check_place, write_package

    path = Path(args.kernel)
    asked = asked_from(path, args)
    if asked.reference is None:
        raise InputError("a kernel is imported with its reference", fix="--reference SPEC.py")
    folder = folder_of(args)
    check_place(folder)
    _draft_if_missing(path, asked.launcher)
    code, sizes = check_and_report(asked, as_json=False)
    if code != PASSED:
        say("nothing was written: import it when its G1 passes")
        return code
    write_package(replace(asked, sizes=sizes), folder)
    name = shlex.quote(str(folder))
    show(f"{folder}: written; `cubridge check {name}` runs its G1 again")
    return PASSED


def _draft_if_missing(path: Path, launcher: str) -> None:
    """Where the source lacks the launcher, writes one to fill in, and says so."""
    from engine.errors import InputError
    from engine.files import read_text
    from engine.foreign.draft import draft_launcher
    from engine.foreign.functions import has_function
    from engine.foreign.launcher import SHAPES

    text = read_text(path, "give a CUDA source")
    if has_function(text, launcher):
        return
    target = path.parent / DRAFT
    fix = f"name it with --launcher, or write one: {target} is there already"
    if not target.exists():
        target.write_text(draft_launcher(text, path.name, SHAPES, DRAFT), encoding="utf-8")
        fix = f"fill in what {target} marks, a draft of one, and import that file"
    raise InputError(f"{path} has no function named {launcher}", fix=fix)
