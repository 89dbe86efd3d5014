"""What the difference of two CuIR modules consists of: edits, and hunks of them, as texts too.

Edits name statements by path: `old_path` in the old module, `new_path` in the new one. A change is
of a statement's own text (a loop's header, not its body); an insert or delete is of a whole
statement, less what moved in or out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.cuir.matching import shell, signature
from engine.cuir.nodes import Expr, Field, Function, Module, Path, Stmt, blocks
from engine.cuir.printer import print_expr, print_function, print_stmts

# Paths of what is not a statement; no C++ function beside `struct Args` can have such a name.
FIELDS = "Args"
SPEC = "specialisation()"

Spec = tuple[tuple[str, Expr], ...]
Node = Stmt | Function | Field | Spec


class EditKind(StrEnum):
    INSERT = "insert"
    DELETE = "delete"
    CHANGE = "change"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit. `old` and `new` are the nodes; which are set follows from the kind.

    insert: `new` at `new_path`. delete: `old` at `old_path`. change: both, without their blocks.
    move: both paths and the moved node as it was (`old`). A function's path does not say where it
    stands among the functions, so `order` does (its index in the new module).
    """

    kind: EditKind
    old_path: Path | None = None
    new_path: Path | None = None
    old: Node | None = None
    new: Node | None = None
    order: int | None = None

    @property
    def path(self) -> Path:
        """Where a reader looks for it: the new place, or the old one of what is gone."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True, slots=True)
class Diff:
    """Edits in reading order, the hunk each belongs to, and what is which statement; `stretches`
    is the hunk of each where contiguous edits are decided on together."""

    edits: tuple[Edit, ...]
    groups: tuple[int, ...]
    pairs: Mapping[Path, Path]
    stretches: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.edits)


@dataclass(frozen=True, slots=True)
class EditHunk:
    """Edits that a reviewer decides on together, in reading order.

    One statement; all edits of one device function; a contiguous stretch in which something is
    taken away; and edits that need each other (a statement moved into an inserted one).
    """

    edits: tuple[Edit, ...]

    @property
    def function(self) -> str:
        return str(self.edits[0].path[0])


def hunks(difference: Diff, count: int | None = None) -> tuple[EditHunk, ...]:
    """The edits in groups, in reading order of each group's first edit.

    `count` is how many hunks a kept proposal has: one that was made when contiguous edits were one
    hunk has fewer, and is grouped so.
    """
    found = _grouped(difference, difference.groups)
    return found if count in (None, len(found)) else _grouped(difference, difference.stretches)


def _grouped(difference: Diff, groups: tuple[int, ...]) -> tuple[EditHunk, ...]:
    grouped: dict[int, list[Edit]] = {}
    for edit, group in zip(difference.edits, groups, strict=True):
        grouped.setdefault(group, []).append(edit)
    return tuple(EditHunk(tuple(edits)) for edits in grouped.values())


def before_text(hunk: EditHunk, old: Module) -> str:
    """CuIR text of what the hunk takes away or changes; empty for a pure insertion."""
    return _hunk_text(hunk, old, new_side=False)


def after_text(hunk: EditHunk, new: Module) -> str:
    """CuIR text of what the hunk puts there; empty for a pure deletion."""
    return _hunk_text(hunk, new, new_side=True)


def _hunk_text(hunk: EditHunk, module: Module, *, new_side: bool) -> str:
    paths = [edit.new_path if new_side else edit.old_path for edit in hunk.edits]
    first = next((path for path in paths if path is not None), None)
    whole = {f.name: f for f in module.functions}
    if first is not None and first[0] in whole and whole[str(first[0])].kind == "device":
        return print_function(whole[str(first[0])]) + "\n"
    lines: list[str] = []
    for edit in hunk.edits:
        node = edit.new if new_side else edit.old
        if edit.kind is EditKind.MOVE:
            node = edit.old
        lines += _node_lines(node)
    return "".join(f"{line}\n" for line in lines)


def _node_lines(node: Node | None) -> list[str]:
    if node is None:
        return []
    if isinstance(node, Field):
        return [f"{node.name}: {node.type}"]
    if isinstance(node, Function):
        lines = print_function(node).split("\n")
        return lines if node.body else lines[:-1]
    if isinstance(node, tuple):
        return [f"{name}={print_expr(value)}" for name, value in node]
    lines = print_stmts((node,), 0, ("",), {})
    # The header of a changed block statement is shown without an empty body.
    return lines[:1] if shell(node) == node and blocks(node) else lines


def head_of(node: Node | None) -> Node | None:
    """The node without what is inside it."""
    if isinstance(node, Function):
        return signature(node)
    if node is None or isinstance(node, Field | tuple):
        return node
    return shell(node)


def index_of(path: Path) -> int:
    """Where a statement stands in its block."""
    last = path[-1]
    assert isinstance(last, int)
    return last
