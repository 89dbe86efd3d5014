"""What a session depends on beside its own content, and whether it is still so on the disk.

A session names its kernel package and its spec by path and by hash. The gates run what is on the
disk (the reference and the spec are Python that imports), so they ask here first: a verdict about
other files than those that the session names would be about nothing that anybody can see.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from engine.closure import beside
from engine.errors import CuBridgeError, InputError
from engine.files import read_spec
from engine.lift.files.kernel_package import KernelPackage
from engine.service.session.workbench import find_kernel
from engine.types import sha256_of
from sessions.events import Rebased
from sessions.state import SessionState

if TYPE_CHECKING:
    from engine.service.session.stage_work import Work

MODULES = "spec_modules"
"""The input that is the spec's own imports: modules beside it, and what those import."""
PARTS = ("reference", "manifest", "headers")
_WORDS = {"manifest": "kernel.toml", "headers": "primitive headers", "source": "source"}


def spec_modules(spec: Path) -> dict[str, bytes]:
    """The modules beside a spec that it imports, directly or not, by their path in its folder.

    A spec that is no Python, or that cannot be read, has none: whoever runs it says so.
    """
    try:
        return {name: read_spec(path) for name, path in beside(spec).items()}
    except (CuBridgeError, OSError):
        return {}


def modules_text(modules: dict[str, bytes]) -> str:
    """All of them in one text, as a session keeps them; its hash is the input `MODULES`."""
    texts = {name: data.decode("utf-8", "surrogateescape") for name, data in modules.items()}
    return json.dumps(texts, indent=2, sort_keys=True) + "\n"


def modules_hash(spec: Path) -> str:
    """The hash of the modules that a spec imports from beside it."""
    return sha256_of(modules_text(spec_modules(spec)))


def inputs_of(package: KernelPackage, spec: Path) -> dict[str, str]:
    """The hashes of all that a session depends on, besides the kernel's and the spec's own."""
    parts = {part: package.hashes[part] for part in PARTS if part in package.hashes}
    return parts | {MODULES: modules_hash(spec)}


def kernel_place(state: SessionState) -> Rebased:
    """Where a session's kernel is: as it was rebased last, else as it began."""
    created = state.created
    assert created is not None
    began = str(created.options.get("kernel_path") or created.kernel)
    return state.rebased or Rebased(began)


def kernel_at(place: Rebased) -> KernelPackage:
    """The kernel package at a place, as it is on the disk now.

    Raises `InputError` where there is none any more.
    """
    package = find_kernel(place.kernel)
    return package.with_source(Path(place.source)) if place.source else package


def session_kernel(state: SessionState) -> KernelPackage:
    """The kernel package of a session, as `kernel_at` gives it."""
    return kernel_at(kernel_place(state))


def spec_moved(work: Work) -> str | None:
    """What is no longer as the session has it: the spec, or a module that it imports."""
    hashes = work.state.hashes
    try:
        if sha256_of(read_spec(work.spec)) != hashes.get("spec"):
            return work.spec.name
    except InputError:
        return work.spec.name
    known = hashes.get(MODULES)
    if known is not None and modules_hash(work.spec) != known:
        return f"a module that {work.spec.name} imports"
    return None


def kernel_moved(work: Work) -> str | None:
    """What of the kernel's package on the disk is no longer as the session has it."""
    hashes, package = work.state.hashes, work.package
    try:
        now = session_kernel(work.state)
    except (CuBridgeError, OSError) as error:
        return f"the package of {package.name} ({error})"
    if now.hashes["package"] == package.hashes["package"] == hashes.get("kernel"):
        return None
    known = {part: hashes.get(part) for part in PARTS} | {"source": hashes.get("source")}
    changed = [
        _WORDS.get(part, part)
        for part, sha256 in known.items()
        if sha256 is not None and now.hashes.get(part) != sha256
    ]
    return f"the {' and '.join(changed) or 'package'} of {package.name}"


def check_kernel(work: Work) -> None:
    """Raises `InputError` where `kernel_moved` finds anything."""
    moved = kernel_moved(work)
    if moved is not None:
        raise InputError(
            f"{moved} changed on disk after session {work.session.id} took it",
            fix="restore it, or start a new session",
        )


def check_spec(work: Work) -> None:
    """Raises `InputError` where `spec_moved` finds anything."""
    moved = spec_moved(work)
    if moved is not None:
        raise InputError(
            f"{work.spec} is no longer the spec that session {work.session.id} adapts: "
            f"{moved} changed or cannot be read",
            fix="restore it, or start a new session from the new spec",
        )
