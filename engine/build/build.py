"""Build a kernel's source for one arch: objects for G3, a library for everything that runs it.

Every build lives in a folder of the cache that its content names (source, used headers, flags,
compiler), so that the second time is a no-op; ninja finds out what of it is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine.build.folder.cache import default_cache, locked, prune, write
from engine.build.folder.ninja import Link, ninja_text, targets
from engine.build.folder.units import (
    COMPILE_FLAGS,
    LINK_FLAGS,
    Fields,
    arch_flags,
    dispatcher_text,
    template_arguments,
    unit_text,
)
from engine.build.machine_code.products import Launch, read_messages, read_specialisation
from engine.build.machine_code.result import BuildResult
from engine.build.tools.diagnostics import Diagnostic, by_signal, parse_diagnostics
from engine.build.tools.process import Finished, run
from engine.build.tools.toolchain import Toolchain, compiler_environ, find_host_compiler, find_ninja
from engine.cuir.arch import arch as arch_facts
from engine.errors import InputError, Where
from engine.lift.files.kernel_package import used_headers

SOURCE = "kernel.cu"

Include = Path | Sequence[tuple[str, bytes]]
"""The folder of the headers, or the headers themselves by name (`KernelPackage.headers`)."""

Progress = Callable[[str], None]


def build(
    source: bytes,
    include_dir: Include,
    entry: str,
    specialisations: Sequence[str],
    arch: str,
    toolchain: Toolchain,
    *,
    cache: Path | None = None,
    cancel: threading.Event | None = None,
    progress: Progress | None = None,
    fields: Fields | None = None,
    launches: Mapping[str, Mapping[str, Launch]] | None = None,
    compile_only: bool = False,
    jobs: int | None = None,
) -> BuildResult:
    """Compile `source` for `specialisations` (keys such as "bf16_128") and link them.

    `fields` (name and type of the argument struct's fields) are asserted in C++. `launches` gives,
    by specialisation and kernel name, what the host plan says (`host_plan.launches_of`): dynamic
    shared memory, and the block size, which `__launch_bounds__` gives otherwise.
    `compile_only` stops at the objects. A source that does not compile is a result, not an error.

    Raises:
        MissingTool: nvcc does not build for `arch`, or ninja or the host compiler is missing.
        InputError: a key that is no specialisation, an unknown arch, a header that is nowhere.
        Interrupted: `cancel` was set; no process is left.
        StoreError: the cache cannot be written.
    """
    begin = time.monotonic()
    keys = _checked_keys(specialisations)
    facts = arch_facts(arch)
    toolchain.require_arch(arch)
    ninja = find_ninja()
    find_host_compiler()
    headers = _headers(source, include_dir)
    units = {key: unit_text(key, entry, fields) for key in keys}
    digest = _digest(source, headers, entry, fields, arch, toolchain)
    root = cache or default_cache()
    folder = root / digest[:32]
    link = None
    if not compile_only:
        name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:12]
        link = Link(f"lib{name}.so", f"units/dispatcher_{name}.cpp", keys)
    with locked(folder, cancel):
        write(folder / SOURCE, source)
        for name, data in headers:
            write(folder / "include" / name, data)
        for key, text in units.items():
            write(folder / "units" / f"{key}.cu", text.encode())
        if link:
            write(folder / link.dispatcher, dispatcher_text(keys).encode())
        inputs = [SOURCE, *(f"include/{name}" for name, _ in headers)]
        text = ninja_text(toolchain, arch, keys, inputs, link)
        write(folder / "build.ninja", text.encode())
        # 0 lets no job fail silently: every specialisation's messages are wanted.
        command = [str(ninja), "-k", "0", "-j", str(jobs or len(os.sched_getaffinity(0)))]
        missing = [key for key in keys if not (folder / f"{key}.o").exists()]
        finished, compiled = _run_ninja(
            [*command, *targets(toolchain, keys, link)], folder, cancel, progress, missing
        )
        done = tuple(
            read_specialisation(folder, key, facts, (launches or {}).get(key, {})) for key in keys
        )
        text = source.decode("utf-8", "replace")
        messages, log = read_messages(folder, done, text, SOURCE, linked=link is not None)
        messages = (*ended_by_signal(finished), *messages)
    prune(root, folder)
    return BuildResult(
        ok=finished.ok,
        arch=arch,
        compiler=toolchain.identity,
        digest=digest,
        library=folder / link.library if link and finished.ok else None,
        specialisations=done,
        diagnostics=messages,
        log=log if finished.ok else f"{log}\n[ninja]\n{finished.output}",
        compiled=compiled,
        seconds=time.monotonic() - begin,
    )


def ended_by_signal(finished: Finished) -> tuple[Diagnostic, ...]:
    """What ninja's own end, or what it says of its commands', tells about signals."""
    if finished.returncode < 0:
        return (by_signal("ninja", -finished.returncode),)
    found = parse_diagnostics("" if finished.ok else finished.output, "")
    return tuple(d for d in found if d.killed)


def _run_ninja(
    command: list[str],
    folder: Path,
    cancel: threading.Event | None,
    progress: Progress | None,
    missing: Sequence[str],
) -> tuple[Finished, int]:
    """Run ninja in `folder`; how it ended, and how many commands it ran. `missing` are the
    specialisations that are not there yet."""
    environ = compiler_environ()
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    # nvcc's own flags variables would build something else than the digest says.
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        environ.pop(name, None)
    # Relative: nvcc does not quote the path of its own scratch files.
    environ |= {"TMPDIR": scratch.name, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C"}
    compiled, left = 0, set(missing)
    if progress and missing:
        progress(f"0 of {len(missing)} compiled")

    def see(line: str) -> None:
        nonlocal compiled
        found = re.match(r"\[\d+/\d+\] (?:compile (.+)|link)$", line)
        if found:
            compiled += 1
            left.discard(found[1])
            if progress:
                told = f"{len(missing) - len(left)} of {len(missing)} compiled"
                progress(told if found[1] else "linked")

    try:
        return run(command, cwd=folder, environ=environ, cancel=cancel, on_line=see), compiled
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked_keys(specialisations: Sequence[str]) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(specialisations))
    if not keys:
        raise InputError("there is no specialisation to build", fix="name one, such as bf16_128")
    for key in keys:
        try:
            template_arguments(key)
        except ValueError as error:
            raise InputError(str(error), fix="name it as bf16_128: values joined by _") from None
    return keys


def _headers(source: bytes, include: Include) -> tuple[tuple[str, bytes], ...]:
    if isinstance(include, Path):
        if not include.is_dir():
            raise InputError(f"there is no folder {include}", where=Where(SOURCE))
        return used_headers(source, SOURCE, include, include)
    return tuple(sorted(include))


def _digest(
    source: bytes,
    headers: Sequence[tuple[str, bytes]],
    entry: str,
    fields: Fields | None,
    arch: str,
    toolchain: Toolchain,
) -> str:
    """What the build's products depend on, hashed; lengths keep the parts apart."""
    digest = hashlib.sha256()

    def add(name: str, data: bytes) -> None:
        digest.update(f"{name} {len(data)}\n".encode() + data)

    add("source", source)
    for name, data in headers:
        add(f"header {len(name)} {name}", data)
    add("entry", entry.encode())
    add("fields", repr(None if fields is None else [tuple(f) for f in fields]).encode())
    add("flags", " ".join([*arch_flags(arch), *COMPILE_FLAGS, *LINK_FLAGS]).encode())
    add("compiler", toolchain.identity.encode())
    add("host compiler", str(find_host_compiler()).encode())
    return digest.hexdigest()
