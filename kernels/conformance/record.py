"""What a conformance run leaves: one record for each suite, which G3 reads (docs/gpu.md).

A record says on which device and with which versions the cases ran, and for each primitive (on each
layout of accumulators that it ran on) by which header bytes: those of every header that defines a
function of its name or that layout, and of all that these include. The hash is over bytes, so a
changed comment counts as a change: nobody has to judge what a change may do.
`engine.gates.g3_source` computes the same hash of the headers that a kernel uses. Standard
library only, since a run happens where CuBridge is not installed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).resolve().parent.parent / "include"
SCHEMA = 1

_SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*$")
_BODY = re.compile(r"\s*(?:const\b\s*|noexcept\b\s*)*(?:->[^;{}]*)?\{")
_KEYWORDS = frozenset({"if", "for", "while", "switch", "catch", "constexpr"})


def headers_of(root: str, include: Path = INCLUDE) -> dict[str, bytes]:
    """The header at `root` below the include folder and all of ours that it includes, by path."""
    found: dict[str, bytes] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = (include / name).read_bytes()
            pending += included(name, found[name])
    return dict(sorted(found.items()))


def included(name: str, data: bytes) -> list[str]:
    """What the header `name` includes with quotes; headers lie beside the one that names them."""
    folder = name.rpartition("/")[0]
    texts = re.findall(r'^\s*#\s*include\s*"([^"]+)"', data.decode(), re.MULTILINE)
    return [f"{folder}/{text}" if folder else text for text in texts]


@lru_cache(maxsize=64)
def defined(data: bytes) -> frozenset[str]:
    """The names of the functions whose bodies stand in a source text, members among them."""
    text = _SILENT.sub(lambda m: '""' if m.group().startswith('"') else " ", data.decode())
    names: set[str] = set()
    opened: list[int] = []
    for sign in re.finditer(r"[()]", text):
        if sign.group() == "(":
            opened.append(sign.start())
        elif opened:
            start = opened.pop()
            name = _NAME.search(text, max(0, start - 200), start)
            if name and name[1] not in _KEYWORDS and _BODY.match(text, sign.end()):
                names.add(name[1])
    return frozenset(names)


def depends(primitive: str, layout: str, headers: Mapping[str, bytes]) -> tuple[str, ...]:
    """The headers that define `primitive` or `layout` and all that they include, sorted.

    None for a function of CUDA's own: no header of ours decides what it does.
    """
    pending = [name for name, data in headers.items() if primitive in defined(data)]
    if pending and layout:
        shape = re.compile(rf"\bstruct\s+{layout}\b".encode())
        pending += [name for name, data in headers.items() if shape.search(data)]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += included(name, headers[name])
    return tuple(sorted(found))


def digest(names: Iterable[str], headers: Mapping[str, bytes]) -> str:
    """One hash of these headers: of each one's name and SHA-256, in the order of the names."""
    lines = [f"{name} {hashlib.sha256(headers[name]).hexdigest()}\n" for name in sorted(names)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def nvcc_version() -> str | None:
    """The release of the nvcc on PATH, as it prints it."""
    if shutil.which("nvcc") is None:
        return None
    done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False)
    release = re.search(r"\bV(\d+[\d.]*)", done.stdout)
    return release[1] if release else None


def make(
    suite: str,
    headers: Mapping[str, bytes],
    cases: Sequence[Mapping[str, Any]],
    *,
    device: str,
    arch: str,
    torch: str,
    nvcc: str | None,
    date: str | None = None,
) -> dict[str, Any]:
    """The record of a run. A case has `case`, `primitives`, `layout` (the accumulator that it ran
    on, or ""), `element`, `shape`, `verdict` (pass, fail or not_run) and `reason`.
    """
    ran = sorted({(name, case["layout"]) for case in cases for name in case["primitives"]})
    needs = {(name, layout): depends(name, layout, headers) for name, layout in ran}
    return {
        "schema": SCHEMA,
        "suite": suite,
        "command": command(suite),
        "device": device,
        "arch": arch,
        "torch": torch,
        "nvcc": nvcc,
        "date": date or datetime.now(UTC).date().isoformat(),
        "headers": {name: hashlib.sha256(data).hexdigest() for name, data in headers.items()},
        "primitives": [
            {
                "name": name,
                "layout": layout,
                "hash": digest(needs[name, layout], headers),
                "headers": list(needs[name, layout]),
            }
            for name, layout in ran
        ],
        "cases": list(cases),
    }


def command(suite: str) -> str:
    return f"python3 kernels/conformance/{suite}.py --out kernels/conformance/results/{suite}.json"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """The record as JSON, an entry of its lists and tables to a line."""
    parts = []
    for key, value in record.items():
        text = json.dumps(value)
        if isinstance(value, dict):
            inner = ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            text = f"{{\n  {inner}\n }}"
        elif isinstance(value, list):
            inner = ",\n  ".join(json.dumps(entry) for entry in value)
            text = f"[\n  {inner}\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
