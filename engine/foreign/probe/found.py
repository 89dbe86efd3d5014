"""What was found in a kernel of others, as text and as JSON: the artifact of its lift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.foreign.probe.places import Found, Hook, Loop, Place


def found_text(found: Found) -> str:
    """What a person reads: places with their lines, coordinates and evidence, and the rest."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Found) -> Iterator[str]:
    for number, hook in enumerate(found.hooks, start=1):
        yield f"scores, place {number}" + (" (edits go here)" if number == 1 else "")
        for place in hook.places:
            yield from _place(place)
        yield f"  evidence: {hook.evidence}"
        yield ""
    for hook in found.more:
        yield "scores of a kernel that other sizes launch (edits go here, too)"
        for place in hook.places:
            yield from _place(place)
        yield f"  evidence: {hook.evidence}"
        yield ""
    for loop in found.loops:
        yield f"{_at(loop.file, loop.line)}: the loop over keys: {_loop(loop)}"
    for meaning in found.meanings:
        yield f"{_at(meaning.file, meaning.line)}: {meaning.variable} holds {meaning.what}: " + (
            meaning.evidence
        )
    if found.loops or found.meanings:
        yield ""
    if not found.hooks:
        yield "no place was found that holds the scores"
    for words in found.refused:
        yield f"no place: {words}"
    for kernel, threads in found.executed.items():
        if threads:
            yield f"executed as PTX: {kernel}, {threads:,} thread instructions"
        else:
            yield f"not run at these sizes: {kernel}"


def _place(place: Place) -> Iterator[str]:
    many = "" if place.elements == 1 else f", {place.elements} elements: {place.element}"
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
