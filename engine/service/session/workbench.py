"""What all sessions of one process share: the store, the warm torch child, the tools."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.child.client import Child
from engine.errors import InputError, Where, nearest
from engine.lift import KernelPackage, Lifted, lift, load_package
from engine.lift.files.kernel_package import MANIFEST, is_imported
from engine.resources import KERNEL_SOURCE, kernel_dir, list_kernels, spec_path
from engine.service.session.session_options import usual_specialisation
from sessions.store import Store

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Progress for callers that show none."""


@dataclass(slots=True)
class Bench:
    """The workplace of one app or one headless run. `close` ends the child.

    `apart` is for callers that paint a screen: long pure work is then done in other processes.
    """

    store: Store
    child: Child = field(default_factory=Child)
    cancel: threading.Event = field(default_factory=threading.Event)
    progress: Progress = silent
    apart: bool = False

    def close(self) -> None:
        self.child.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/cubridge, else ~/.cache/cubridge: build products, safe to delete."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".cache"
    return base / "cubridge"


def find_kernel(name_or_path: str) -> KernelPackage:
    """A bundled kernel by name, or the kernel package at a path.

    Raises:
        InputError: neither exists, or the package is not whole.
    """
    if "/" in name_or_path or name_or_path.endswith(".cu"):
        path = Path(name_or_path).expanduser()
        near = "" if path.exists() else nearest(str(path), _beside(path))
        if near:
            raise InputError(
                "there is no such file or folder", where=Where(str(path)),
                fix=f"do you mean {near}? Else give the path of a .cu file or a bundled kernel's "
                "name",
            )  # fmt: skip
        folder = path.parent if path.name == MANIFEST else path
        if is_imported(folder):
            from engine.graft.kernel import load_executed  # with numpy, 0.1 s

            return load_executed(folder)
        return load_package(path)
    if name_or_path not in list_kernels() and Path(name_or_path, MANIFEST).is_file():
        raise InputError(
            f"there is no bundled kernel {name_or_path!r}",
            fix=f"give ./{name_or_path} for the folder here",
        )
    return load_package(kernel_dir(name_or_path))


def _beside(path: Path) -> list[str]:
    """The kernels in a path's folder, as that path would name them."""
    try:
        there = sorted(path.parent.iterdir())
    except (OSError, ValueError):
        return []
    usual = [p for p in there if p.suffix == ".cu" or (p / KERNEL_SOURCE).is_file()]
    found = [p for p in usual if os.path.exists(p)]  # a link to nothing is no kernel
    return [str(path.parent / p.name) for p in found]


def lift_any(name_or_path: str, arch: str | None, specialisation: Mapping[str, str]) -> Lifted:
    """A kernel, a package or a bare `.cu` file, lifted under the named bindings."""
    package = find_kernel(name_or_path)
    if not package.specialisations:
        return lift(package, specialisation or None, arch)
    return lift(package, dict(usual_specialisation(package)) | dict(specialisation), arch)


def find_spec(name_or_path: str) -> Path:
    """The spec file that a name or a path means."""
    return spec_path(name_or_path)
