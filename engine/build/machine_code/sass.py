"""Count the instruction classes of each kernel, in SASS, or in PTX where no disassembler is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

MATRIX_CLASSES = frozenset({"HMMA", "HGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA", "BMMA", "DMMA"})
"""Classes that run on the matrix units. A kernel that loses one has left its fast path."""

LOCAL_CLASSES = frozenset({"LDL", "STL"})
"""Accesses to local memory: spills, and arrays that the compiler could not keep in registers."""

# The class that a PTX instruction becomes, for counts without a disassembler.
_PTX_CLASSES = (
    (r"wgmma\.mma_async\S*\.(?:f16|bf16|tf32)\b", "HGMMA"),
    (r"wgmma\.mma_async\S*\.e[45]m\d", "QGMMA"),
    (r"wgmma\.mma_async", "HGMMA"),
    (r"mma\.sync\S*\.(?:f16|bf16|tf32)\b", "HMMA"),
    (r"mma\.sync\S*\.[su]8", "IMMA"),
    (r"ldmatrix\.", "LDSM"),
    (r"stmatrix\.", "STSM"),
    (r"cp\.async\.bulk\.tensor\S*\.shared::cluster\.global", "UTMALDG"),
    (r"cp\.async\.bulk\.tensor\S*\.global\.shared::cta", "UTMASTG"),
    (r"cp\.async\.c[ag]\.", "LDGSTS"),
    (r"(?:ex2|lg2|rcp|rsqrt|sin|cos|tanh|sqrt)\.approx", "MUFU"),
    (r"setmaxnreg\.", "USETMAXREG"),
    (r"ld\.local", "LDL"),
    (r"st\.local", "STL"),
)
_PTX = [(re.compile(pattern), name) for pattern, name in _PTX_CLASSES]
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_SASS_KERNEL = re.compile(r"\s*Function : (\S+)|\.text\.([\w$.]+):")
_SASS_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*)")


def count_sass(text: str) -> dict[str, Mapping[str, int]]:
    """Instructions by class (the opcode before its first dot), by kernel symbol.

    Reads `nvdisasm -c` of a cubin and `cuobjdump -sass` alike.
    """
    out: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    for line in text.splitlines():
        if found := _SASS_KERNEL.match(line):
            current = out.setdefault(found[1] or found[2], Counter())
        elif line.startswith("//-----"):
            current = None
        elif current is not None and (found := _SASS_LINE.match(line)):
            current[found[1]] += 1
    return {name: dict(sorted(counts.items())) for name, counts in out.items()}


def count_ptx(text: str) -> dict[str, Mapping[str, int]]:
    """The same from PTX, for the classes that matter here: what ptxas will emit them as."""
    out: dict[str, Mapping[str, int]] = {}
    for name, body in _entries(text):
        counts: Counter[str] = Counter()
        for line in body:
            for pattern, instruction in _PTX:
                if pattern.search(line):
                    counts[instruction] += 1
                    break
        out[name] = dict(sorted(counts.items()))
    return out


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each kernel's symbol and the lines from there to its closing brace.

    Braces are counted, not looked for in the first column: inline assembly may write blocks of its
    own, and vector operands stand in braces too.
    """
    name, depth, opened = "", 0, False
    lines: list[str] = []
    for whole in text.splitlines():
        line = whole.split("//", 1)[0]
        if not name:
            if found := _PTX_ENTRY.search(line):
                name, lines, depth, opened = found[1], [], 0, False
                line = line[found.end() :]
            else:
                continue
        lines.append(line)
        depth += line.count("{") - line.count("}")
        opened = opened or "{" in line
        if (opened and depth <= 0) or (not opened and line.rstrip().endswith(";")):
            if opened:  # else a declaration without a body
                yield name, lines
            name = ""
