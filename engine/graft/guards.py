"""Guards for rows that keep no key: O is 0 there, and LSE an infinity.

Such a row's maximum stays what nothing raised: -inf, or the number that a dropped pair becomes.
Where it is so far down, what the row is divided by becomes infinite before the division. Which
variable holds the maximum was found by probing; each divisor beside it that may be the row's sum is
a candidate, and executing the patched source says which one is right, if any is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tree_sitter import Node

from engine.foreign.cuda_tree import descend, parsed, text
from engine.foreign.functions import functions_of
from engine.foreign.probe.places import ELEMENT, Found, Row
from engine.graft.edits import Edit, Files, fresh
from engine.graft.scope import scope

EMPTY = "-1e30f"  # a maximum below it: no score is there, and -2^126 times a scale is
_INTEGER = re.compile(r"\b(int|unsigned|long|short|char|bool|size_t|u?int\d+_t|auto|void)\b")


def guards(found: Found, files: Files) -> Iterator[Edit]:
    """The guards that may be right, in the order of the source: one edit each."""
    maxima = {(m.file, _base(m.variable)) for m in found.meanings if m.what == "m"}
    functions = {(p.file, p.function) for h in found.edited for p in h.places}
    for file in dict.fromkeys(f for f, _ in functions):
        root = parsed(files[file])
        done: set[tuple[int, str]] = set()
        for function in functions_of(root):
            body = function.child_by_field_name("body")
            if body is None or not any(f == file and _names(function, n) for f, n in functions):
                continue
            tops = sorted(name for f, name in maxima if f == file)
            for divisor in _divisors(body):
                for put, words in _written(divisor, function, tops):
                    if (put.start_byte, words) not in done:
                        done.add((put.start_byte, words))
                        yield _edit(file, files[file], put, words)


def at_rows(found: Found, files: Files) -> list[Edit]:
    """Guards where probing tried the maximum and the sum of a row: of -inf becomes 0 what weights
    are taken by, and of 0 becomes 1 what the row is divided by; none where it found but one."""
    own = ((row, _NONE[row.what]) for row in found.rows if row.what in _NONE)
    edits = [_at_row(row, files[row.file], *values) for row, values in own]
    return edits if len({row.what for row in found.rows}) == len(_NONE) else []


# What a row without a key has as its maximum and its sum, and what stands for it.
_NONE = {"m": ("-INFINITY", "0.0f"), "l": ("0.0f", "1.0f")}


def _at_row(row: Row, data: bytes, none: str, instead: str) -> Edit:
    e = fresh("e", data)
    element = row.element.replace(ELEMENT, e)
    words = f"if ({element} == {none}) {element} = {instead};"
    if row.elements > 1:
        words = f"for (int {e} = 0; {e} < {row.elements}; ++{e}) {words}"
    reason = f"{row.evidence}; {REASON}"
    return Edit(row.file, row.after, row.after, f"\n{row.indent}{words}", TITLE, reason, "mask")


def _edit(file: Path, data: bytes, put: Node, words: str) -> Edit:
    indent = data[data.rfind(b"\n", 0, put.start_byte) + 1 : put.start_byte].decode()
    at = put.start_byte
    if indent.strip():
        return Edit(file, at, at, f"{words} ", TITLE, REASON, "mask")
    return Edit(file, at, at, f"{words}\n{indent}", TITLE, REASON, "mask")


TITLE = "Give rows without a key the output 0"
REASON = (
    "a row of which every pair is dropped has no maximum: what it is divided by becomes infinite; "
    "executed without this guard the patched kernel was wrong there, and with it right"
)


def _written(divisor: Node, function: Node, maxima: list[str]) -> Iterator[tuple[Node, str]]:
    """A guard before the statement of a division, and that statement, for each maximum that is in
    scope there with the divisor."""
    sum_ = " ".join(text(divisor).split())
    name = _base(sum_)
    index = sum_[len(name) :]
    needed = {text(n) for n in descend(divisor) if n.type == "identifier"}
    at: Node | None = divisor
    while at is not None and at != function:
        block = at.parent
        if block is not None and block.type == "compound_statement":
            near = dict(scope(at, function))
            if not needed <= near.keys():
                return
            kind, extents = near[name]
            if not _INTEGER.search(kind) and "const" not in kind.split():
                for top in maxima:
                    if top in near and near[top][1] == extents and top != name:
                        yield _whole(at), f"if ({top}{index} < {EMPTY}) {sum_} = INFINITY;"
                return
        at = block


def _whole(statement: Node) -> Node:
    """The statement with pragmas before it, and what those stand in: `if (x)` before one."""
    before = statement.prev_named_sibling
    while before is not None and before.type != "comment":
        ends = text(before).rstrip()[-1:]
        if before.type != "preproc_call" and ends in (";", "}", ""):
            break
        statement, before = before, before.prev_named_sibling
    return statement


def _divisors(body: Node) -> Iterator[Node]:
    """What is divided by, where that is a variable or an element of one; the last first."""
    found: list[Node] = []
    for node in descend(body):
        operator = node.child_by_field_name("operator")
        if node.type in ("binary_expression", "assignment_expression") and text(operator) in (
            "/", "/=",
        ):  # fmt: skip
            right = node.child_by_field_name("right")
            if right is not None and right.type in ("identifier", "subscript_expression"):
                found.append(right)
    yield from reversed(found)


def _names(function: Node, name: str) -> bool:
    declarator = text(function.child_by_field_name("declarator"))
    return re.search(rf"\b{re.escape(name)}\s*\(", declarator) is not None


def _base(variable: str) -> str:
    found = re.match(r"\w+", variable)
    return found[0] if found else variable
