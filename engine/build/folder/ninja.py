"""The ninja file of one build folder.

Each specialisation is one edge whose object, cubin and PTX come from one run of nvcc, and one that
disassembles the cubin. Messages go to a file per specialisation, so that they outlive the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from engine.build.folder.units import COMPILE_FLAGS, LINK_FLAGS, arch_flags
from engine.build.tools.toolchain import Toolchain


@dataclass(frozen=True, slots=True)
class Link:
    """A library to link from the objects of `keys` and the dispatcher at `dispatcher`."""

    library: str
    dispatcher: str
    keys: tuple[str, ...]


def ninja_text(
    toolchain: Toolchain,
    arch: str,
    keys: Sequence[str],
    inputs: Sequence[str],
    link: Link | None = None,
) -> str:
    """The build file for `keys`, whose units are `units/KEY.cu`; `inputs`: source, headers."""
    nvcc = _shell([str(toolchain.nvcc.path)])
    flags = _shell([*arch_flags(arch), *COMPILE_FLAGS, "-I.", "-Iinclude"])
    keep = "keep/$key"
    lines = [
        "ninja_required_version = 1.5",
        f"nvcc = {nvcc}",
        f"flags = {flags}",
        "",
        "rule compile",
        f"  command = rm -rf {keep} && mkdir -p {keep} && "
        f"$nvcc $flags -c units/$key.cu -o $key.o --keep --keep-dir {keep} > $key.log 2>&1 && "
        f"mv {keep}/$key.cubin {keep}/$key.ptx . && rm -rf {keep}",
        "  description = compile $key",
        "",
    ]
    disassemble = _disassembler(toolchain)
    if disassemble:
        lines += [
            "rule disassemble",
            # A disassembler older than the arch must not fail the build: its absence is reported.
            f"  command = {disassemble} $key.cubin > $key.sass 2> /dev/null || : > $key.sass",
            "  description = disassemble $key",
            "",
        ]
    for key in keys:
        implicit = " ".join(map(_path, inputs))
        products = f"{key}.o | {key}.cubin {key}.ptx"
        lines.append(f"build {products}: compile units/{key}.cu | {implicit}")
        lines.append(f"  key = {key}")
        if disassemble:
            lines += [f"build {key}.sass: disassemble {key}.cubin", f"  key = {key}"]
    lines.append("")
    if link:
        shared = _shell([*arch_flags(arch), *LINK_FLAGS, *toolchain.link_flags])
        objects = " ".join(f"{key}.o" for key in link.keys)
        lines += [
            "rule dispatcher",
            "  command = $nvcc -std=c++17 -O2 -Xcompiler -fPIC -c $in -o $out "
            "> dispatcher.log 2>&1",
            "  description = compile the dispatcher",
            "rule link",
            f"  command = $nvcc {shared} -o $out.part $in > link.log 2>&1 && mv $out.part $out",
            "  description = link",
            f"build {link.dispatcher}.o: dispatcher {link.dispatcher}",
            f"build {link.library}: link {link.dispatcher}.o {objects}",
        ]
    return "\n".join(lines) + "\n"


def targets(toolchain: Toolchain, keys: Sequence[str], link: Link | None) -> list[str]:
    """What to ask ninja for."""
    out = [f"{key}.o" for key in keys]
    if _disassembler(toolchain):
        out += [f"{key}.sass" for key in keys]
    return [*out, link.library] if link else out


def _disassembler(toolchain: Toolchain) -> str | None:
    if toolchain.nvdisasm:
        return _shell([str(toolchain.nvdisasm.path), "-c"])
    if toolchain.cuobjdump:
        return _shell([str(toolchain.cuobjdump.path), "-sass"])
    return None


def _shell(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words).replace("$", "$$")


def _path(name: str) -> str:
    return name.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")
