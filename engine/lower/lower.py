"""`lower`: an edited CuIR module as a small patch on the expert's source.

What the diff does not touch keeps its bytes. A change inside a statement replaces the smallest part
that has a place in the source; new statements are written in the kernel's idiom beside their
neighbours; deleted statements take their lines with them. The lowerer decides nothing about
correctness: the lowered text is lifted again and compared, and `spans` checks that nothing else
changed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import FIELDS, SPEC, Diff, EditKind
from engine.cuir.nodes import Module, Name, Num, Path, Str
from engine.cuir.printer import print_expr
from engine.errors import LowerError
from engine.lift.cpp.provenance import Lifted, Range
from engine.lift.files.lifter import lift_source
from engine.lower.patches.arguments import argument_patches
from engine.lower.patches.context import Context
from engine.lower.patches.functions import FunctionLowerer
from engine.lower.patches.source_patch import Patch, Source, apply_patches
from engine.lower.spelling.cpp_kinds import module_kinds
from engine.lower.spelling.legal import legal
from engine.lower.spelling.templates import Templates, default_templates


@dataclass(frozen=True, slots=True)
class Lowered:
    """The lowered text.

    `target` is the module that it must lift to (the given one with C++'s conversions written out).
    `provenance` gives the place in the new text of every statement that stayed (lifting the text
    again gives that of all). `changed_lines` counts
    lines that were changed, added or taken away, `share` is their part of the source's lines.
    """

    source: bytes
    target: Module
    provenance: Mapping[Path, Range]
    changed_lines: int
    total_lines: int

    @property
    def share(self) -> float:
        return self.changed_lines / max(self.total_lines, 1)


def lower(lifted: Lifted, target: Module, templates: Templates | None = None) -> Lowered:
    """`lifted`'s source with the edits that lead from its module to `target`.

    Raises:
        LowerError: something in `target` has no C++ in this kernel's language.
    """
    table = templates or default_templates()
    if lifted.module.spec != target.spec:
        raise LowerError(
            "the target is another specialisation than the lifted module",
            fix="keep the specialisation(...) line as it is",
        )
    target = legal(target, table)
    found = diff(lifted.module, target)
    if not found:
        places = {path: span.range for path, span in lifted.provenance.items()}
        return Lowered(lifted.source, target, places, 0, _line_count(lifted.source))
    indents = [
        part.of(lifted.source) for (_, role), part in lifted.parts.items() if role == "indent"
    ]
    context = Context(lifted, Source.of(lifted.source, indents), target, found, table)
    patches = argument_patches(context)
    patches += _function_patches(context)
    patches = context.source.without_doubled_blanks(patches)
    text = apply_patches(lifted.source, patches)
    changed = changed_lines(lifted.source, text)
    return Lowered(
        text, target, _places(lifted, found, patches), changed, _line_count(lifted.source)
    )


def changed_lines(before: bytes, after: bytes) -> int:
    """Lines changed, added or taken away; a changed line counts once."""
    matcher = difflib.SequenceMatcher(
        None, before.splitlines(keepends=True), after.splitlines(keepends=True), autojunk=False
    )
    return sum(
        max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


def _line_count(source: bytes) -> int:
    return len(source.splitlines())


def _function_patches(context: Context) -> list[Patch]:
    """The edits of every function that stays, and the functions that come, go or move."""
    kinds = module_kinds(context.target, context.templates)
    old_functions = {f.name: f for f in context.lifted.module.functions}
    moved = {e.old_path for e in context.diff.edits if e.kind is EditKind.MOVE and len(e.path) == 1}
    patches: list[Patch] = []
    pending: list[str] = []
    anchor: Path | None = None

    def flush() -> None:
        if pending:
            patches.append(_function_insertion(context, anchor, pending))
            pending.clear()

    for function in context.target.functions:
        before = context.back.get((function.name,))
        old = old_functions[str(before[0])] if before is not None else None
        if old is None:
            pending.append(FunctionLowerer(context, function, None, kinds[function.name]).whole())
            continue
        edits: list[Patch] = []
        if old != function:
            edits = FunctionLowerer(context, function, old, kinds[function.name]).patches()
        if before in moved:
            place = context.statement((old.name,))
            pending.append(context.chunk(place.start, place.end, edits))
        else:
            flush()
            patches += edits
            anchor = (old.name,)
    flush()
    for name in old_functions:
        if (name,) not in context.diff.pairs or (name,) in moved:
            patches.append(context.removal((name,)))
    return patches


def _function_insertion(context: Context, anchor: Path | None, texts: Sequence[str]) -> Patch:
    """New functions after the one at `anchor`, or before the first of all."""
    source = context.source
    if anchor is not None:
        place = source.line_end(context.lifted.provenance[anchor].end)
        text = "".join(f"\n{t}\n" for t in texts)
        if not source.data[:place].endswith((b"\n", b"\r")):
            text = "\n" + text[:-1]
    else:
        struct = context.parts.get(((FIELDS,), "statement"))
        if struct is None:
            place, text = 0, "".join(f"{t}\n\n" for t in texts)
        else:
            place = source.line_end(struct.end)
            text = "".join(f"\n{t}\n" for t in texts)
    return Patch(place, place, context.bytes(text))


def _places(lifted: Lifted, found: Diff, patches: list[Patch]) -> dict[Path, Range]:
    """Where the statements of the target stand in the new text, as far as they were kept."""
    ordered = sorted(patches, key=lambda p: (p.start, p.end))

    def shifted(offset: int, *, after: bool) -> int:
        delta = 0
        for patch in ordered:
            inside = after or patch.start < offset or patch.grows
            if patch.end < offset or (patch.end == offset and inside):
                delta += len(patch.text) - (patch.end - patch.start)
            elif patch.start < offset:
                return patch.start + delta
        return offset + delta

    def rewritten(place: Range) -> bool:
        """Whether a patch covers more than just these bytes."""
        return any(
            p.start <= place.start and place.end <= p.end and (p.start, p.end) != place
            for p in ordered
            if p.start < p.end
        )

    moved = {edit.old_path for edit in found.edits if edit.kind is EditKind.MOVE}
    out: dict[Path, Range] = {}
    for old, span in lifted.provenance.items():
        new = found.pairs.get(old)
        if (
            old[0] in (FIELDS, SPEC)
            or new is None
            or rewritten(span.range)
            or any(old[:k] in moved for k in range(1, len(old) + 1))
        ):
            continue
        out[new] = Range(shifted(span.start, after=True), shifted(span.end, after=False))
    return out


def specialisation_of(module: Module) -> tuple[str, dict[str, str]]:
    """The arch and the template arguments that a module is for, as the lifter takes them."""
    values: dict[str, str] = {}
    for name, value in module.spec:
        match value:
            case Name(id):
                values[name] = id
            case Str(text):
                values[name] = text
            case Num(bool() as truth):
                values[name] = "true" if truth else "false"
            case Num(number):
                values[name] = str(number)
            case _:
                raise LowerError(f"specialisation: {name}={print_expr(value)} is no plain value")
    arch = values.pop("arch", None)
    if arch is None:
        raise LowerError("the module names no arch", fix="write specialisation(arch='sm_80', ...)")
    return arch, values


def lift_for(source: bytes, module: Module, *, entry: str = "launch") -> Lifted:
    """`source` under the specialisation of `module`."""
    arch, values = specialisation_of(module)
    return lift_source(source, values, arch, file="lowered.cu", entry=entry)
