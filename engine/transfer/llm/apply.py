"""Edits applied to the base module's text, strictly: what does not apply is an error that says why.

All blocks of an answer address the base as it was shown; they may not overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.cuir.nodes import Module, Path, walk
from engine.cuir.parser import parse_module, parse_with_tables
from engine.cuir.printer import print_function, print_module, print_stmts
from engine.errors import CuirError
from engine.transfer.llm.answer import ARGS, MARK, Answer, AnswerError, AnswerRefused, Block

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class _Span:
    """Lines first..last (0-based, inclusive) of what an id names."""

    first: int
    last: int


def apply_answer(answer: Answer, base: Module, ids: Mapping[Path, str]) -> Module:
    """The proposed module.

    Raises:
        AnswerError: an edit that does not apply, or a result that is no CuIR.
        AnswerRefused: a result that is another specialisation.
    """
    if answer.module is not None:
        text = "\n".join(_clean(answer.module.split("\n")))
    elif answer.diff is not None:
        text = _patched(answer.diff, print_module(base))
    else:
        text = _edited(answer.blocks, base, ids)
    try:
        module = parse_module(text + "\n", "your module")
    except CuirError as error:
        raise AnswerError(f"the edited module does not parse: {_located(error, text)}") from None
    if module.spec != base.spec:
        raise AnswerRefused("the header specialisation(...) is no part of an edit")
    if module == base:
        raise AnswerError("the edit changes nothing")
    return module


def _located(error: CuirError, text: str) -> str:
    """The error with the line that it is about."""
    lines = text.split("\n")
    line = error.where.line if error.where is not None else None
    if line is None or not 1 <= line <= len(lines):
        return str(error)
    return f"{error}\n    {lines[line - 1].strip()}"


def _clean(lines: Sequence[str]) -> list[str]:
    """Lines without id marks and trailing space."""
    return [MARK.sub("", line).rstrip() for line in lines]


# --- search/replace -------------------------------------------------------------------------------


def _edited(blocks: Sequence[Block], base: Module, ids: Mapping[Path, str]) -> str:
    text = print_module(base)
    lines = text.rstrip("\n").split("\n")
    spans = _spans(base, text, ids)
    functions = [spans[ids[(f.name,)]] for f in base.functions if (f.name,) in ids]
    changes: list[tuple[int, int, list[str], str]] = []  # first, end, new lines, name
    for number, block in enumerate(blocks, start=1):
        name = f"block {number} ({block.op})"
        span = spans.get(block.op)
        if span is None:
            raise AnswerError(
                f"{name}: no op has the id {block.op!r}; ids are the module's #@ marks, or Args"
            )
        first, end = _target(block, (span, *_around(span, functions)), lines, name)
        changes.append((first, end, _replacement(block, lines, first, span, name), name))
    changes.sort(key=lambda c: (c[0], c[1]))
    for (_, end, _, one), (first, _, _, other) in pairwise(changes):
        if first < end:
            raise AnswerError(f"{one} and {other} edit the same lines")
    for first, end, new, _ in reversed(changes):
        lines[first:end] = new
    return "\n".join(lines)


def _spans(base: Module, text: str, ids: Mapping[Path, str]) -> dict[str, _Span]:
    starts = parse_with_tables(text).lines
    out: dict[str, _Span] = {}
    for path, stmt in walk(base):
        if path in ids:
            first = starts[path] - 1
            out[ids[path]] = _Span(first, first + len(print_stmts((stmt,), 0, (), {})) - 1)
    for function in base.functions:
        if (function.name,) in ids:
            first = starts[(function.name,)] - 2  # its decorator's line
            size = print_function(function).count("\n") + 1
            out[ids[(function.name,)]] = _Span(first, first + size - 1)
    lines = text.split("\n")
    head = lines.index("class Args:")
    out[ARGS] = _Span(head, head + max(len(base.fields), 1))
    return out


def _around(span: _Span, functions: Sequence[_Span]) -> list[_Span]:
    return [f for f in functions if f.first <= span.first and span.last <= f.last]


def _target(block: Block, spans: Sequence[_Span], lines: list[str], name: str) -> tuple[int, int]:
    """The lines that the block replaces: first and end; equal for an insertion. `spans` are those
    of its op and of the function around it."""
    span = spans[0]
    if block.place != "at":
        if any(line.strip() for line in block.search):
            raise AnswerError(f"{name}: `before` and `after` take no search lines")
        at = span.first if block.place == "before" else span.last + 1
        return at, at
    search = _dedented(_trimmed(block.search), name, "search")
    if not search:
        raise AnswerError(
            f"{name}: no search lines; write the lines to replace, or `<<<<<<< before {block.op}`"
        )
    places = [at for at in range(len(lines)) if _at(lines, at, len(search)) == search]
    # The text says what is replaced; the id, which of several. Of places that the op does not hold
    # the only one of its function is meant, else the only one there is.
    found = [at for at in places if span.first <= at <= span.last]
    for near in ([at for at in places if s.first <= at <= s.last] for s in spans[1:]):
        found = found or (near if len(near) == 1 else [])
    found = found or (places if len(places) == 1 else [])
    if not found:
        shown = "\n".join(
            f"    {line.strip()}" for line in lines[span.first : min(span.last + 1, span.first + 3)]
        )
        raise AnswerError(
            f"{name}: the search lines are not there. The op {block.op} reads\n{shown}\n"
            f"and the block searches\n    {search[0]}"
        )
    if len(found) > 1:
        raise AnswerError(f"{name}: the search lines occur {len(found)} times in {block.op}")
    return found[0], found[0] + len(search)


def _at(lines: list[str], at: int, size: int) -> list[str]:
    """`size` lines from `at` on, relative to the first one's indentation."""
    taken = lines[at : at + size]
    indent = _indent(taken[0]) if taken else 0
    return [line[indent:] if _indent(line) >= indent else "\0" + line for line in taken]


def _replacement(block: Block, lines: list[str], first: int, span: _Span, name: str) -> list[str]:
    new = _dedented(_trimmed(block.replace), name, "replace")
    if block.place != "at":
        if not new:
            raise AnswerError(f"{name}: nothing to insert")
        indent = _indent(lines[span.first])
    else:
        indent = _indent(lines[first])
    return [" " * indent + line if line else "" for line in new]


def _trimmed(lines: Sequence[str]) -> list[str]:
    out = _clean(lines)
    while out and not out[0]:
        out.pop(0)
    while out and not out[-1]:
        out.pop()
    return out


def _dedented(lines: list[str], name: str, part: str) -> list[str]:
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in lines):
        raise AnswerError(f"{name}: indent with spaces, not tabs")
    if not lines:
        return []
    indent = _indent(lines[0])
    if any(line and _indent(line) < indent for line in lines):
        raise AnswerError(
            f"{name}: the {part} lines leave the block they begin in; begin at the outermost line"
        )
    return [line[indent:] for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# --- unified diff ---------------------------------------------------------------------------------


def _patched(diff: str, text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    shift = 0
    hunks = _hunks(diff)
    if not hunks:
        raise AnswerError("the diff has no hunk; a hunk opens with `@@ -1,3 +1,4 @@`")
    for number, (stated, body) in enumerate(hunks, start=1):
        old = [line for sign, line in body if sign in " -"]
        new = [line for sign, line in body if sign in " +"]
        if not old:
            raise AnswerError(f"hunk {number} of the diff has no context to find its place by")
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if stated - 1 + shift in places:
            at = stated - 1 + shift
        elif len(places) == 1:
            at = places[0]
        else:
            what = "is not there" if not places else f"occurs {len(places)} times"
            raise AnswerError(
                f"hunk {number} of the diff: its context {what}; it begins\n    {old[0].strip()}"
            )
        lines[at : at + len(old)] = new
        shift += len(new) - len(old)
    return "\n".join(lines)


def _hunks(diff: str) -> list[tuple[int, list[tuple[str, str]]]]:
    out: list[tuple[int, list[tuple[str, str]]]] = []
    for line in diff.split("\n"):
        head = _HUNK.match(line)
        if head:
            out.append((int(head[1]), []))
        elif not out and (line.startswith(("--- ", "+++ ", "diff ")) or not line.strip()):
            if line.startswith(("--- ", "+++ ")) and not _names_target(line[4:]):
                raise AnswerRefused(
                    f"the diff is of {line[4:].strip()!r}, not of the target module"
                )
        elif not out:
            raise AnswerError("the diff has text before its first hunk")
        elif line[:1] in (" ", "-", "+"):
            out[-1][1].append((line[0], _clean([line[1:]])[0]))
        elif not line:
            out[-1][1].append((" ", ""))
        elif not line.startswith("\\"):
            raise AnswerError(f"not a line of a diff: {line[:60]!r}")
    for _, body in out:
        while body and body[-1] == (" ", ""):
            body.pop()
    return out


def _names_target(name: str) -> bool:
    words = name.split()
    return not words or words[0] in ("a/target.cuir", "b/target.cuir", "target.cuir", "/dev/null")
