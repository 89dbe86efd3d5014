"""Instructions that a GPU and the machine agree on (benchmarks/ptx_conformance.py)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.ptx.syntax import Instruction, Kernel
from engine.resources import kernels_dir

CASES = kernels_dir() / "conformance" / "ptx"
RECORD = kernels_dir() / "conformance" / "results" / "ptx" / "h200.json"
AGREES = "agrees"

# Modifiers that say which cache or which order, and spellings of one thing: they change no value.
_SILENT = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "volatile", "relaxed", "acquire",
           "release", "acq_rel", "cta", "cluster", "gpu", "sys", "aligned", "uni"}  # fmt: skip
# What every kernel that was run has executed, or what has no result of its own.
_EVERYWHERE = {"bra", "ret", "exit", "cvta", "call", "trap", "prefetch", "prefetchu", "nanosleep",
               "griddepcontrol", "setmaxnreg", "brkpt", "pmevent", "brx"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: the opcodes it proves, the hash of its text and inputs, and what came of it."""

    case: str
    opcodes: tuple[str, ...]
    hash: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Record:
    """The cases that ran on one card."""

    device: str
    driver: str
    cuda: str
    cases: tuple[Verdict, ...]


def case_hash(text: str, given: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(text.encode() + np.ascontiguousarray(given).tobytes()).hexdigest()[:16]


def read_record(path: Path = RECORD) -> Record:
    if not path.exists():
        return Record("", "", "", ())
    data = json.loads(path.read_text())
    cases = tuple(Verdict(c["case"], tuple(c["opcodes"]), c["hash"], c["verdict"])
                  for c in data["cases"])  # fmt: skip
    return Record(data["device"], data["driver"], data["cuda"], cases)


def write_record(record: Record, path: Path = RECORD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record), indent=1) + "\n")


def form(opcode: str) -> str:
    """An opcode by what it computes: without caches and orders, in one order of modifiers."""
    name, *rest = opcode.split(".")
    kept = [m.replace("shared::cta", "shared").replace("shared::cluster", "shared") for m in rest
            if m not in _SILENT and not m.startswith(("L1::", "L2::"))]  # fmt: skip
    if name in ("ld", "st", "ldmatrix", "stmatrix", "mbarrier", "cp", "bar", "barrier", "fence"):
        kept = [f"b{m[1:]}" if name in ("ld", "st") and m[1:].isdigit() and m[0] in "bufs"
                and not (name == "ld" and m in ("s8", "s16")) else m for m in kept]  # fmt: skip
        kept = sorted({m for m in kept if m not in ("nc", "tile", "param::entry")})
    return ".".join((name.replace("barrier", "bar") if name == "barrier" else name, *kept))


def kernel_opcodes(kernel: Kernel) -> set[str]:
    return {at.opcode for at in kernel.code}


@lru_cache(maxsize=1)
def proven() -> frozenset[str]:
    """The forms of the instructions whose case agrees."""
    return frozenset(form(o) for c in read_record().cases if c.verdict == AGREES for o in c.opcodes)


def unproven(code: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """The first instruction of each opcode of a kernel that no GPU was seen to agree on."""
    known = proven()
    found: dict[str, Instruction] = {}
    for at in code:
        if at.name in _EVERYWHERE or at.has("param") or at.has("prefetch"):
            continue
        shape = form(at.opcode)
        if shape not in known:
            found.setdefault(shape, at)
    return tuple(found.values())
