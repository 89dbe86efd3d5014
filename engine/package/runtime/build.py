"""Build the kernel's library: `python build.py`. Needs nvcc, and uses ninja where it is.

What is built, and how, is in package.json; build.ninja says the same to ninja. A library that was
built of the sources at hand is loaded as it is: without nvcc, without a lock, from a folder that
nobody may write to.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class BuildError(RuntimeError):
    """The library cannot be built; the message holds what the compiler said."""


@cache
def package() -> dict[str, Any]:
    """package.json."""
    data: dict[str, Any] = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    return data


def library_path(arch: str) -> Path:
    """Where the library for `arch` is, or will be."""
    return HERE / "build" / arch / f"lib{package()['name']}.so"


def ready(arch: str) -> Path | None:
    """The library for `arch` where it is there and was built of the sources at hand; else None.

    Only reads. What `build` made says by hash what it was made of; what ninja alone made is held
    to the times of the files.
    """
    library = library_path(arch)
    if not library.is_file():
        return None
    made_of = _made_of(library)
    if made_of.is_file():
        current = made_of.read_text(encoding="ascii").strip() == _sources_hash()
    else:
        current = library.stat().st_mtime >= _newest()
    return library if current else None


def _made_of(library: Path) -> Path:
    """The file beside a library with the hash of its sources."""
    return library.with_name("sources.sha256")


def _sources() -> list[Path]:
    return sorted(p for p in (HERE / "csrc").rglob("*") if p.is_file())


def _sources_hash() -> str:
    """The hash of all that a library is built of, names and bytes."""
    digest = hashlib.sha256()
    for path in (*_sources(), HERE / "package.json"):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(HERE).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _newest() -> float:
    return max(p.stat().st_mtime for p in (*_sources(), HERE / "package.json"))


def build(arch: str | None = None, jobs: int | None = None, use_ninja: bool = True) -> Path:
    """Build for `arch` (default: the package's first) what is not up to date; the library's path.

    BuildError where there is no nvcc or the compiler fails.
    """
    info = package()
    arch = arch or next(iter(info["archs"]))
    if arch not in info["archs"]:
        raise BuildError(
            f"{info['name']} is not built for {arch}, but for {', '.join(info['archs'])}"
        )
    library = library_path(arch)
    try:
        nvcc = find_nvcc()
    except BuildError as error:
        there = " (the one that is there was built of other sources)" if library.exists() else ""
        raise BuildError(f"no library for {arch} is built{there}, and {error}") from None
    folder = library.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock"):
            ninja = shutil.which("ninja") if use_ninja else None
            if ninja:
                _run_ninja(ninja, nvcc, arch, jobs)
            else:
                _run_nvcc(nvcc, arch, info, library, jobs)
            made_of = _made_of(library)
            if not made_of.is_file() or made_of.read_text(encoding="ascii") != _sources_hash():
                made_of.write_text(_sources_hash(), encoding="ascii")
    except OSError as error:
        raise BuildError(
            f"{folder} cannot be written ({error.strerror}); copy the package to a folder of yours"
        ) from None
    return library


def find_nvcc() -> Path:
    """nvcc of CUDA_HOME, of PATH, of /usr/local/cuda, or of NVIDIA's wheels."""
    found = [Path(os.environ["CUDA_HOME"]) / "bin" / "nvcc"] if os.environ.get("CUDA_HOME") else []
    on_path = shutil.which("nvcc")
    found += [Path(on_path)] if on_path else []
    found.append(Path("/usr/local/cuda/bin/nvcc"))
    for entry in sys.path:
        if entry and Path(entry).name in ("site-packages", "dist-packages"):
            found += sorted(Path(entry).glob("nvidia/cu[0-9]*/bin/nvcc"), reverse=True)
    for nvcc in found:
        if nvcc.is_file() and os.access(nvcc, os.X_OK):
            return nvcc
    raise BuildError("there is no nvcc: set CUDA_HOME, or pip install nvidia-cuda-nvcc")


def _environ(nvcc: Path) -> dict[str, str]:
    """The environment in which a plain `nvcc` is this one."""
    environ = dict(os.environ)
    environ["PATH"] = os.pathsep.join([str(nvcc.parent), environ.get("PATH") or os.defpath])
    # NVIDIA's wheels keep libcudart_static in lib, where nvcc does not look.
    libraries = nvcc.resolve().parent.parent / "lib"
    if (libraries / "libcudart_static.a").exists():
        appended = environ.get("NVCC_APPEND_FLAGS", "")
        environ["NVCC_APPEND_FLAGS"] = f'{appended} -L"{libraries}"'.strip()
    return environ


def _run_ninja(ninja: str, nvcc: Path, arch: str, jobs: int | None) -> None:
    command = [ninja, *(["-j", str(jobs)] if jobs else []), arch]
    done = subprocess.run(
        command, cwd=HERE, env=_environ(nvcc), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"the build for {arch} failed:\n{done.stdout}{done.stderr}")


def _run_nvcc(nvcc: Path, arch: str, info: dict[str, Any], library: Path, jobs: int | None) -> None:
    """The same without ninja: all or nothing, by the times of the sources."""
    if library.exists() and library.stat().st_mtime >= _newest():
        return
    environ = _environ(nvcc)
    flags, relative = info["archs"][arch], library.parent.relative_to(HERE)

    def call(arguments: list[str]) -> None:
        done = subprocess.run(
            ["nvcc", *arguments], cwd=HERE, env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"nvcc {' '.join(arguments)}:\n{done.stdout}{done.stderr}")

    objects = []
    commands = []
    for unit in info["units"]:
        made = str(relative / f"{Path(unit).stem}.o")
        objects.append(made)
        commands.append([*flags, *info["compile"], "-c", unit, "-o", made])
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        list(pool.map(call, commands))
    part = f"{relative}/{library.name}.part"
    call([*flags, *info["link"], "-o", part, *objects])
    (HERE / part).replace(library)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    archs = list(package()["archs"])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--arch", choices=[*archs, "all"], default=[archs[0]], nargs="+", help="default: the first"
    )
    parser.add_argument("--jobs", type=int, help="compilers at the same time (default: all cores)")
    parser.add_argument("--no-ninja", action="store_true", help="call nvcc directly")
    arguments = parser.parse_args()
    try:
        for arch in archs if "all" in arguments.arch else dict.fromkeys(arguments.arch):
            print(build(arch, arguments.jobs, not arguments.no_ninja))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
