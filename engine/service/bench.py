"""What all sessions of one process share: the store, the warm torch child, the tools."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.child.client import Child
from engine.errors import InputError
from engine.lift.package import KernelPackage, load_package
from engine.resources import kernel_dir, list_kernels, spec_path
from sessions.store import Store

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Progress for callers that show none."""


@dataclass(slots=True)
class Bench:
    """The workplace of one app or one headless run. `close` ends the child."""

    store: Store
    child: Child = field(default_factory=Child)
    cancel: threading.Event = field(default_factory=threading.Event)
    progress: Progress = silent

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
    """A bundled kernel by name, or the kernel package in a folder.

    Raises:
        InputError: neither exists, or the package is not whole.
    """
    path = Path(name_or_path).expanduser()
    if "/" in name_or_path or path.is_dir() or name_or_path.endswith(".cu"):
        if path.suffix == ".cu":
            path = path.parent
        if not path.is_dir():
            raise InputError(
                f"there is no kernel at {name_or_path}",
                fix=f"name one of: {', '.join(list_kernels())}; or give a kernel package's folder",
            )
        return load_package(path)
    return load_package(kernel_dir(name_or_path))


def find_spec(name_or_path: str) -> Path:
    """The spec file that a name or a path means."""
    return spec_path(name_or_path)
