"""Build the kernel's library, or the wheel that holds it.

    python build.py --arch sm_90a        the library, into build/
    pip install .                        the wheel, with the library for the first arch
    pip install . -C arch=NAME,NAME      for others, or: -C arch=all

Only building needs nvcc. A library's name holds the hash of what it was built of, so that one which
is there is loaded as it is: without a compiler, without a lock, from a folder that nobody may write
to. Needs no torch and nothing else that is not Python's own.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class BuildError(RuntimeError):
    """The library cannot be built; the message holds what the compiler said."""


@cache
def settings() -> dict[str, Any]:
    """How the library is built, from verdicts.json: that is how it was judged."""
    data = _verdicts()
    return {"name": data["name"], "version": data["version"], **data["build"]}


def _verdicts() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((HERE / "verdicts.json").read_text(encoding="utf-8"))
    return data


def library_path(arch: str) -> Path:
    """Where the library for `arch` is, or will be."""
    return HERE / "build" / f"lib{settings()['name']}-{arch}-{_source_hash()}.so"


def _source_hash() -> str:
    """The hash of the source and of how it is built; 16 digits."""
    how = json.dumps(settings(), sort_keys=True).encode()
    return hashlib.sha256((HERE / "kernel.cu").read_bytes() + how).hexdigest()[:16]


def ready(arch: str) -> Path | None:
    """The library for `arch` where it was built of the source at hand; only reads."""
    library = library_path(arch)
    return library if library.is_file() else None


def build(arch: str | None = None, jobs: int | None = None) -> Path:
    """Build for `arch` (default: the first) unless it is there; the library's path.

    BuildError where there is no nvcc or the compiler fails.
    """
    info = settings()
    arch = arch or next(iter(info["archs"]))
    if arch not in info["archs"]:
        raise BuildError(
            f"{info['name']} is not built for {arch}, but for {', '.join(info['archs'])}"
        )
    library = library_path(arch)
    if ready(arch):
        return library
    try:
        nvcc = find_nvcc()
    except BuildError as error:
        old = list(library.parent.glob(f"lib{info['name']}-{arch}-*.so"))
        there = " (the one that is there was built of other sources)" if old else ""
        raise BuildError(f"no library for {arch} is built{there}, and {error}") from None
    try:
        library.parent.mkdir(exist_ok=True)
        (library.parent / ".gitignore").write_text("*\n", encoding="ascii")
        with _locked(library.parent / ".lock"):  # of many processes one compiles
            if not ready(arch):
                _compile(nvcc, info["archs"][arch], info, library, jobs)
    except OSError as error:
        raise BuildError(
            f"{library.parent} cannot be written ({error.strerror}); copy the package to a folder "
            "of yours, or install a wheel that holds the library"
        ) from None
    return library


def find_nvcc() -> Path:
    """nvcc of CUDA_HOME, of PATH, of /usr/local/cuda, or of NVIDIA's wheels."""
    found = [Path(os.environ["CUDA_HOME"]) / "bin" / "nvcc"] if os.environ.get("CUDA_HOME") else []
    on_path = shutil.which("nvcc")
    found += [Path(on_path)] if on_path else []
    found.append(Path("/usr/local/cuda/bin/nvcc"))
    for entry in (*sys.path, sysconfig.get_path("purelib")):  # pip's own process sees no other
        if entry and Path(entry).name in ("site-packages", "dist-packages"):
            found += sorted(Path(entry).glob("nvidia/cu[0-9]*/bin/nvcc"), reverse=True)
    for nvcc in found:
        if nvcc.is_file() and os.access(nvcc, os.X_OK):
            return nvcc
    raise BuildError("there is no nvcc: set CUDA_HOME, or pip install nvidia-cuda-nvcc")


def _compile(
    nvcc: Path, flags: list[str], info: Mapping[str, Any], library: Path, jobs: int | None
) -> None:
    """Compile each unit of kernel.cu, several at a time, and link them: all or nothing."""
    environ = dict(os.environ)
    environ["PATH"] = os.pathsep.join([str(nvcc.parent), environ.get("PATH") or os.defpath])
    # NVIDIA's wheels keep libcudart_static in lib, where nvcc does not look.
    libraries = nvcc.resolve().parent.parent / "lib"
    if (libraries / "libcudart_static.a").exists():
        appended = environ.get("NVCC_APPEND_FLAGS", "")
        environ["NVCC_APPEND_FLAGS"] = f'{appended} -L"{libraries}"'.strip()

    def call(arguments: list[str]) -> None:
        done = subprocess.run(
            ["nvcc", *arguments], cwd=HERE, env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"nvcc {' '.join(arguments)}:\n{done.stdout}{done.stderr}")

    with tempfile.TemporaryDirectory(dir=library.parent) as made:
        objects = [f"{made}/{unit}.o" for unit in range(info["units"])]
        commands = [
            [*flags, *info["compile"], f"-DCUBRIDGE_UNIT={unit}", "-c", "kernel.cu", "-o", object_]
            for unit, object_ in enumerate(objects)
        ]
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            list(pool.map(call, commands))
        call([*flags, *info["link"], "-o", f"{made}/{library.name}", *objects])
        Path(made, library.name).replace(library)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- what pip calls (PEP 517) ---------------------------------------------------------------------


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """A wheel with the package and its libraries; the wheel's name."""
    info = settings()
    archs = list(info["archs"])
    asked = str((config_settings or {}).get("arch", archs[0]))
    libraries = [build(arch) for arch in (archs if asked == "all" else asked.split(","))]
    stem = f"{info['name']}-{info['version']}"
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    files = {f"{info['name']}/{name}": (HERE / name).read_bytes() for name in _own_files()}
    files |= {f"{info['name']}/build/{path.name}": path.read_bytes() for path in libraries}
    folder = f"{stem}.dist-info"
    files[f"{folder}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {info['name']}\nVersion: {info['version']}\n"
        "Requires-Python: >=3.10\nRequires-Dist: torch>=2.6\n"
    ).encode()
    files[f"{folder}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: cubridge\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    wheel = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """The package as it is, without libraries; the archive's name."""
    stem = f"{settings()['name']}-{settings()['version']}"
    with tarfile.open(Path(sdist_directory, f"{stem}.tar.gz"), "w:gz") as archive:
        for name in _own_files():
            archive.add(HERE / name, f"{stem}/{name}")
    return f"{stem}.tar.gz"


def _own_files() -> list[str]:
    """The package's files as the export wrote them, by path: what else lies here stays here."""
    return list(_verdicts()["files"])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def main() -> int:
    archs = list(settings()["archs"])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--arch", choices=[*archs, "all"], default=[archs[0]], nargs="+", help="default: the first"
    )
    parser.add_argument("--jobs", type=int, help="compilers at the same time (default: all cores)")
    arguments = parser.parse_args()
    try:
        for arch in archs if "all" in arguments.arch else dict.fromkeys(arguments.arch):
            print(build(arch, arguments.jobs))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
