"""A plain kernel of somebody, imported, and sessions about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine.build.machine_code.products import Launch
from engine.build.machine_code.result import BuildResult
from engine.build.tools.toolchain import Toolchain, find_toolchain
from engine.child.client import Child
from engine.errors import CuBridgeError
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.includes import reached, read_included
from engine.foreign.package import write_package
from engine.foreign.probe.places import Found, Hook, Place
from engine.graft.judge import Ran, Said, built, judge_run
from engine.resources import spec_path
from engine.service.executed import executed_work
from engine.service.executed.opened import adaptation_of
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel

SOURCE = Path(__file__).parents[2] / "graft" / "plain.cu"


def has_nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


def imported(folder: Path, source: Path = SOURCE, reference: str = "full") -> Path:
    sizes = ({"B": 1, "Hq": 2, "N": 64, "D": 8},)
    asked = Asked(source, Flags("sm_80"), reference=spec_path(reference), sizes=sizes)
    write_package(replace(asked, dtype="f32"), folder)
    return folder


def called(text: bytes) -> bytes:
    """The kernel with other names, comments, blanks and line ends."""
    for old, new in ((b"row", b"query"), (b"dot", b"product"), (b"head", b"which")):
        text = re.sub(rb"\b%s\b" % old, new, text)
    return text.replace(b"  ", b"\t").replace(b"{\n", b"\r\n{ // begins\r\n")


def pointed(asked: Asked, said: object) -> Found:
    """The place that probing finds in this kernel, `called` or not, without the time that it
    takes."""
    files = [asked.source.resolve(), *asked.source.resolve().parent.glob("*.cuh")]
    file = next(f for f in files if b" *= scale;" in f.read_bytes())
    text = file.read_bytes()
    names = {old: new if new.encode() in text else old
             for old, new in (("dot", "product"), ("row", "query"), ("head", "which"))}  # fmt: skip
    dot, head = names["dot"], names["head"]
    statement = f"{dot} *= scale;".encode()
    after = text.index(statement) + len(statement)
    indent = text[text.rindex(b"\n", 0, after) + 1 : after - len(statement)].decode()
    place = Place(
        file, after, text.count(b"\n", 0, after) + 1, "attention", dot, 1, dot,
        {"b": "batch", "h": head, "i": names["row"], "j": "n + first"},
        {"Hq": "heads", "Nq": "length", "Nk": "length", "D": "D"}, "1.0f", indent,
        ("b", "h", "i", "Hq", "Nq", "Nk", "D"),
    )  # fmt: skip
    hook = Hook((place,), 0.25, 0.25, 1, "by hand")
    return Found((hook,), (), (), (), {"attention": 1}, tuple(files))


def opened(bench: Bench, kernel: Path, spec: str, **options: object) -> Adaptation:
    package = find_kernel(f"{kernel}/")
    path = spec_path(spec)
    id = start(bench, package, path, choose_options(package, spec=options, asked=path), "me")
    return adaptation_of(bench, bench.store.writer(id), "me")


_ran: dict[str, Ran] = {}
_built: dict[str, BuildResult] = {}


def told_again(patch: pytest.MonkeyPatch) -> None:
    """Sessions of all tests execute and build equal texts once: the source itself above all. What
    is wrong is executed anew, since its words name where the source lies."""

    def run(asked: Asked, child: Child, said: Said) -> Ran:
        key = _content(asked)
        ran = _ran.get(key) or judge_run(asked, child, said)
        if ran.found.ok and not ran.not_launched:
            _ran[key] = ran
        return ran

    def build(
        asked: Asked, launches: Mapping[str, Launch], tools: Toolchain, folder: Path
    ) -> BuildResult:
        key = f"{sorted(launches.items())} {_content(replace(asked, reference=None, sizes=()))}"
        if key not in _built:
            _built[key] = built(asked, launches, tools, folder)
        return _built[key]

    patch.setattr(executed_work, "judge_run", run)
    patch.setattr(executed_work, "built", build)


def _content(asked: Asked) -> str:
    """All that says what a kernel is and what it is asked, wherever it lies."""
    files = reached(asked.source, asked.flags.includes)
    texts = [(file.name, read_included(file)) for file in files]
    spec = None if asked.reference is None else asked.reference.read_text()
    flags = replace(asked.flags, includes=())
    return repr((texts, spec, replace(asked, source=Path(), reference=None, flags=flags)))
