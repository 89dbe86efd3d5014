"""Read what a build folder holds after ninja ran: objects, resources, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.build.machine_code.occupancy import resident_blocks
from engine.build.machine_code.ptxas import (
    KernelUse,
    function_name,
    parse_threads,
    parse_uses,
    parse_warnings,
)
from engine.build.machine_code.result import CountedIn, Kernel, Specialisation
from engine.build.machine_code.sass import count_ptx, count_sass
from engine.build.tools.diagnostics import Diagnostic, parse_diagnostics
from engine.cuir.arch import Arch


@dataclass(frozen=True, slots=True)
class Launch:
    """What the host plan says of a kernel's launch, where it is known: dynamic shared memory in
    bytes, threads per block."""

    shared: int | None = None
    threads: int | None = None


def read_specialisation(
    folder: Path, key: str, arch: Arch, launches: Mapping[str, Launch]
) -> Specialisation:
    """What the folder holds of one specialisation; not `ok` where it did not compile. `launches`
    are the host plan's, by kernel name."""
    log = read_text(folder / f"{key}.log")
    ok = all((folder / f"{key}.{end}").exists() for end in ("o", "cubin", "ptx"))
    kernels: list[Kernel] = []
    counted_in: CountedIn = "ptx"
    if ok:
        ptx = read_text(folder / f"{key}.ptx")
        bounds = parse_threads(ptx)
        counts = count_sass(read_text(folder / f"{key}.sass"))
        if counts:
            counted_in = "sass"
        else:
            counts = count_ptx(ptx)
        for use in parse_uses(log):
            name = function_name(use.symbol)
            launch = launches.get(name, Launch())
            threads = launch.threads or bounds.get(use.symbol)
            instructions = counts.get(use.symbol, {})
            kernels.append(_kernel(name, use, arch, launch.shared, threads, instructions))
    return Specialisation(
        key=key,
        ok=ok,
        kernels=tuple(kernels),
        warnings=parse_warnings(log),
        counted_in=counted_in,
        log=log,
    )


def _kernel(
    name: str,
    use: KernelUse,
    arch: Arch,
    dynamic: int | None,
    threads: int | None,
    instructions: Mapping[str, int],
) -> Kernel:
    residency = None
    if threads:
        shared = use.static_shared + (dynamic or 0)
        residency = resident_blocks(arch, threads, use.registers, shared)
    return Kernel(name, use, threads, dynamic, residency, instructions)


def read_messages(
    folder: Path, done: Sequence[Specialisation], source: str, file: str, linked: bool
) -> tuple[tuple[Diagnostic, ...], str]:
    """The compilers' messages, errors first, each once; and all the logs as one text.

    `linked` also reads the logs of the dispatcher and the linker.
    """
    found: list[Diagnostic] = []
    logs: list[str] = []
    for item in done:
        logs.append(f"[{item.key}]\n{item.log}")
        ptx = {}
        if not item.ok:
            name = f"{item.key}.ptx"
            ptx[name] = read_text(folder / "keep" / item.key / name)
        found += parse_diagnostics(item.log, source, file, ptx)
    for name in ("dispatcher", "link") if linked else ():
        if log := read_text(folder / f"{name}.log"):
            logs.append(f"[{name}]\n{log}")
            found += parse_diagnostics(log, source, file)
    unique = sorted(dict.fromkeys(found), key=lambda d: d.severity != "error")
    return tuple(unique), "\n".join(logs)


def read_text(path: Path) -> str:
    """The text of a file, empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
