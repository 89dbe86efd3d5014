"""Checks a kernel without a GPU: compiles it, records its launches, executes every thread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.toolchain import find_toolchain
from engine.errors import InputError
from engine.files import read_text
from engine.foreign.compile import Compiled, Flags, compile_kernel
from engine.foreign.launcher import SIZES, Launcher, read_launcher
from engine.foreign.record import Executed, execute
from engine.ptx.findings import Finding
from engine.ptx.floats import to_half
from engine.ptx.syntax import Location

Array = np.ndarray[Any, Any]

# Whole tiles of most kernels, then lengths that end inside of a tile.
LENGTHS = ((128, 128), (200, 300))


@dataclass(frozen=True, slots=True)
class Checked:
    """One case: its sizes, the launches that were executed, and why it was not run."""

    sizes: Mapping[str, int]
    launches: tuple[Executed, ...]

    @property
    def findings(self) -> Iterator[Finding]:
        for launch in self.launches:
            yield from launch.findings

    def __str__(self) -> str:
        return ", ".join(f"{n} {s}" for n, s in self.sizes.items())


def check_kernel(
    path: Path, flags: Flags, launcher: str = "launch", shapes: Mapping[str, str] | None = None,
    dtype: str = "bf16", head_dim: int = 64, given: Sequence[Mapping[str, int]] = (),
    said: Callable[[str], None] = lambda text: None,
) -> Iterator[Checked]:  # fmt: skip
    """Executes a kernel at each of the sizes in `given` (or at the usual ones).

    Raises:
        InputError: the source does not compile, its launcher is not understood or fails, or it has
            an instruction that is not executed yet, with the line.
        MissingTool: there is no nvcc.
    """
    text = read_text(path, "give a CUDA source with a launcher")
    entry = read_launcher(text, str(path), launcher, shapes or {}, dtype)
    tools = find_toolchain()
    tools.require_arch(flags.arch)
    with tempfile.TemporaryDirectory(prefix="cubridge-check-") as name:
        folder = Path(name)
        said(f"compiling {path.name} for {flags.arch}")
        compiled = compile_kernel(path, entry, flags, tools, folder)
        for sizes in given or usual_sizes(entry, head_dim):
            yield _check_one(compiled, entry, sizes, flags.arch, folder)


def _check_one(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int], arch: str, folder: Path
) -> Checked:
    every = complete(launcher, sizes)
    _, launches = execute(compiled, launcher, every, draw(launcher, every), arch, folder)
    return Checked(sizes, tuple(launches))


def usual_sizes(launcher: Launcher, head_dim: int) -> list[dict[str, int]]:
    """Two heads that share keys where the launcher takes both counts, at the usual lengths."""
    known = {p.means for p in launcher.parameters if p.kind == "size"}
    out = []
    for queries, keys in LENGTHS:
        length = {"N": queries} if "N" in known else {"Nq": queries, "Nk": keys}
        heads = {"Hq": 2, "Hkv": 1} if "Hkv" in known else {"Hq": 2}
        out.append({"B": 1, **heads, **length, "D": head_dim})
    return out


def complete(launcher: Launcher, sizes: Mapping[str, int]) -> dict[str, int]:
    """All sizes that the shapes need: those that the launcher does not tell apart are the same."""
    every = dict(sizes)
    if "N" in every:
        every.setdefault("Nq", every["N"])
    every.setdefault("Nk", every.get("Nq", 0))
    every.setdefault("Hkv", every.get("Hq", 0))
    every.setdefault("Dv", every.get("D", 0))
    needed = {d for p in launcher.tensors for d in p.dims}
    needed |= {p.means for p in launcher.parameters if p.kind == "size"}
    missing = sorted(n for n in needed if n not in every)
    if missing:
        raise InputError(f"no size for {', '.join(missing)}",
                         fix=f"--sizes {' '.join(f'{n}=1' for n in missing)}")  # fmt: skip
    return every


def draw(launcher: Launcher, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random inputs, as bits: floats around 0, whole numbers 0."""
    random = np.random.default_rng(0)
    out: dict[str, Array] = {}
    for p in launcher.tensors:
        shape = [sizes[d] for d in p.dims]
        if p.output:
            continue
        values = random.standard_normal(shape).astype(np.float32)
        if p.dtype in ("f16", "bf16"):
            out[p.means] = to_half(values, p.dtype)
        elif p.dtype in ("f32", "f64"):
            held = values.astype(np.dtype(f"f{SIZES[p.dtype]}"))
            out[p.means] = held.view(np.dtype(f"u{SIZES[p.dtype]}"))
        else:
            out[p.means] = np.zeros(shape, np.dtype(f"u{SIZES[p.dtype]}"))
    return out


def place(finding: Finding, source: Path) -> Location | None:
    """The line of the person's own source that a finding is at: headers that it uses are not."""
    at = finding.at.source
    if at is None:
        return None
    own = [p for p in at.chain() if Path(p.file).resolve() == source.resolve()]
    return own[0] if own else at


def shorter(findings: Sequence[Finding], source: Path) -> list[Finding]:
    """Of several findings of one kind at one line of the source the first."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.kind, str(place(finding, source))), finding)
    return list(kept.values())
