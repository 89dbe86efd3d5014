"""nvcc for a sweep: many texts in one unit where the question is whether they compile."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from engine.build.folder.units import COMPILE_FLAGS, arch_flags
from engine.build.tools.toolchain import find_toolchain
from engine.resources import include_dir

HEADERS = {"flash_fwd_sm80": "sm80", "flash_fwd_sm90": "sm90"}


def _instance(key: str) -> str:
    """The line that asks for one specialisation: `bf16_128` or `bf16_192_128`."""
    element, *sizes = key.split("_")
    arguments = ", ".join((f"cubridge::{element}", *sizes))
    return f"template cudaError_t launch<{arguments}>(const Args&, cudaStream_t);"


def refused(kernel: str, arch: str, key: str, texts: Mapping[str, bytes]) -> dict[str, str]:
    """Which of these texts nvcc does not take, and its first error: unoptimised, all in one unit,
    and each alone where that fails."""
    if not texts:
        return {}
    wrong = _refused(kernel, arch, key, texts)
    if not wrong or len(texts) == 1:
        return dict.fromkeys(texts, wrong) if wrong else {}
    alone = {n: _refused(kernel, arch, key, {n: text}) for n, text in texts.items()}
    return {n: words for n, words in alone.items() if words}


def _refused(kernel: str, arch: str, key: str, texts: Mapping[str, bytes]) -> str:
    with tempfile.TemporaryDirectory(prefix="cubridge-sweep-") as name:
        folder = Path(name)
        lines = [f'#include "cubridge/{HEADERS[kernel]}.cuh"']
        for number, text in enumerate(texts.values()):
            (folder / f"{number}.cu").write_bytes(text)
            lines += [f"namespace m{number} {{", f'#include "{number}.cu"', _instance(key), "}"]
        (folder / "batch.cu").write_text("\n".join(lines) + "\n")
        flags = [f"-arch={arch.replace('sm_', 'compute_')}", *arch_flags(arch)[1:], "-G", "-ptx"]
        return _nvcc([*flags, "-o", "batch.ptx", "batch.cu"], folder)[1]


def spills(arch: str, key: str, text: bytes) -> str:
    """What ptxas says of spills, or nvcc of errors; empty without either."""
    with tempfile.TemporaryDirectory(prefix="cubridge-sweep-") as name:
        said, wrong = _optimised(arch, key, text, "-cubin", Path(name))
    found = [b for b in re.findall(r"(\d+) bytes spill stores", said) if b != "0"]
    return wrong or (f"spills {', '.join(found)} bytes" if found else "")


@lru_cache(maxsize=4)
def ptx(arch: str, key: str, text: bytes) -> str | None:
    """The optimised PTX without comments, names of files and what nvcc calls this very unit; None
    where nvcc does not take it."""
    with tempfile.TemporaryDirectory(prefix="cubridge-sweep-") as name:
        _, wrong = _optimised(arch, key, text, "-ptx", Path(name))
        if wrong:
            return None
        made = (Path(name) / "one.out").read_text()
    made = re.sub(r"_INTERNAL_[0-9a-f]+_\d+_one_cu_[0-9a-f]+_\d+", "", made)
    return "\n".join(line for line in made.splitlines() if not line.startswith(("//", "\t.file")))


def _optimised(arch: str, key: str, text: bytes, what: str, folder: Path) -> tuple[str, str]:
    (folder / "one.cu").write_bytes(text + f"\n{_instance(key)}\n".encode())
    kept = [f for f in COMPILE_FLAGS if f != "-lineinfo"]
    flags = arch_flags(arch)
    if what == "-ptx":
        flags = [f"-arch={arch.replace('sm_', 'compute_')}", *flags[1:]]
        kept = [f for f in kept if "ptxas" not in f]
    return _nvcc([*flags, *kept, what, "-o", "one.out", "one.cu"], folder)


def _nvcc(arguments: list[str], folder: Path) -> tuple[str, str]:
    """All that nvcc says, and its first error."""
    command = [str(find_toolchain().nvcc.path), "-std=c++17", "--expt-relaxed-constexpr"]
    done = subprocess.run(
        [*command, f"-I{include_dir()}", *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if done.returncode < 0 or "died due to signal" in said:
        raise OSError(f"nvcc was ended, which says nothing of the text: {said[-300:]}")
    errors = [line for line in said.splitlines() if "error" in line]
    return said, "" if done.returncode == 0 else (errors or [said[-300:]])[0]
