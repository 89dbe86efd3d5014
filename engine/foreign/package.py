"""A kernel of others as a folder: its sources, flags, launcher and reference, in `kernel.toml`."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.files import read_text, try_writing_below
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.includes import reached

MANIFEST = "kernel.toml"


def check_place(folder: Path) -> None:
    """Whether `write_package` could write the folder, before there is anything to write; nothing is
    left there.

    Raises:
        InputError: as `write_package`.
    """
    try:
        if os.path.lexists(folder):
            raise InputError(f"{folder} exists", fix="remove it, or name another with --out")
        try_writing_below(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def write_package(asked: Asked, folder: Path) -> None:
    """Writes the folder; files beside the source that it includes go with it.

    Raises:
        InputError: the folder exists, or cannot be written; then nothing of it is left.
    """
    if asked.reference is None:
        raise InputError("a kernel without a reference is not imported", fix="give --reference")
    check_place(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        _write(asked, folder)
    except OSError as error:  # half a folder would be in the way of the next try
        shutil.rmtree(folder, ignore_errors=True)
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder} cannot be written: {error.strerror or error}",
        fix="make room there, or name another folder with --out",
    )


def _write(asked: Asked, folder: Path) -> None:
    assert asked.reference is not None
    beside = asked.source.resolve().parent
    files = reached(asked.source, asked.flags.includes)
    for file in sorted(f for f, root in files.items() if root == beside):
        target = folder / file.relative_to(beside)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    shutil.copyfile(asked.reference, folder / "reference.py")
    included = tuple(str(Path(i).resolve()) for i in asked.flags.includes)
    asked = replace(asked, flags=replace(asked.flags, includes=included))
    (folder / MANIFEST).write_text(manifest_text(asked, folder.name), encoding="utf-8")


def read_package(folder: Path) -> Asked:
    """The kernel that a folder holds.

    Raises:
        InputError: its kernel.toml is not one that `write_package` writes.
    """
    path = folder / MANIFEST
    try:
        data = tomllib.loads(read_text(path, "give a folder that `cubridge import` wrote"))
        compiled, run = data["compile"], data["check"]
        return Asked(
            folder / data["source"],
            Flags(data["archs"][0], tuple(str(folder / i) for i in compiled["includes"]),
                  tuple(compiled["macros"]), tuple(compiled["flags"])),
            data["entry"],
            folder / data["reference"],
            dict(run["tensors"]),
            run["dtype"],
            run["head_dim"],
            tuple(dict(s) for s in run["sizes"]),
            dict(run.get("options", {})),
        )  # fmt: skip
    except (tomllib.TOMLDecodeError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"{path} is no manifest of an imported kernel: {error}",
            fix="import the kernel again with `cubridge import`",
        ) from None


def manifest_text(asked: Asked, name: str) -> str:
    """`kernel.toml` of a kernel in a folder of that name."""
    flags = asked.flags
    sizes = ", ".join(_table(s) for s in asked.sizes)
    rows: list[tuple[str, Any]] = [
        ("name", name), ("title", f"{name}, executed as PTX"), ("entry", asked.launcher),
        ("source", asked.source.name), ("reference", "reference.py"), ("archs", [flags.arch]),
    ]  # fmt: skip
    lines = [f"{key} = {json.dumps(value)}" for key, value in rows]
    lines += ["", "[compile]", f"includes = {json.dumps(flags.includes)}",
              f"macros = {json.dumps(flags.macros)}", f"flags = {json.dumps(flags.more)}",
              "", "[check]", f"dtype = {json.dumps(asked.dtype)}", f"head_dim = {asked.head_dim}",
              f"sizes = [{sizes}]", f"tensors = {_table(asked.shapes)}",
              f"options = {_table(asked.options)}", ""]  # fmt: skip
    return "\n".join(lines)


def _table(values: Any) -> str:
    return "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items()) + "}"
