"""Who reads files: `engine.files` reads a person's paths, and all others only what is named here.

A path that somebody names may be a pipe, a device or too large. A module that is not listed, or
that reads in one place more than is listed, goes through `engine.files`, or says here whose files
it reads.
"""

from __future__ import annotations

import ast

from tests.packaging.rooms import PACKAGES, ROOT, modules

# How often a module opens a file by itself, by whose file it is.
OURS = {  # comes with CuBridge, in a folder of ours
    "engine.cost.card": 1,
    "engine.cost.scalar": 1,
    "engine.cuir.arch": 1,
    "engine.foreign.compile": 1,
    "engine.gates.g3_source.conformance": 1,
    "cubridge_tui.model.page": 1,
    "engine.gpu.job": 2,
    "engine.gpu.ray_driver": 1,
    "engine.lift.names.headers": 2,
    "engine.package.export": 1,
    "engine.package.module": 1,
    "engine.package.vendor": 1,
    "engine.ptx.records": 1,
    "engine.resources": 3,
    "engine.service.models.llm_conversation": 1,
    "engine.transfer.llm.prompt": 1,
}
WRITTEN = {  # what CuBridge or a tool that it ran has written, in a folder that it made
    "cubridge_tui.editor": 1,
    "cubridge_tui.places": 2,
    "engine.build.folder.cache": 3,
    "engine.build.folder.scratch": 1,
    "engine.build.machine_code.products": 1,
    "engine.foreign.compile": 6,
    "engine.foreign.record": 1,
    "engine.gpu.ray_driver": 4,
    "engine.gpu.ray_runner": 2,
    "sessions.git_store": 3,
    "sessions.lease": 2,
    "sessions.store": 2,
    "sessions.writer": 1,
}
SYSTEM = {  # /proc, /sys, /dev/null, a stream of this process, the installed torch
    "cubridge_tui.cli": 3,
    "engine.build.tools.process": 1,
    "engine.build.tools.watchdog": 3,
    "engine.child.family": 4,
    "engine.child.keeper": 1,
    "engine.torch_child.server": 1,
    "engine.child.spec_process": 1,
    "engine.service.upkeep.doctor": 1,
    "engine.gates.g3_source.g3_process": 1,
    "engine.priority": 2,
}
CARRIED = {  # runs beside its own files on another machine, without `engine.files`
    "engine.worker.orchestration.building": 2,
    "engine.worker.orchestration.main": 1,
    "engine.worker.orchestration.manifest": 5,
    "engine.worker.orchestration.races": 1,
    "engine.worker.orchestration.results": 2,
    "engine.worker.verification.sanitize": 1,
    "engine.worker.verification.verify": 1,
    "engine.package.runtime._spec": 1,
    "engine.package.runtime._tables": 1,
    "engine.package.runtime.build": 5,
}
NEW = {"cubridge_tui.screens.gpu": 1}  # opened to write, and refused where there is a file
ONLY = {"engine.files": 1}
# `x.open`: not a file
NO_FILES = ("Store", "Listing", "tarfile", "scope", "self.scope", "subject.tallies")


def opened(source: str) -> int:
    """How often a module's source opens a file by itself."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            count += node.id == "open"
        elif isinstance(node, ast.Attribute):
            count += node.attr in ("read_text", "read_bytes", "fromfile")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base = ast.unparse(node.func.value)
            count += node.func.attr == "open" and base not in NO_FILES
    return count


def test_the_scan_sees_every_way() -> None:
    for source in (
        "open(p)", "p.read_text()", "p.read_bytes()", "p.open('rb')", "os.open(p, 0)", "io.open(p)",
        "list(map(Path.read_bytes, p))", "np.fromfile(p)",
    ):  # fmt: skip
        assert opened(source) == 1, source
    assert (
        opened(
            "Store.open(p); tarfile.open(fileobj=b); read_file(p); scope.open(); a.open: int = 0"
        )
        == 0
    )


def test_a_person_s_path_is_read_by_one_module() -> None:
    allowed: dict[str, int] = {}
    for group in (OURS, WRITTEN, SYSTEM, CARRIED, NEW, ONLY):
        for name, count in group.items():
            allowed[name] = allowed.get(name, 0) + count
    found = {
        name: count
        for package in PACKAGES
        for name, path in modules(package).items()
        if (count := opened(path.read_text(encoding="utf-8")))
    }
    assert (ROOT / "engine" / "files.py").is_file()
    assert found == allowed
