"""What this machine has for the pipeline, and what to type where something is missing.

Nothing heavy is imported: torch and the libraries are read from their installed metadata, tools are
asked for their version, each with a time limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from engine.build.tools.toolchain import (
    INSTALL_NVCC,
    Origin,
    find_host_compiler,
    find_ninja,
    find_toolchain,
)
from engine.errors import MissingTool
from engine.gpu.ray_runner import INSTALL_RAY, RAY_VARIABLE

PROBE_SECONDS = 10
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 6)
# git learnt core.fsync in 2.36; older ones ignore it and may lose the last event on a power cut.
GIT_WITH_FSYNC = (2, 36)
LIBRARIES = (
    "textual",
    "openai",
    "numpy",
    "pygments",
    "gitpython",
    "tree-sitter",
    "tree-sitter-cuda",
)
INSTALL = "pip install cubridge-tui (in a checkout: ./dev setup)"


class Status(StrEnum):
    OK = "ok"
    MISSING = "missing"  # needed here, so something cannot run
    ABSENT = "absent"  # useful, not needed here


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. `fix` is what to type, empty where nothing is to be done."""

    name: str
    status: Status
    detail: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "fix": self.fix,
        }


def examine(environ: Mapping[str, str] | None = None, store: Path | None = None) -> list[Check]:
    """Every check, in the order of the pipeline. `store` overrides where sessions are kept."""
    environ = os.environ if environ is None else environ
    return [
        _python(),
        _torch(),
        _libraries(),
        _git(environ),
        _ninja(environ),
        *_compiler(environ),
        _gpu(environ),
        _ray(environ),
        _terminal(environ),
        _store(store or default_store(environ), environ),
    ]


def whole(checks: list[Check]) -> bool:
    """Whether nothing that is needed is missing."""
    return all(check.status is not Status.MISSING for check in checks)


def default_store(environ: Mapping[str, str]) -> Path:
    """$CUBRIDGE_STORE, else $XDG_DATA_HOME/cubridge/store.git (~/.local/share where unset)."""
    if named := environ.get("CUBRIDGE_STORE"):
        return Path(named).expanduser()
    # The XDG specification: a relative value is invalid and ignored.
    data_home = environ.get("XDG_DATA_HOME", "")
    base = Path(data_home) if os.path.isabs(data_home) else _home(environ) / ".local" / "share"
    return base / "cubridge" / "store.git"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _python() -> Check:
    version = sys.version.split()[0]
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", Status.MISSING, f"{version} is too old", "install Python 3.11")
    return Check("python", Status.OK, f"{version} ({sys.executable})")


def _torch() -> Check:
    fix = "pip install 'torch>=2.6' (in a checkout: ./dev setup)"
    try:
        installed = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return Check("torch", Status.MISSING, "specs, G1 and G2 cannot run without it", fix)
    version = installed.version
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST_TORCH:
        return Check("torch", Status.MISSING, f"{version} is too old, 2.6 is needed", fix)
    folder = Path(str(installed.locate_file("torch")))
    if not (folder / "__init__.py").is_file():
        return Check("torch", Status.MISSING, f"{version} is only half installed", fix)
    return Check("torch", Status.OK, f"{version} ({_torch_build(folder)})")


def _torch_build(folder: Path) -> str:
    """What torch was built for, from its version.py, without importing it."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return "build unknown"
    found = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return f"CUDA {found[1]}" if found else "CPU build"


def _libraries() -> Check:
    found, missing = [], []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("libraries", Status.MISSING, f"missing: {', '.join(missing)}", INSTALL)
    return Check("libraries", Status.OK, ", ".join(found))


def _git(environ: Mapping[str, str]) -> Check:
    path = shutil.which("git", path=environ.get("PATH", ""))
    # Git reads its configuration even for this; the store keeps it out of reach.
    bare = {**environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    text = _first_line([path, "--version"], bare) if path else None
    found = re.search(r"(\d+)\.(\d+)", text or "")
    if not path or not found:
        return Check("git", Status.MISSING, "sessions are kept with it", "sudo apt install git")
    if (int(found[1]), int(found[2])) < GIT_WITH_FSYNC:
        return Check("git", Status.ABSENT, f"{text}: too old for core.fsync", "install git 2.36")
    if _first_line([path, "--version"], environ) is None:
        detail = f"{text}: it cannot read its configuration, so it commits into no repository"
        return Check("git", Status.ABSENT, detail, "git version (says which file; mend that)")
    return Check("git", Status.OK, f"{text} ({path})")


def _ninja(environ: Mapping[str, str]) -> Check:
    try:
        path = find_ninja(environ)
    except MissingTool as error:
        return Check("ninja", Status.MISSING, "kernels are built with it", error.fix or INSTALL)
    version = _first_line([str(path), "--version"], environ)
    if version is None:
        return Check("ninja", Status.MISSING, f"{path} does not run", "pip install ninja")
    return Check("ninja", Status.OK, f"{version} ({path})")


def _compiler(environ: Mapping[str, str]) -> list[Check]:
    try:
        toolchain = find_toolchain(environ)
    except MissingTool as error:
        detail = f"{error.message}; G3 cannot compile"
        return [Check("nvcc", Status.MISSING, detail, error.fix or INSTALL_NVCC)]
    place = f"{toolchain.nvcc.path}, from {_origin(toolchain.nvcc.origin)}"
    builds = ", ".join(toolchain.archs)
    checks = [Check("nvcc", Status.OK, f"{toolchain.version_text} ({place}); builds for {builds}")]
    try:
        checks.append(Check("host compiler", Status.OK, str(find_host_compiler(environ))))
    except MissingTool as error:
        checks.append(Check("host compiler", Status.MISSING, error.message, error.fix or ""))
    for name, tool in (("cuobjdump", toolchain.cuobjdump), ("nvdisasm", toolchain.nvdisasm)):
        if tool:
            checks.append(Check(name, Status.OK, f"{tool.path} (from {_origin(tool.origin)})"))
        else:
            detail = "machine code cannot be listed without it"
            checks.append(Check(name, Status.ABSENT, detail, INSTALL_NVCC))
    return checks


def _origin(origin: Origin) -> str:
    return {
        Origin.CUDA_HOME: "CUDA_HOME",
        Origin.PATH: "PATH",
        Origin.WHEELS: "the cuda extra",
        Origin.TOOLKIT: "nvcc's toolkit",
    }[origin]


def _gpu(environ: Mapping[str, str]) -> Check:
    carry = "cubridge gpu pack (carries G4 to a machine that has one)"
    path = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if not path:
        return Check("gpu", Status.ABSENT, "no NVIDIA driver here; G4 runs as a job", carry)
    query = "--query-gpu=name,compute_cap,memory.total,driver_version"
    try:
        result = _run([path, query, "--format=csv,noheader"], environ)
    except (OSError, subprocess.SubprocessError):
        return Check("gpu", Status.ABSENT, f"{path} reports no GPU; G4 runs as a job", carry)
    lines = [line.strip() for line in result.splitlines() if line.strip()]
    if not lines:
        return Check("gpu", Status.ABSENT, f"{path} reports no GPU; G4 runs as a job", carry)
    return Check("gpu", Status.OK, "; ".join(lines))


def _ray(environ: Mapping[str, str]) -> Check:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        detail = "not installed; only the ray runner needs it"
        return Check("ray", Status.ABSENT, detail, INSTALL_RAY)
    address = environ.get(RAY_VARIABLE)
    where = f"the cluster at {address}" if address else "the cluster that this machine is part of"
    return Check("ray", Status.OK, f"{version}; the ray runner joins {where}")


def _terminal(environ: Mapping[str, str]) -> Check:
    term = environ.get("TERM", "")
    if not term or term == "dumb":
        fix = "start `cubridge` in a terminal; every command also works without one"
        return Check("terminal", Status.ABSENT, "none, so the app cannot start here", fix)
    true_colour = environ.get("COLORTERM") in ("truecolor", "24bit")
    colours = "24-bit colour" if true_colour else "256 colours"
    size = shutil.get_terminal_size()
    language = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    if not re.search(r"utf-?8", language, re.IGNORECASE):
        fix = "export LANG=C.UTF-8"
        return Check("terminal", Status.ABSENT, f"{term}, but the locale is not UTF-8", fix)
    return Check("terminal", Status.OK, f"{term}, {colours}, {size.columns} x {size.lines}")


def _store(path: Path, environ: Mapping[str, str]) -> Check:
    fix = "export CUBRIDGE_STORE=FOLDER (a folder that you may write to)"
    if path.is_dir():
        if not (path / "HEAD").is_file():
            return Check("store", Status.MISSING, f"{path} is not a bare git repository", fix)
        usable = os.access(path, os.W_OK | os.X_OK)
        return (
            Check("store", Status.OK, str(path))
            if usable
            else Check("store", Status.MISSING, f"{path} cannot be written", fix)
        )
    if path.exists():
        return Check("store", Status.MISSING, f"{path} is not a folder", fix)
    parent = next((folder for folder in path.parents if folder.exists()), path.parent)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        return Check("store", Status.MISSING, f"{path} cannot be made in {parent}", fix)
    return Check("store", Status.OK, f"{path} (made by the first session)")


def _run(command: list[str], environ: Mapping[str, str]) -> str:
    return subprocess.run(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=PROBE_SECONDS,
        check=True,
    ).stdout


def _first_line(command: list[str], environ: Mapping[str, str]) -> str | None:
    """The first line a tool prints, or None where it does not run."""
    try:
        lines = _run(command, environ).strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return lines[0] if lines else ""
