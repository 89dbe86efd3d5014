"""What a build gives: the library or the objects, and what the machine code of each kernel uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.build.machine_code.occupancy import Residency
from engine.build.machine_code.ptxas import KernelUse, PtxasWarning
from engine.build.tools.diagnostics import Diagnostic

CountedIn = Literal["sass", "ptx"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one specialisation.

    `threads` is the block size of `__launch_bounds__`, or what the caller said. `dynamic_shared`
    is None where the caller did not know it, and `residency` then counts static shared memory only.
    `instructions` counts instruction classes.
    """

    name: str
    use: KernelUse
    threads: int | None
    dynamic_shared: int | None
    residency: Residency | None
    instructions: Mapping[str, int] = field(hash=False)

    @property
    def symbol(self) -> str:
        return self.use.symbol

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "symbol": self.symbol,
            "registers": self.use.registers,
            "stack_bytes": self.use.stack_bytes,
            "spill_store_bytes": self.use.spill_store_bytes,
            "spill_load_bytes": self.use.spill_load_bytes,
            "static_shared": self.use.static_shared,
            "dynamic_shared": self.dynamic_shared,
            "barriers": self.use.barriers,
            "threads": self.threads,
            "resident_blocks": self.residency.blocks if self.residency else None,
            "resident_limit": self.residency.limit if self.residency else None,
            "instructions": dict(self.instructions),
        }


@dataclass(frozen=True, slots=True)
class Specialisation:
    """One compiled specialisation."""

    key: str
    ok: bool
    kernels: tuple[Kernel, ...]
    warnings: tuple[PtxasWarning, ...]
    counted_in: CountedIn
    log: str

    def kernel(self, name: str) -> Kernel | None:
        """The first kernel of that plain name."""
        return next((k for k in self.kernels if k.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "ok": self.ok,
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "warnings": [
                {"kind": w.kind.value, "code": w.code, "text": w.text} for w in self.warnings
            ],
            "counted_in": self.counted_in,
        }


@dataclass(frozen=True, slots=True)
class BuildResult:
    """A build for one arch. `library` is None in compile-only mode and where the build failed.

    `digest` keys the build in the cache: source, headers, flags, compiler. `compiled` counts the
    commands that ran: 0 when everything was there already.
    """

    ok: bool
    arch: str
    compiler: str
    digest: str
    library: Path | None
    specialisations: tuple[Specialisation, ...]
    diagnostics: tuple[Diagnostic, ...]
    log: str
    compiled: int
    seconds: float

    def specialisation(self, key: str) -> Specialisation | None:
        return next((s for s in self.specialisations if s.key == key), None)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "error")

    @property
    def killed(self) -> bool:
        """True where signals ended compilers and nothing else is wrong: build it again."""
        return not self.ok and bool(self.errors) and all(d.killed for d in self.errors)

    @property
    def reason(self) -> str:
        """The first error in one line; empty when the build is good."""
        if self.ok:
            return ""
        if self.errors:
            return str(min(self.errors, key=lambda d: d.killed))
        last = [line for line in self.log.splitlines() if line.strip()]
        return last[-1].strip() if last else "the compiler failed without a message"

    def to_json(self) -> dict[str, Any]:
        """For a verdict's details; paths of the cache take no part."""
        return {
            "ok": self.ok,
            "arch": self.arch,
            "compiler": self.compiler,
            "digest": self.digest,
            "specialisations": [s.to_json() for s in self.specialisations],
            "diagnostics": [
                {
                    "severity": d.severity,
                    "message": d.message,
                    "where": str(d.where) if d.where else None,
                    "line": d.where.line if d.where else None,
                    "column": d.where.column if d.where else None,
                    "origin": d.origin,
                }
                for d in self.diagnostics
            ],
            "seconds": round(self.seconds, 3),
        }
