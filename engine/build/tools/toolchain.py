"""Find nvcc and the tools beside it.

The order is CUDA_HOME, PATH, then the wheels of the `cuda` extra in this Python's own
site-packages. The first nvcc that runs is the one; the others of its family (ptxas, cuobjdump,
nvdisasm) come from its own toolkit where it has them, else from PATH, else from the wheels, since
toolkits are often installed in parts.
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
from pathlib import Path

from engine.errors import MissingTool

PROBE_SECONDS = 20
INSTALL_NVCC = "pip install 'cubridge-tui[cuda]' (in a checkout: ./dev setup --cuda)"


class Origin(StrEnum):
    """Where a tool was found."""

    CUDA_HOME = "CUDA_HOME"
    PATH = "PATH"
    WHEELS = "wheels"
    TOOLKIT = "toolkit"  # beside the nvcc in use


@dataclass(frozen=True, slots=True)
class Tool:
    """One program and where it was found."""

    path: Path
    origin: Origin


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A CUDA compiler that ran, and what belongs to it.

    `archs` are the real architectures it emits code for, such as "sm_90a"; `version` is nvcc's own
    (13, 0, 88). `identity` is the text that a cache key or a verdict carries for "this compiler".
    """

    nvcc: Tool
    root: Path
    version: tuple[int, ...]
    identity: str
    archs: tuple[str, ...]
    ptxas: Tool | None
    cuobjdump: Tool | None
    nvdisasm: Tool | None

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def link_flags(self) -> tuple[str, ...]:
        """What every call of nvcc that links must be given: the wheels' libraries lie in `lib`,
        where their nvcc does not look."""
        folder = self.root / "lib"
        return (f"-L{folder}",) if (folder / "libcudart_static.a").exists() else ()

    def supports(self, arch: str) -> bool:
        """Whether this nvcc emits code for `arch` ("sm_80", "sm_90a", ...).

        nvcc lists base architectures only; an "a" or "f" variant exists from sm_90 on.
        """
        if arch in self.archs:
            return True
        found = re.fullmatch(r"(sm_(\d+))([af])", arch)
        if not found or found[1] not in self.archs:
            return False
        major_minor = int(found[2])
        return major_minor >= 90 if found[3] == "a" else major_minor >= 100

    def require_arch(self, arch: str) -> None:
        """Raise `MissingTool` where this nvcc cannot build for `arch`."""
        if not self.supports(arch):
            raise MissingTool(
                f"nvcc {self.version_text} ({self.nvcc.path}) does not build for {arch}; "
                f"it builds for {', '.join(self.archs)}",
                fix=f"set CUDA_HOME to a toolkit that does, or {INSTALL_NVCC}",
            )


def find_toolchain(
    environ: Mapping[str, str] | None = None, search_path: list[str] | None = None
) -> Toolchain:
    """The CUDA compiler of this machine; `MissingTool` says what to type where there is none.

    `environ` stands for the environment and `search_path` for `sys.path`.
    """
    environ = os.environ if environ is None else environ
    wheels = _wheel_roots(sys.path if search_path is None else search_path)
    tried: list[str] = []
    for tool in _candidates("nvcc", environ, wheels):
        toolchain = _probe(tool, environ, wheels, tried)
        if toolchain:
            return toolchain
    home = environ.get("CUDA_HOME")
    if home and not (Path(home) / "bin" / "nvcc").exists():
        tried.insert(0, f"CUDA_HOME is {home}, which holds no bin/nvcc")
    known = Path("/usr/local/cuda/bin/nvcc")
    fix = f"export CUDA_HOME={known.parent.parent}" if known.exists() else INSTALL_NVCC
    reasons = f" ({'; '.join(tried)})" if tried else ""
    raise MissingTool(f"there is no CUDA compiler (nvcc) on this machine{reasons}", fix=fix)


def compiler_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment to run nvcc in: the host compiler finds its assembler and linker on PATH,
    also where the given PATH is empty."""
    environ = dict(os.environ if environ is None else environ)
    environ["PATH"] = environ.get("PATH") or os.defpath
    if not os.path.isdir(environ.get("TMPDIR", os.sep)):
        del environ["TMPDIR"]  # Python passes over it, too
    return environ


def find_ninja(environ: Mapping[str, str] | None = None) -> Path:
    """The ninja beside this Python (our dependency), else the one on PATH."""
    environ = os.environ if environ is None else environ
    ours = Path(sys.prefix) / "bin" / "ninja"
    if os.access(ours, os.X_OK):
        return ours
    found = shutil.which("ninja", path=environ.get("PATH", ""))
    if found:
        return Path(found)
    raise MissingTool("ninja is missing", fix="pip install ninja")


def find_host_compiler(environ: Mapping[str, str] | None = None) -> Path:
    """The C++ compiler that nvcc calls for host code: $NVCC_CCBIN, else g++ on PATH."""
    environ = os.environ if environ is None else environ
    name = environ.get("NVCC_CCBIN") or "g++"
    found = shutil.which(name, path=environ.get("PATH") or os.defpath)
    if found:
        return Path(found)
    raise MissingTool(
        f"the C++ compiler that nvcc needs ({name}) is missing",
        fix="sudo apt install g++ (or your system's package of it)",
    )


def _wheel_roots(search_path: list[str]) -> list[Path]:
    """Toolkits inside `nvidia/` packages, as the wheels of CUDA 13 install them (nvidia/cu13)."""
    roots = []
    for entry in search_path:
        # The current folder ("") is not ours: a hostile nvidia/ there must not be run.
        if entry and os.path.basename(entry.rstrip(os.sep)) in ("site-packages", "dist-packages"):
            roots += sorted(Path(entry).glob("nvidia/cu[0-9]*"), reverse=True)
    return roots


def _candidates(name: str, environ: Mapping[str, str], wheels: list[Path]) -> list[Tool]:
    found = []
    home = environ.get("CUDA_HOME")
    if home:
        found.append(Tool(Path(home) / "bin" / name, Origin.CUDA_HOME))
    on_path = shutil.which(name, path=environ.get("PATH", ""))
    if on_path:
        found.append(Tool(Path(on_path), Origin.PATH))
    found += [Tool(root / "bin" / name, Origin.WHEELS) for root in wheels]
    return [tool for tool in found if os.access(tool.path, os.X_OK) and tool.path.is_file()]


def _probe(
    nvcc: Tool, environ: Mapping[str, str], wheels: list[Path], tried: list[str]
) -> Toolchain | None:
    """Ask an nvcc who it is; adds the reason to `tried` where it does not answer."""
    try:
        about = _output([str(nvcc.path), "--version"], environ)
        codes = _output([str(nvcc.path), "--list-gpu-code"], environ)
    except (OSError, subprocess.SubprocessError) as error:
        tried.append(f"{nvcc.path} does not run: {_reason(error)}")
        return None
    found = re.search(r"\bV(\d+(?:\.\d+)+)", about)
    if not found:
        tried.append(f"{nvcc.path} --version is not nvcc's")
        return None
    build = re.search(r"^Build (\S+)$", about, re.MULTILINE)
    root = _toolkit_root(nvcc.path, environ)
    return Toolchain(
        nvcc=nvcc,
        root=root,
        version=tuple(map(int, found[1].split("."))),
        identity=f"nvcc {found[1]} {build[1] if build else ''}".strip(),
        archs=tuple(sorted(set(re.findall(r"^sm_\d+[a-z]?$", codes, re.MULTILINE)), key=_arch_key)),
        ptxas=_beside("ptxas", root, environ, wheels),
        cuobjdump=_beside("cuobjdump", root, environ, wheels),
        nvdisasm=_beside("nvdisasm", root, environ, wheels),
    )


def _arch_key(arch: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", arch)
    return int(digits), arch


def _toolkit_root(nvcc: Path, environ: Mapping[str, str]) -> Path:
    """The toolkit of an nvcc. PATH often holds a link or a wrapper script elsewhere, so nvcc itself
    is asked: the first lines of a dry run name the folder it runs from."""
    try:
        result = _run([str(nvcc), "--dryrun", "-E", "-x", "cu", os.devnull], environ)
        found = re.search(r"^#\$ _THERE_=(.+)$", result.stderr, re.MULTILINE)
        if found and Path(found[1]).is_dir():
            return Path(found[1]).resolve().parent
    except (OSError, subprocess.SubprocessError):
        pass
    return nvcc.resolve().parent.parent


def _beside(name: str, root: Path, environ: Mapping[str, str], wheels: list[Path]) -> Tool | None:
    own = root / "bin" / name
    if os.access(own, os.X_OK):
        return Tool(own, Origin.TOOLKIT)
    return next(iter(_candidates(name, environ, wheels)), None)


def _run(command: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=compiler_environ(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_SECONDS,
        check=True,
    )


def _output(command: list[str], environ: Mapping[str, str]) -> str:
    return _run(command, environ).stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit code {error.returncode}"
    return str(error)
