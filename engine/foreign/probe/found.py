"""What was found in a kernel of others, as text and as JSON: the artifact of its lift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.foreign.probe.places import ELEMENT, Found, Hook, Loop, Place

_ROWS = {"m": "the maximum{} that weights are taken by", "l": "the sum that O is divided by"}


def found_text(found: Found) -> str:
    """What a person reads: places with their lines, coordinates and evidence, and the rest."""
    return "\n".join(text for text, _ in _lines(found)) + "\n"


def source_lines(found: Found, source: Path) -> dict[int, int]:
    """Which line of a source a line of `found_text` tells of (both 1-based)."""
    places = enumerate((at for _, at in _lines(found)), start=1)
    return {n: at[1] for n, at in places if at is not None and at[0] == source}


def _lines(found: Found) -> Iterator[tuple[str, tuple[Path, int] | None]]:
    """Each line of the text, and the file and line that it tells of."""
    for number, hook in enumerate(found.hooks, start=1):
        first = (hook.places[0].file, hook.places[0].line)
        yield f"scores, place {number}" + (" (edits go here)" if number == 1 else ""), first
        for place in hook.places:
            for text in _place(place):
                yield text, (place.file, place.line)
        yield f"  evidence: {hook.evidence}", first
        yield "", None
    for hook in found.more:
        first = (hook.places[0].file, hook.places[0].line)
        yield "scores of a kernel that other sizes launch (edits go here, too)", first
        for place in hook.places:
            for text in _place(place):
                yield text, (place.file, place.line)
        yield f"  evidence: {hook.evidence}", first
        yield "", None
    for loop in found.loops:
        at = (loop.file, loop.line)
        yield f"{_at(*at)}: the loop over keys: {_loop(loop)}", at
    for row in found.rows:
        at = (row.file, row.line)
        unit = "" if row.unit == "1" else f" times {row.unit}"
        what = _ROWS[row.what].format(unit)
        yield f"{_at(*at)}: {row.variable} holds {what}: {row.evidence}", at
    for meaning in found.meanings:
        at = (meaning.file, meaning.line)
        yield f"{_at(*at)}: {meaning.variable} holds {meaning.what}: {meaning.evidence}", at
    if found.loops or found.rows or found.meanings:
        yield "", None
    if not found.hooks:
        yield "no place was found that holds the scores", None
    for words in found.refused:
        yield f"no place: {words}", None
    for kernel, threads in found.executed.items():
        if threads:
            yield f"executed as PTX: {kernel}, {threads:,} thread instructions", None
        else:
            yield f"not run at these sizes: {kernel}", None


def _place(place: Place) -> Iterator[str]:
    several = f", {place.elements} elements, number {ELEMENT} is {place.element}"
    many = several if place.elements > 1 else ""
    yield f"  {_at(place.file, place.line)}: after it {place.variable} holds scores{many}"
    for name, text in place.coordinates.items():
        yield f"    {name} = {text}"
    if place.to_score != "1.0f":
        yield f"    times {place.to_score} it is scale * (q . k)"
    if place.sizes:
        yield "    " + ", ".join(f"{name} is {text}" for name, text in place.sizes.items())


def _loop(loop: Loop) -> str:
    each = "one key" if loop.keys == 1 else f"{loop.keys} keys"
    return f"{each} from {loop.key} on for each {loop.counter}, which goes on by {loop.step}"


def _at(file: Path, line: int) -> str:
    return f"{file.name}:{line}"


def found_rows(found: Found) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "hooks": [_hook_row(hook) for hook in found.hooks],
        "more": [_hook_row(hook) for hook in found.more],
        "loops": [
            {"file": str(x.file), "line": x.line, "counter": x.counter, "keys": x.keys,
             "key": x.key, "step": x.step}
            for x in found.loops
        ],
        "meanings": [
            {"what": m.what, "file": str(m.file), "line": m.line, "variable": m.variable,
             "evidence": m.evidence}
            for m in found.meanings
        ],
        "rows": [
            {"what": r.what, "file": str(r.file), "line": r.line, "variable": r.variable,
             "element": r.element, "unit": r.unit, "evidence": r.evidence}
            for r in found.rows
        ],
        "refused": list(found.refused),
        "executed": dict(found.executed),
    }  # fmt: skip


def _hook_row(hook: Hook) -> dict[str, Any]:
    return {
        "factor": hook.factor, "scale": hook.scale, "replicas": hook.replicas,
        "evidence": hook.evidence,
        "places": [
            {"file": str(p.file), "line": p.line, "function": p.function, "variable": p.variable,
             "elements": p.elements, "element": p.element, "coordinates": dict(p.coordinates),
             "sizes": dict(p.sizes), "to_score": p.to_score}
            for p in hook.places
        ],
    }  # fmt: skip
