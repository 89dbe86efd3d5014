"""Build a job's library with nvcc alone: one process per specialisation, then the link."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from engine.build.folder.units import (
    COMPILE_FLAGS,
    LINK_FLAGS,
    Fields,
    arch_flags,
    dispatcher_text,
    unit_text,
)
from engine.worker.orchestration.manifest import JobError

NVCC_SECONDS = 300.0


@dataclass(frozen=True)
class Built:
    """A library, or why there is none. `log` is what nvcc said."""

    ok: bool
    library: Path
    log: str
    seconds: float
    compiler: str


def find_nvcc() -> Path:
    """$CUDA_HOME, PATH, then the usual place. Raises `JobError` where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    named = [Path(home) / "bin" / "nvcc"] if home else []
    on_path = shutil.which("nvcc")
    if on_path:
        named.append(Path(on_path))
    named.append(Path("/usr/local/cuda/bin/nvcc"))
    for path in named:
        if os.access(path, os.X_OK):
            return path
    raise JobError("there is no nvcc here: put it on PATH or set CUDA_HOME")


def compiler_name(nvcc: Path) -> str:
    """`nvcc 13.0.88`, as the result carries it."""
    done = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.replace(",", " ").split()
    version = next((w[1:] for w in words if w.startswith("V") and w[1:2].isdigit()), "unknown")
    return f"nvcc {version}"


def build(
    pool: Executor,
    source: Path,
    include: Path,
    folder: Path,
    entry: str,
    keys: Sequence[str],
    fields: Fields,
    arch: str,
    nvcc: Path,
    own: Sequence[str] = (),
) -> Built:
    """The library of `keys`, in `folder`; what is there from the same bytes is used again.

    Compilations run in `pool`; the caller's thread waits for them and links. `own` are flags of the
    kernel's, after the usual ones, which then name no version of C++ if these do.
    """
    begin = time.monotonic()
    compiler = compiler_name(nvcc)
    stamp = _stamp(source, include, [entry, arch, compiler, *keys, *own], fields)
    library, log_file = folder / "library.so", folder / "nvcc.log"
    if library.is_file() and _read(folder / "stamp") == stamp:
        return Built(True, library, _read(log_file), time.monotonic() - begin, compiler)
    folder.mkdir(parents=True, exist_ok=True)
    versioned = any("-std=" in flag for flag in own)
    usual = [f for f in COMPILE_FLAGS if not (versioned and f.startswith("-std="))]
    flags = [*arch_flags(arch), *usual, f"-I{include}", f"-I{source.parent}", *own]
    tasks = []
    objects = []
    for key in keys:
        unit = folder / f"{key}.cu"
        unit.write_text(unit_text(key, entry, fields, source.name), encoding="utf-8")
        objects.append(folder / f"{key}.o")
        command = [str(nvcc), *flags, "-c", str(unit), "-o", str(objects[-1])]
        tasks.append((key, pool.submit(_run, command)))
    dispatcher = folder / "dispatcher.cpp"
    dispatcher.write_text(dispatcher_text(keys), encoding="utf-8")
    objects.append(folder / "dispatcher.o")
    command = [str(nvcc), *flags, "-c", str(dispatcher), "-o", str(objects[-1])]
    tasks.append(("dispatcher", pool.submit(_run, command)))
    logs: list[str] = []
    ok = True
    for name, task in tasks:
        code, text = task.result()
        ok = ok and code == 0
        logs.append(f"[{name}]\n{text.strip()}")
    if ok:
        link = [str(nvcc), *arch_flags(arch), *LINK_FLAGS, *_library_folder(nvcc)]
        code, text = _run([*link, *map(str, objects), "-o", str(library)])
        ok = code == 0
        logs.append(f"[link]\n{text.strip()}")
    log = "\n".join(logs)
    log_file.write_text(log, encoding="utf-8")
    if ok:
        (folder / "stamp").write_text(stamp, encoding="utf-8")
    return Built(ok, library, log, time.monotonic() - begin, compiler)


def resources(log: str) -> list[dict[str, int | str]]:
    """Registers and spills per kernel, as ptxas -v reports them."""
    import re

    out: list[dict[str, int | str]] = []
    section = ""
    for line in log.splitlines():
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if spilled:
            out.append({"specialisation": section, "spill_stores": int(spilled[1]),
                        "spill_loads": int(spilled[2])})  # fmt: skip
        used = re.search(r"Used (\d+) registers", line)
        if used and out:
            out[-1]["registers"] = int(used[1])
    return out


_PROCESSES: set[subprocess.Popen[str]] = set()
_LOCK = threading.Lock()


def _run(command: Sequence[str]) -> tuple[int, str]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    with _LOCK:
        _PROCESSES.add(process)
    try:
        text, _ = process.communicate(timeout=NVCC_SECONDS)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        _end(process)
        text, _ = process.communicate()
        return 1, f"{text}\nnvcc ran for more than {NVCC_SECONDS:g} s and was ended"
    finally:
        with _LOCK:
            _PROCESSES.discard(process)


def stop_compilers() -> None:
    """End every nvcc that still runs."""
    with _LOCK:
        running = list(_PROCESSES)
    for process in running:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    import contextlib
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _library_folder(nvcc: Path) -> list[str]:
    """The wheels of CUDA keep their libraries in `lib`, where their nvcc does not look."""
    folder = nvcc.resolve().parent.parent / "lib"
    return [f"-L{folder}"] if (folder / "libcudart_static.a").exists() else []


def _stamp(source: Path, include: Path, words: Sequence[str], fields: Fields) -> str:
    digest = hashlib.sha256()
    parts = [*words, *COMPILE_FLAGS, *LINK_FLAGS, repr(list(map(tuple, fields)))]
    for part in parts:
        digest.update(f"{len(part)} {part}\n".encode())
    for path in [source, *sorted(p for p in include.rglob("*") if p.is_file() and p != source)]:
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
