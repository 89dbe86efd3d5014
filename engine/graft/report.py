"""What was found of a kernel, as text: the lifted stage of one that is executed as PTX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.foreign.places import Found


def lifted_text(title: str, found: Found, name: Mapping[Path, str]) -> str:
    """Places with their lines, meanings and coordinates; and what is executed as PTX."""

    def at(file: Path, line: int) -> str:
        return f"{name.get(file, file.name)}:{line}"

    out = [title, ""]
    for kernel, count in found.executed.items():
        out.append(f"executed as PTX: {kernel}, {count} instructions")
    if found.hooks:
        hook = found.hooks[0]
        out += ["", f"scores: {hook.evidence}"]
        for p in hook.places:
            many = f" ({p.elements} elements)" if p.elements > 1 else ""
            out.append(f"  {at(p.file, p.line)}  {p.variable}{many} in {p.function}")
            out += [f"    {n} = {text}" for n, text in p.coordinates.items()]
            out += [f"    {n} is {text}" for n, text in p.sizes.items()]
            scaled = "q . k, scaled" if p.to_score == "1.0f" else f"q . k, scaled by {p.to_score}"
            out.append(f"    an element is {scaled}")
    if found.meanings:
        out += ["", "meanings:"]
        out += [f"  {at(m.file, m.line)}  {m.variable} is {m.what}: {m.evidence}"
                for m in found.meanings]  # fmt: skip
    if found.loops:
        out += ["", "loops over keys:"]
        out += [f"  {at(x.file, x.line)}  {x.counter}: {x.keys} keys from {x.key}"
                for x in found.loops]  # fmt: skip
    if found.refused:
        out += ["", "not found:"]
        out += [f"  {text}" for text in found.refused]
    return "\n".join(out) + "\n"
