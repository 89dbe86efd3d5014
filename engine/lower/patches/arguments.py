"""The argument struct: fields that come, go, move or change their type."""

from __future__ import annotations

from engine.cuir.changes.edits import FIELDS
from engine.cuir.nodes import Field
from engine.errors import LowerError
from engine.lift.cpp.provenance import Range
from engine.lower.patches.context import Context
from engine.lower.patches.source_patch import Patch
from engine.lower.patches.statements import FIELD_TYPES
from engine.lower.spelling.emit import CXX_WORDS


def argument_patches(context: Context) -> list[Patch]:
    """The edits of `struct Args`. One declaration line may hold several fields of one type."""
    old, new = context.lifted.module.fields, context.target.fields
    if old == new:
        return []
    for item in new:
        if item.name in CXX_WORDS:
            raise LowerError(
                f"no field of the argument struct can be named {item.name}, a word of C++",
                fix="rename the input in the spec",
            )
    body = context.parts.get(((FIELDS,), "body.open"))
    if body is None:
        raise LowerError("the source has no struct Args to which fields could be added")
    lines = _declarations(context, old)
    wanted = _assign(old, new, lines)
    out: list[Patch] = []
    for number, place in enumerate(lines):
        before = [old[i] for i in lines[place]]
        out += _line_patches(context, place, before, wanted[number + 1])
    if wanted[0]:
        text = _lines_text(wanted[0], context.source.unit)
        end = context.source.line_end(body.end)
        if context.source.rest_of_line(body.end) is not None:
            out.append(Patch(end, end, context.bytes(text)))
        else:
            out.append(Patch(body.end, body.end, context.bytes(f"\n{text.rstrip()}")))
    return out


def _declarations(context: Context, fields: tuple[Field, ...]) -> dict[Range, list[int]]:
    """The declarations of the struct with the numbers of their fields, in order."""
    out: dict[Range, list[int]] = {}
    for i in range(len(fields)):
        out.setdefault(context.statement((FIELDS, i)), []).append(i)
    return out


def _assign(
    old: tuple[Field, ...], new: tuple[Field, ...], lines: dict[Range, list[int]]
) -> list[list[Field]]:
    """The new fields of each declaration; what comes before all of them is number 0.

    Fields keep their declaration where the order allows it; new ones follow their predecessor.
    """
    line_of = {
        old[i].name: number for number, members in enumerate(lines.values(), 1) for i in members
    }
    wanted: list[list[Field]] = [[] for _ in range(len(lines) + 1)]
    current = 0
    for item in new:
        current = max(current, line_of.get(item.name, current))
        wanted[current].append(item)
    return wanted


def _line_patches(
    context: Context, place: Range, before: list[Field], after: list[Field]
) -> list[Patch]:
    if before == after:
        return []
    source = context.source
    if not after:
        lines = source.whole_lines(place)
        return [Patch(lines.start, lines.end, b"")]
    indent = source.indent(place.start)
    kept = after[: len(before)]
    if kept == before:
        # Only additions behind it: lines of their own.
        text = _lines_text(after[len(before) :], indent)
        end = source.rest_of_line(place.end)
        if end is None:
            return [Patch(place.end, place.end, context.bytes(f"\n{text.rstrip()}"))]
        return [Patch(end, end, context.bytes(text))]
    text = _lines_text(after, indent)
    return [Patch(place.start, place.end, context.bytes(text.strip()))]


def _lines_text(fields: list[Field], indent: str) -> str:
    """Declarations, fields of one type that follow each other on one line."""
    lines: list[tuple[str, list[str]]] = []
    for item in fields:
        word = FIELD_TYPES[item.type]
        if lines and lines[-1][0] == word:
            lines[-1][1].append(item.name)
        else:
            lines.append((word, [item.name]))
    return "".join(f"{indent}{word} {', '.join(names)};\n" for word, names in lines)
