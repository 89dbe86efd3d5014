"""Decisions about the edits of one proposal, carried to the same edits of another one.

An edit is the same where it makes the same of the same statement in the same function, wherever
that stands by now. A hunk is decided where all its edits were, in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from engine.cuir.canonical import canonical_stmt
from engine.cuir.diff import diff
from engine.cuir.edits import Edit, Node, hunks
from engine.cuir.nodes import Field, Function, Module, Path
from engine.types import DecisionKind, Proposal

Kinds = Mapping[Any, frozenset[DecisionKind | None]]  # by what the edit is


def known_edits(
    base: Module, proposed: Module, decided: Iterable[DecisionKind | None] | None = None
) -> Kinds:
    """What was decided of each edit from `base` to `proposed`; `decided` are the decisions about
    the hunks, in order (accepted, where there is none)."""
    found = hunks(diff(base, proposed))
    kinds = [DecisionKind.ACCEPTED] * len(found) if decided is None else list(decided)
    if len(kinds) != len(found):  # under other names its statements were paired otherwise
        return {}
    out: dict[Any, frozenset[DecisionKind | None]] = {}
    for hunk, kind in zip(found, kinds, strict=True):
        for edit in hunk.edits:
            out[_same(edit)] = out.get(_same(edit), frozenset()) | {kind}
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


def _same(edit: Edit) -> Any:
    return (edit.kind, edit.path[0], _unnamed(edit.old), _unnamed(edit.new))


def _unnamed(node: Node | None) -> Node | None:
    """The node with lambda parameters numbered: their names mean nothing outside of it."""
    if node is None or isinstance(node, Field | tuple):
        return node
    if isinstance(node, Function):
        return replace(node, body=tuple(canonical_stmt(stmt, {}) for stmt in node.body))
    return canonical_stmt(node, {})
