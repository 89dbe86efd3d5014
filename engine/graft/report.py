"""What was found of a kernel, as text: the lifted stage of one that is executed as PTX."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.foreign.places import Found, Hook, Loop, Meaning, Place


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
            whole = p.to_score in ("1.0f", "1")
            also = "" if whole else f"q . k, and {p.to_score} of it is "
            out.append(f"    an element is {also}the scaled score")
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


def found_text(found: Found) -> str:
    """All that was found as JSON, as a session keeps it."""
    return json.dumps(asdict(found), indent=2, default=str) + "\n"


def read_found(text: str) -> Found:
    """What `found_text` wrote."""
    data = json.loads(text)
    return Found(
        tuple(_hook(h) for h in data["hooks"]),
        tuple(Meaning(**_filed(m)) for m in data["meanings"]),
        tuple(_loop(x) for x in data["loops"]),
        tuple(data["refused"]),
        data["executed"],
        tuple(map(Path, data["files"])),
    )


def _filed(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "file": Path(data["file"])}


def _hook(data: Mapping[str, Any]) -> Hook:
    return Hook(**{**data, "places": tuple(Place(**_filed(p)) for p in data["places"])})


def _loop(data: Mapping[str, Any]) -> Loop:
    spans = {n: None if data[n] is None else tuple(data[n]) for n in ("first", "end")}
    return Loop(**{**_filed(data), **spans})
