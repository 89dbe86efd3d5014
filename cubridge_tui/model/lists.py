"""What the start screen lists: kernels, specs (bundled and of the current folder), sessions."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cubridge_tui.console import typeable
from cubridge_tui.model.rows import Row
from cubridge_tui.model.steps import step_words
from cubridge_tui.text.sanitise import one_line
from engine import resources
from engine.errors import CuBridgeError, InputError
from engine.files import read_file, read_text
from sessions.listing import Listing, SessionSummary

LARGEST_SPEC = 1_000_000  # bytes of a Python file that is looked at
MOST_FILES = 200
_ENTRIES = ("attention", "attention_mods")
_BEGINS = re.compile(rb"^\s*(async\s+)?def\s+attention(_mods)?\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec file: what it is called in the list, and where it is; `problem`: why it is none."""

    label: str
    path: Path
    words: str
    bundled: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Lists:
    """The three lists; `problem` says why the store cannot be read, if so."""

    kernels: tuple[tuple[str, str], ...] = ()
    specs: tuple[Spec, ...] = ()
    sessions: tuple[SessionSummary, ...] = ()
    store: str = ""
    problem: str = ""

    def rows(self, name: str) -> Sequence[Row]:
        if name == "kernels":
            return [Row(f"{k:<20} {words}") for k, words in self.kernels]
        if name == "specs":
            width = max((len(s.label) for s in self.specs), default=0)
            return [Row(f"{s.label:<{width}}  {s.problem or s.words}") for s in self.specs]
        width = max((len(one_line(s.title, 40)) for s in self.sessions), default=0)
        return [_session_row(s, width) for s in self.sessions]

    def title(self, name: str) -> str:
        counts = {"kernels": len(self.kernels), "specs": len(self.specs)}
        count = counts.get(name, len(self.sessions))
        where = "" if name != "sessions" else f" in {self.store}"
        if where and self.sessions:
            where = f": title, level, stage, changed, last step {where}"
        return f"{name} ({count}){where}"

    def empty(self, name: str) -> str:
        whole = typeable("no kernel: the installation is not whole (`cubridge doctor` looks)")
        return {
            "kernels": whole,
            "specs": "no spec here: write a Python file with `def attention(q, k, v)`",
            "sessions": "no sessions yet: choose a spec above, then s starts",
        }[name]

    def about(self, name: str, at: Callable[[str], int]) -> str:
        """The words of what is under a list's cursor, for where its row is cut."""
        if name == "kernels":
            return self.kernels[at(name)][1] if at(name) < len(self.kernels) else ""
        if name == "specs":
            spec = self.spec(at(name))
            return (spec.problem or spec.words) if spec is not None else ""
        session = self.session(at("sessions"))
        return f"{session.id}: {step_words(session.last_step)}" if session is not None else ""

    def kernel(self, index: int) -> str:
        return self.kernels[index][0] if index < len(self.kernels) else ""

    def spec(self, index: int) -> Spec | None:
        return self.specs[index] if index < len(self.specs) else None

    def pair_blocked(self, kernel: str, spec: Spec | None) -> str:
        """Why a kernel and a spec cannot be adapted; empty when they can."""
        if not kernel or spec is None:
            return self.empty("kernels" if not kernel else "specs")
        return f"{spec.label} {spec.problem}; mend it, then r looks again" if spec.problem else ""

    def session(self, index: int) -> SessionSummary | None:
        return self.sessions[index] if index < len(self.sessions) else None


def read_lists(store: Listing, folder: Path) -> Lists:
    """The lists as they are now."""
    problem = ""
    sessions: list[SessionSummary] = []
    try:
        sessions = store.sessions()
    except CuBridgeError as error:
        problem = str(error).replace("\n", " ")
    kernels = [(name, _kernel_words(name)) for name in resources.list_kernels()]
    bundled = resources.specs_dir()
    specs = own_specs(folder) + [
        Spec(name, bundled / f"{name}.py", _words(bundled / f"{name}.py"), True)
        for name in sorted(resources.list_specs(), key=lambda n: (n != "softcap_causal", n))
    ]
    return Lists(tuple(kernels), tuple(specs), tuple(sessions), str(store.path), problem)


def own_specs(folder: Path) -> list[Spec]:
    """Python files of a folder that define an attention; read, never run."""
    if folder.resolve() == resources.specs_dir().resolve():
        return []
    with contextlib.suppress(OSError):
        return specs_among(sorted(folder.glob("*.py")), folder)
    return []


def specs_among(paths: Sequence[Path], folder: Path) -> list[Spec]:
    """Those of a folder's files, or of those below it, that define an attention."""
    found = []
    for path in paths[:MOST_FILES]:
        label = f"./{path.relative_to(folder)}"
        with contextlib.suppress(InputError, ValueError, RecursionError, MemoryError):
            text = read_file(path, "", LARGEST_SPEC)
            if not _BEGINS.search(text):
                continue
            try:
                tree = ast.parse(text)
            except SyntaxError as error:  # it would be a spec: missing, it would be a riddle
                why = one_line(f"does not parse: line {error.lineno}: {error.msg}")
                found.append(Spec(label, path, "", False, why))
                continue
            names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
            if names & set(_ENTRIES):
                words = (ast.get_docstring(tree) or "").split("\n")[0]
                found.append(Spec(label, path, words, False))
    return found


def files_below(folder: Path) -> list[Path]:
    """The files of a folder and below it; left out are hidden folders, environments of Python, and
    what `cubridge import` has copied."""
    from engine.lift.files.kernel_package import is_imported  # the start screen needs no packages

    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        place = Path(here)
        if place != folder and (is_imported(place) or "pyvenv.cfg" in names):
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        found += [place / name for name in sorted(names)]
    return found


def _words(path: Path) -> str:
    """What a bundled spec says of itself: its first line, which is its docstring's."""
    with contextlib.suppress(InputError):
        return read_text(path, "").split("\n")[0].strip('"')
    return ""


def _kernel_words(name: str) -> str:
    import tomllib

    with contextlib.suppress(InputError, ValueError):
        path = resources.kernel_dir(name) / "kernel.toml"
        return str(tomllib.loads(read_text(path, "")).get("title", ""))
    return ""


def _session_row(session: SessionSummary, width: int) -> Row:
    level = str(session.accepted or session.level)
    when = session.updated[:16].replace("T", " ")
    mark = "DAMAGED " if session.damaged else ""
    title = one_line(session.title, 40)
    step = one_line(step_words(session.last_step), 90)
    return Row(f"{title:<{width}}  {level:<13} {session.stage:<8} {when}  {mark}{step}")
