"""A draft of the launcher that a kernel lacks, for a person to fill in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import InputError
from engine.foreign.cuda_tree import parsed
from engine.foreign.functions import declarator_of, functions_of, name_of
from engine.foreign.launcher import DIMENSIONS, OTHER_NAMES, OUTPUTS, SHAPES

_NAMES = {**{name: name for name in SHAPES}, **OTHER_NAMES}
_FORMAT = """\
// A draft: says how the kernel is launched. Fill in what is marked, then
//     cubridge import {file} --reference SPEC.py
#include "{source}"

void launch({parameters}) {{
  dim3 grid({rows}, Hq, B);  // FILL IN: the blocks of a launch; here one for each {each}
  dim3 block(128);           // FILL IN: the threads of a block
  size_t shared = 0;         // FILL IN: bytes of dynamic shared memory
{body}}}
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A `__global__` function: its name and parameters as (type, name)."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    template: bool


def kernels_in(source: str) -> list[Kernel]:
    """The `__global__` functions of a source, in their order."""
    found = []
    for node in functions_of(parsed(source.encode())):
        text = (node.text or b"").decode()
        if "__global__" not in text.split("{")[0]:
            continue
        declarator = declarator_of(node)
        listed = declarator.child_by_field_name("parameters") if declarator else None
        parameters = []
        for child in listed.named_children if listed else ():
            words = (child.text or b"").decode().split("=")[0]
            m = re.fullmatch(r"(.*?)(\w+)\s*", words, re.DOTALL)
            if m is not None and "declaration" in child.type:
                plain = re.sub(r"\b(__restrict__|__restrict|__grid_constant__)\b", "", m[1])
                parameters.append((" ".join(plain.split()), m[2]))
        parent = node.parent
        template = parent is not None and parent.type == "template_declaration"
        found.append(Kernel(name_of(node), tuple(parameters), template))
    return found


def draft_launcher(source: str, file: str, shapes: Mapping[str, str], into: str) -> str:
    """The text of a launcher for the source's first kernel.

    Raises:
        InputError: the source has no `__global__` function.
    """
    kernels = kernels_in(source)
    if not kernels:
        raise InputError(f"{file} has no __global__ function", fix="give the kernel's own source")
    kernel = kernels[0]
    taken = {_NAMES.get(n.lower(), n): t for t, n in kernel.parameters if t.endswith("*")}
    tensors = [*(n for n in shapes if n not in OUTPUTS), "o", *(["lse"] if "lse" in taken else [])]
    parameters = [f"{_pointer(n, taken)} {n}" for n in tensors]
    parameters += [f"int {d}" for d in DIMENSIONS if d != "Dv"]
    parameters += ["float scale", "cudaStream_t stream"]
    known = {p.split()[-1].lstrip("*") for p in parameters}
    lines, arguments = [], []
    for type, name in kernel.parameters:
        means = _NAMES.get(name.lower(), name)
        same = next((k for k in known if k.lower() == means.lower()), None)
        if same is not None:
            arguments.append(same)
        elif means == "N":
            arguments.append("Nk")
        else:
            lines.append(f"  {type} {name}{{}};  // FILL IN")
            arguments.append(name)
    name = f"{kernel.name}<>" if kernel.template else kernel.name
    note = "  // FILL IN: its template's arguments" if kernel.template else ""
    lines.append(f"  {name}<<<grid, block, shared, stream>>>({', '.join(arguments)});{note}")
    if len(kernels) > 1:
        others = ", ".join(k.name for k in kernels[1:])
        lines.append(f"  // The source has further kernels: {others}")
    return _FORMAT.format(
        file=into, source=file, parameters=", ".join(parameters), rows="Nq", each="row of queries",
        body="".join(f"{line}\n" for line in lines),
    )  # fmt: skip


def _pointer(name: str, taken: Mapping[str, str]) -> str:
    """The C++ type of a tensor, as the kernel has it."""
    if name in taken:
        return taken[name]
    return "float*" if name == "lse" else "void*" if name in OUTPUTS else "const void*"
