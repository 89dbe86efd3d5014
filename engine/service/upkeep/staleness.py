"""Which accepted kernels in a folder are stale: they were edited, or their source, spec or compiler
moved on.

A kernel is a folder with `verdicts.json`, as an export writes it. Of that file `kernel` (the expert
kernel's name), the hashes of the files beside it and the verdicts are read. The hashes that these
are about are compared with what the session that judged exactly these bytes names, where the store
has it, and else with the bundled kernel of that name and the spec beside the file. The level is the
session's, else the one that the verdicts earn; the one that the file claims is compared with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError, InputError, MissingTool
from engine.files import read_file, read_spec
from engine.resources import list_kernels
from engine.service.session.disk_inputs import MODULES, modules_hash, session_kernel
from engine.service.session.workbench import find_kernel
from engine.types import Gate, Level, Verdict, VerdictKind, level_of, sha256_of
from sessions.session import Session
from sessions.state import JUDGED, SessionState
from sessions.store import Store

VERDICTS = "verdicts.json"
FILES, SOURCE, SPEC, COMPILER, LEVEL = "files", "source", "spec", "compiler", "level"


@dataclass(frozen=True, slots=True)
class Held:
    """An accepted kernel in a folder. `stale` says by name what moved on and how, `unknown` what
    could not be compared and why, `steps` what to type; `session` made it, where that is known.
    `level` is computed, and None for a file that is none of verdicts."""

    folder: Path
    level: Level | None
    session: str = ""
    stale: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


def accepted_kernels(folder: Path) -> Iterator[Path]:
    """The folders below `folder` that hold a `verdicts.json`, but those in hidden ones."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if VERDICTS in files:
            yield Path(place)


def repository_of(folder: Path) -> Path:
    """The repository that a folder is in; the folder itself where it is in none.

    Raises `InputError` where there is no such folder.
    """
    place = folder.expanduser().absolute()
    if not place.is_dir():
        raise InputError(f"{folder} is no folder", fix="name a repository, or a folder of one")
    return next((p for p in (place, *place.parents) if (p / ".git").exists()), place)


def status_of(folder: Path, judges: Judges) -> Held:
    """What became of what the accepted kernel in `folder` was judged with.

    A `verdicts.json` that is none, such as another tool's, is unknown with its reason.
    """
    try:
        data, verdicts = _read(folder / VERDICTS)
    except CuBridgeError as error:
        return Held(folder, None, unknown={VERDICTS: error.message})
    judged = _judged_hashes(verdicts)
    session = judges.of(judged)
    stale: dict[str, str] = {}
    unknown: dict[str, str] = {}
    level = _compare_level(data.get("level"), level_of(verdicts), session, judged, stale, unknown)
    _compare_files(folder, data.get("files"), stale, unknown)
    if session is None:
        named = str(data.get("kernel", ""))
        _compare_source_by_name(named, judged, stale, unknown)
        _compare_spec_beside(folder, judged, stale)
    else:
        _compare_source(session.state, judged, stale, unknown)
        _compare_spec(session.state, judged, stale, unknown)
    _compare_compiler(judged, stale, unknown)
    if session is None:
        steps = _anew(str(data.get("kernel", "")), folder) if stale else ()
        return Held(folder, level, "", stale, unknown, steps)
    return Held(folder, level, session.id, stale, unknown, _steps(session, folder, judged, stale))


def _read(path: Path) -> tuple[Mapping[str, Any], tuple[Verdict, ...]]:
    """The file's data, and its verdicts."""
    try:
        data = json.loads(read_file(path, "make it readable"))
        return data, tuple(Verdict.from_json(v) for v in data["verdicts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} is no file of verdicts: {error}", fix="export the kernel again"
        ) from None


def _judged_hashes(verdicts: Iterable[Verdict]) -> Mapping[str, str]:
    """The hashes of the verdict that names the most: G3's, else G2's."""
    subject: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.gate in (Gate.G2, Gate.G3) and verdict.kind is not VerdictKind.NOT_RUN:
            subject = {**subject, **dict(verdict.subject)}
    return subject


class Judges:
    """The sessions of a store that judged an accepted kernel, the one changed last first.

    Each is read once, however many kernels ask, and none before one asks for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rest: Iterator[Session] | None = None
        self._read: list[Session] = []

    def of(self, judged: Mapping[str, str]) -> Session | None:
        """The session that judged these bytes for this spec."""
        return next((session for session in self._all() if _judged(session, judged)), None)

    def _all(self) -> Iterator[Session]:
        if self._rest is None:
            accepted = [s.id for s in self._store.sessions() if s.accepted is not None]
            self._rest = map(self._store.load, accepted)
        yield from self._read
        for session in self._rest:
            self._read.append(session)
            yield session


def _judged(session: Session, judged: Mapping[str, str]) -> bool:
    subjects = (dict(g.verdict.subject) for g in session.state.given if g.verdict.gate is Gate.G3)
    names = ("artifact", "kernel", "spec")
    return any(all(s.get(n) == judged.get(n) for n in names) for s in subjects)


def _compare_level(
    claimed: object, earned: Level, session: Session | None, judged: Mapping[str, str],
    stale: dict[str, str], unknown: dict[str, str],
) -> Level:  # fmt: skip
    """The level that the session that judged these bytes gives them by now, else the one that the
    file's verdicts earn; another one anywhere is told."""
    said = f"{VERDICTS} says {claimed!r}"
    if claimed not in [level.value for level in Level]:
        said += ", which is no level"
    known: Level | None = None
    if session is None:
        unknown[LEVEL] = f"no session here judged it: the word of {VERDICTS} is taken"
    else:
        acceptance = session.state.acceptance
        lowered = JUDGED[Gate.G3].value
        if acceptance and acceptance.hashes.get(lowered) == judged.get("artifact"):
            known = session.state.accepted_level
        else:
            unknown[LEVEL] = f"session {session.id} has accepted another kernel since"
    if not claimed == earned.value == (earned if known is None else known).value:
        stale[LEVEL] = f"{said}; the verdicts in it earn {earned}" + (
            f"; session {session.id} gives these bytes {known}"
            if session is not None and known is not None
            else ""
        )
    return earned if known is None else known


def _compare_files(
    folder: Path, files: object, stale: dict[str, str], unknown: dict[str, str]
) -> None:
    """What was exported is still what is there: nobody judged an edit."""
    if not isinstance(files, Mapping):
        unknown[FILES] = f"{VERDICTS} has no hashes of them: it was exported before it had any"
        return
    others = []
    for name, known in files.items():
        try:
            if known and sha256_of(read_file(folder / name, "restore it")) != known:
                others.append(f"{name} is not what was accepted")
        except InputError as error:
            others.append(f"{name} {error.message}")
    if others:
        more = f", and {len(others) - 1} files more" if len(others) > 1 else ""
        stale[FILES] = f"{others[0]}{more}"


def _compare_source(
    state: SessionState, judged: Mapping[str, str], stale: dict[str, str], unknown: dict[str, str]
) -> None:
    try:
        package = session_kernel(state)
    except CuBridgeError as error:
        unknown[SOURCE] = error.said
        return
    if package.hashes["package"] != judged.get("kernel"):
        stale[SOURCE] = f"{package.file} is another version than the one that was adapted"


def _compare_source_by_name(
    name: str, judged: Mapping[str, str], stale: dict[str, str], unknown: dict[str, str]
) -> None:
    if name not in list_kernels():
        unknown[SOURCE] = f"no session here made it, and no bundled kernel is called {name!r}"
    elif find_kernel(name).hashes["package"] != judged.get("kernel"):
        stale[SOURCE] = f"the bundled {name} is another version than the one that was adapted"


def _compare_spec(
    state: SessionState, judged: Mapping[str, str], stale: dict[str, str], unknown: dict[str, str]
) -> None:
    assert state.created is not None
    spec = Path(str(state.created.options["spec_path"]))
    try:
        changed = sha256_of(read_spec(spec)) != judged.get("spec")
    except CuBridgeError as error:
        unknown[SPEC] = error.said
        return
    if changed:
        stale[SPEC] = f"{spec} changed since"
    elif MODULES in judged and modules_hash(spec) != judged[MODULES]:
        stale[SPEC] = f"a module that {spec} imports changed since"


def _compare_spec_beside(folder: Path, judged: Mapping[str, str], stale: dict[str, str]) -> None:
    for path in folder.rglob("*.py"):
        with contextlib.suppress(InputError):  # too large, or unreadable: not the spec
            if sha256_of(read_spec(path)) == judged.get("spec"):
                return
    stale[SPEC] = "the spec in this folder is not the one that was judged"


def _compare_compiler(
    judged: Mapping[str, str], stale: dict[str, str], unknown: dict[str, str]
) -> None:
    was = judged.get("compiler")
    if was is None:
        unknown[COMPILER] = "no compiler has judged it"
        return
    try:
        now = find_toolchain().identity
    except MissingTool:
        unknown[COMPILER] = "there is no nvcc here"
        return
    if now != was:
        stale[COMPILER] = f"judged with {was}; here is {now}"


def _steps(
    session: Session, folder: Path, judged: Mapping[str, str], stale: Mapping[str, str]
) -> tuple[str, ...]:
    """What to type, one command after the other."""
    export = f"cubridge export {session.id} {shlex.quote(str(folder))}"
    state = session.state
    if not stale:
        return ()
    if SPEC in stale:
        assert state.created is not None
        spec = shlex.quote(str(state.created.options["spec_path"]))
        kernel = ""  # gone from the disk, as `unknown` says
        with contextlib.suppress(CuBridgeError):
            kernel = shlex.quote(str(session_kernel(state).folder))
        return _anew(kernel, folder, spec)
    if SOURCE in stale:
        newer = state.hashes.get("kernel") != judged.get("kernel")
        rebase = f"cubridge rebase {session.id} --accept"
        return (export,) if newer and state.acceptance_is_current else (rebase, export)
    if COMPILER not in stale:  # edited files: exporting writes them as they were accepted
        return () if state.accepted_level is Level.NONE else (export,)
    return (f"cubridge lower {session.id} --out /dev/null", export)


def _anew(kernel: str, folder: Path, spec: str = "SPEC.py") -> tuple[str, ...]:
    where = shlex.quote(str(folder))
    return (
        f"cubridge adapt --kernel {kernel or 'KERNEL'} --spec {spec} --accept --export {where}",
    )
