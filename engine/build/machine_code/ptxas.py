"""What ptxas says of each kernel (`-Xptxas -v`), and the launch bounds in its PTX."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache


class WarningKind(StrEnum):
    """The performance warnings that G3 judges; everything else is OTHER."""

    SERIALISED_WGMMA = "serialised wgmma"
    IGNORED_SETMAXNREG = "ignored setmaxnreg"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PtxasWarning:
    """One warning or performance advice of ptxas. `code` is its number, such as "C7510"."""

    kind: WarningKind
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one kernel uses. Bytes, and 32-bit registers per thread at launch."""

    symbol: str
    registers: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    static_shared: int = 0
    barriers: int = 0


def parse_uses(log: str) -> tuple[KernelUse, ...]:
    """The kernels of a log, in its order. Device functions that were not inlined take no part, but
    their stacks do show as the stack of the kernels that call them."""
    out: list[KernelUse] = []
    properties: dict[str, tuple[int, int, int]] = {}
    current = owner = ""
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '([^']+)'", line):
            current = found[1]
        elif found := re.search(r"Function properties for '?([^\s']+)'?", line):
            owner = found[1]
        elif found := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            properties[owner] = (int(found[1]), int(found[2]), int(found[3]))
        elif current and (found := re.search(r"\bUsed (\d+) registers(.*)", line)):
            use = KernelUse(current, registers=int(found[1]))
            if current in properties:
                stack, stores, loads = properties[current]
                use = replace(
                    use, stack_bytes=stack, spill_store_bytes=stores, spill_load_bytes=loads
                )
            if shared := re.search(r"(\d+)(?:\+(\d+))? bytes smem", found[2]):
                use = replace(use, static_shared=int(shared[1]) + int(shared[2] or 0))
            if barriers := re.search(r"used (\d+) barriers", found[2]):
                use = replace(use, barriers=int(barriers[1]))
            if deep := re.search(r"(\d+) bytes cumulative stack size", found[2]):
                use = replace(use, stack_bytes=max(use.stack_bytes, int(deep[1])))
            out.append(use)
            current = ""
    return tuple(out)


_ADVICE = re.compile(
    r"^ptxas\b.*?(?:(?P<code>\(C\d+\))|warning|Potential Performance Loss).*$", re.IGNORECASE
)


def parse_warnings(log: str) -> tuple[PtxasWarning, ...]:
    """Warnings and performance advice, each once, in the log's order."""
    out: dict[str, PtxasWarning] = {}
    for line in log.splitlines():
        found = _ADVICE.match(line)
        if not found:
            continue
        text = re.sub(r"^ptxas\s*(?:\S*\s*)?(?:info|warning)\s*:\s*", "", line).strip()
        lower = line.lower()
        if "wgmma" in lower and "serializ" in lower:
            kind = WarningKind.SERIALISED_WGMMA
        elif "setmaxnreg" in lower and "ignor" in lower:
            kind = WarningKind.IGNORED_SETMAXNREG
        else:
            kind = WarningKind.OTHER
        code = (found["code"] or "").strip("()")
        out.setdefault(text, PtxasWarning(kind, code, text))
    return tuple(out.values())


def parse_threads(ptx: str) -> dict[str, int]:
    """Threads per block by kernel symbol, from `.maxntid` (__launch_bounds__), where bound."""
    out: dict[str, int] = {}
    for entry in re.finditer(r"\.entry\s+([\w$]+)\s*\((.*?)\{", ptx, re.DOTALL):
        bound = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", entry[2])
        if bound:
            out[entry[1]] = int(bound[1]) * int(bound[2] or 1) * int(bound[3] or 1)
    return out


def function_name(symbol: str) -> str:
    """The plain name in a mangled symbol: `_Z9flash_fwdI...` -> `flash_fwd` (the last of a nested
    name); the symbol itself where it is not mangled so."""
    found = re.match(r"_Z(N?)K?", symbol)
    if not found:
        return symbol
    at, name = found.end(), ""
    while length := re.match(r"\d+", symbol[at:]):
        begin = at + length.end()
        at = begin + int(length[0])
        if not symbol[begin:at].startswith("_GLOBAL__N_"):
            name = symbol[begin:at]
        if not found[1]:  # what follows are types of parameters
            break
    return name or symbol


@lru_cache(maxsize=1024)
def kernel_name(symbol: str) -> str:
    """A kernel by its name and template arguments, as its author writes it: `attention<32, true>`.
    Without binutils' c++filt, which nvcc's host compiler comes with, the plain name."""
    name, tool = function_name(symbol), shutil.which("c++filt")
    if tool is None or name == symbol:
        return name
    done = subprocess.run([tool, "-p", symbol], capture_output=True, text=True, check=False)
    at = done.stdout.find(f"{name}<")
    return done.stdout[at:].strip() if at >= 0 else name
