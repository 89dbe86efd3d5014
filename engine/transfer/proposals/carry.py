"""Decisions about the edits of one proposal, carried to the same edits of another one.

An edit is the same where it makes the same of the same statement in the same function, wherever
that stands by now. A hunk is decided where all its edits were, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.cuir.canonical import canonical_stmt
from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import Edit, Node, hunks
from engine.cuir.nodes import Field, Function, Module, Path, Stmt
from engine.types import DecisionKind, Proposal

Rename = Callable[[Module], Module]
Kinds = Mapping[Any, frozenset[DecisionKind | None]]  # by what the edit is


def known_edits(
    base: Module, proposed: Module, decided: Sequence[DecisionKind | None] | None = None,
    names: Sequence[Rename] = (),
) -> Kinds:  # fmt: skip
    """What was decided of each edit from `base` to `proposed`; `decided` are the decisions about
    the hunks of the proposal that was kept, in order (accepted, where there is none).

    The modules are those that the proposal was made of, since under other names statements may be
    paired otherwise: `names` rename each edit by itself, one after the other.
    """
    found = hunks(diff(base, proposed), None if decided is None else len(decided))
    kinds = [DecisionKind.ACCEPTED] * len(found) if decided is None else decided
    if len(kinds) != len(found):
        return {}
    out: dict[Any, frozenset[DecisionKind | None]] = {}
    for hunk, kind in zip(found, kinds, strict=True):
        for edit in hunk.edits:
            same = _same(edit, names)
            out[same] = out.get(same, frozenset()) | {kind}
    return out


def carried(
    base: Module, proposed: Module, proposal: Proposal, known: Kinds,
    conflicts: frozenset[Path] = frozenset(),
) -> dict[str, DecisionKind]:  # fmt: skip
    """By hunk of `proposal`, which is from `base` to `proposed`: what was decided of its edits.

    Nothing for a hunk with an edit that is not known, that was decided in several ways, or whose
    new place is among `conflicts`.
    """
    out: dict[str, DecisionKind] = {}
    for hunk, shown in zip(hunks(diff(base, proposed)), proposal.hunks, strict=True):
        kinds = {k for edit in hunk.edits for k in known.get(_same(edit), frozenset({None}))}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is not None and not any(edit.new_path in conflicts for edit in hunk.edits):
            out[shown.id] = kind
    return out


def _same(edit: Edit, names: Sequence[Rename] = ()) -> Any:
    function = str(edit.path[0])
    old, new = (_called(node, function, names) for node in (edit.old, edit.new))
    place = _holding(None, function, names).name
    return (edit.kind, place, _unnamed(old), _unnamed(new))


def _called(node: Node | None, function: str, names: Sequence[Rename]) -> Node | None:
    """The node of a function, under other names. Fields and constants keep theirs."""
    if node is None or isinstance(node, Field | tuple):
        return node
    held = _holding(node, function, names)
    return held if isinstance(node, Function) else held.body[0]


def _holding(node: Stmt | Function | None, function: str, names: Sequence[Rename]) -> Function:
    """A function that has no more than the node, renamed."""
    body = () if node is None or isinstance(node, Function) else (node,)
    held = node if isinstance(node, Function) else Function("device", function, (), (), (), body)
    for rename in names:
        (held,) = rename(Module((), (), (held,))).functions
    return held


def _unnamed(node: Node | None) -> Node | None:
    """The node with lambda parameters numbered: their names mean nothing outside of it."""
    if node is None or isinstance(node, Field | tuple):
        return node
    if isinstance(node, Function):
        return replace(node, body=tuple(canonical_stmt(stmt, {}) for stmt in node.body))
    return canonical_stmt(node, {})
