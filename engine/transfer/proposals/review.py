"""Proposals as reviewable hunks, and the target that a person's decisions make of them.

A proposal is kept as a whole proposed text; its hunks are the diff against the base. The target is
the base with the accepted hunks, edited ones with the person's own text in their place.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import (
    FIELDS,
    Diff,
    Edit,
    EditHunk,
    EditKind,
    after_text,
    before_text,
    hunks,
)
from engine.cuir.changes.patch import apply  # fmt: skip
from engine.cuir.nodes import Field, Function, Module, Path, Stmt, blocks, with_blocks
from engine.cuir.parser import parse_block, parse_module
from engine.cuir.printer import print_module
from engine.errors import CuirError, TransferError, Where
from engine.transfer.rules import Step
from engine.types import Decision, DecisionKind, Hunk, Origin, Proposal


@dataclass(frozen=True, slots=True)
class Why:
    """What a hunk is for, in words."""

    title: str
    reason: str
    clause: str = ""


def propose(
    base: Module,
    proposed: Module,
    *,
    id: str,
    origin: Origin,
    reason: str,
    ids: Mapping[Path, str],
    trail: Iterable[tuple[Step, Module]] = (),
    transcript: str | None = None,
) -> Proposal:
    """The proposal whose hunks turn `base` into `proposed`.

    `ids` are the base's statement ids; `trail` is the module after each rule, which says why.
    """
    difference = diff(base, proposed)
    history = _history(base, trail, proposed)
    made = []
    for number, hunk in enumerate(hunks(difference), start=1):
        why = _why(hunk, history, reason)
        touched = tuple(
            ids[e.old_path] for e in hunk.edits if e.old_path is not None and e.old_path in ids
        )
        made.append(
            Hunk(
                f"h{number}", why.title, why.reason, why.clause,
                before_text(hunk, base), after_text(hunk, proposed), touched, origin,
            )
        )  # fmt: skip
    return Proposal(id, origin, reason, tuple(made), transcript)


def compose(
    base: Module, proposed: Module, proposal: Proposal, decisions: Mapping[str, Decision]
) -> Module:
    """`base` with the hunks that `decisions` (by hunk id) accept.

    Raises:
        TransferError: the proposal's hunks are not those of this base and proposed text.
        CuirError: an edited hunk's text does not parse.
    """
    difference = diff(base, proposed)
    found = hunks(difference, len(proposal.hunks))
    if len(found) != len(proposal.hunks):
        raise TransferError(
            f"proposal {proposal.id} was made against another base", fix="propose again from here"
        )
    chosen: list[EditHunk] = []
    for hunk, shown in zip(found, proposal.hunks, strict=True):
        decision = decisions.get(shown.id)
        if decision is None or decision.kind is DecisionKind.REJECTED:
            continue
        chosen.append(hunk)
    edited = [
        (hunk, decisions[shown.id])
        for hunk, shown in zip(found, proposal.hunks, strict=True)
        if shown.id in decisions and decisions[shown.id].kind is DecisionKind.EDITED
    ]
    if not edited:
        return apply(difference, base, chosen)
    changed = proposed
    for hunk, decision in reversed(edited):  # the last first: places before it stay where they are
        changed = _replace_hunk(changed, proposed, difference, hunk, decision.replacement or "")
    # The other edits are the same in the diff against the edited text.
    again = diff(base, changed)
    there = {new: old for old, new in diff(proposed, changed).pairs.items()}
    left_out = {_place(e, e.new_path) for h in found if h not in chosen for e in h.edits}
    kept = (
        e for e in again.edits
        if _place(e, None if e.new_path is None else there.get(e.new_path)) not in left_out
    )  # fmt: skip
    return apply(again, base, [EditHunk(tuple(kept))])


def _place(edit: Edit, new_path: Path | None) -> tuple[object, ...]:
    """What an edit is of; `new_path` is its place in the proposed text. Fields have names."""
    node = edit.new if edit.new is not None else edit.old
    if isinstance(node, Field):
        return edit.kind, node.name
    return edit.kind, edit.old_path, new_path


def _replace_hunk(
    module: Module, proposed: Module, difference: Diff, hunk: EditHunk, text: str
) -> Module:
    """`module` (the proposed text, perhaps edited before) with a hunk's statements replaced."""
    flush = textwrap.dedent(text)
    above = len(flush) - len(flush.lstrip("\n"))
    with _in_hunk(-above, _indent(flush) - _indent(text)):
        return _replaced(module, proposed, difference, hunk, flush.strip("\n"))


def _indent(text: str) -> int:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return len(line) - len(line.lstrip())


@contextlib.contextmanager
def _in_hunk(above: int, left: int) -> Iterator[None]:
    """Errors at the place in the hunk, where `above` lines and `left` columns were put before it
    to read it (or, negative, taken away)."""
    try:
        yield
    except CuirError as error:
        if error.where is None or error.where.line is None:
            raise
        line, column = max(error.where.line - above, 1), error.where.column
        column = max(column - left, 1) if column is not None else None
        where = Where(error.where.file, line, column)
        raise CuirError(error.message, where=where, fix=error.fix) from None


def _replaced(
    module: Module, proposed: Module, difference: Diff, hunk: EditHunk, text: str
) -> Module:
    paths = [e.new_path for e in hunk.edits if e.new_path is not None]
    if not paths:
        return _fill_gap(module, difference, hunk, text)
    first = paths[0]
    function = next((f for f in proposed.functions if f.name == first[0]), None)
    if first[0] == FIELDS:
        return _replace_fields(module, hunk, text)
    if function is None:
        raise TransferError(f"nothing is called {first[0]}")
    if function.kind == "device" or len(first) == 1:
        parsed = _parse_function(module, text)
        functions = tuple(parsed if f.name == function.name else f for f in module.functions)
        return Module(module.spec, module.fields, functions)
    top = min(paths, key=len)
    block = top[:-1]
    indexes = [p[len(block)] for p in paths if p[: len(block)] == block]
    low, high = min(map(_int, indexes)), max(map(_int, indexes))
    statements = parse_block(text, "hunk") if text else ()
    return _splice(module, block, low, high, statements)


def _fill_gap(module: Module, difference: Diff, hunk: EditHunk, text: str) -> Module:
    """`module` with `text` where a hunk that only deletes left nothing."""
    gone = [e.old_path for e in hunk.edits if e.old_path is not None]
    if not gone or gone[0][0] == FIELDS:
        return _replace_fields(module, hunk, text)
    top = min(gone, key=len)
    if len(top) == 1:
        raise TransferError(
            f"this hunk deletes the function {top[0]}: reject it, or accept it",
            fix="W writes a proposal of your own, with another function",
        )
    place = _new_place(difference, top)
    if place is None:
        raise TransferError(
            "what stood around this hunk is gone too", fix="edit the hunk around it"
        )
    block, index = place
    statements = parse_block(text, "hunk") if text else ()
    return _splice(module, block, index, index - 1, statements)


def _new_place(difference: Diff, path: Path) -> tuple[Path, int] | None:
    """The block and index in the new module that a deleted statement would have."""
    *block, index = path
    if len(block) == 1:
        home: Path = tuple(block)
    else:
        owner = difference.pairs.get(tuple(block[:-1]))
        if owner is None:
            return None
        home = (*owner, block[-1])
    for before in range(_int(index) - 1, -1, -1):
        sibling = difference.pairs.get((*block, before))
        if sibling is not None and sibling[:-1] == home:
            return home, _int(sibling[-1]) + 1
    return home, 0


def _int(value: str | int) -> int:
    assert isinstance(value, int)
    return value


def _parse_function(module: Module, text: str) -> Function:
    head = print_module(Module(module.spec, module.fields, ()))
    with _in_hunk(f"{head}\n\n".count("\n"), 0):
        parsed = parse_module(f"{head}\n\n{text}\n", "hunk")
    if len(parsed.functions) != 1:
        raise CuirError("the hunk's text must be one function")
    return parsed.functions[0]


def _replace_fields(module: Module, hunk: EditHunk, text: str) -> Module:
    body = "\n".join(f"    {line}" for line in text.split("\n")) or "    pass"
    head = "specialisation()\n\n\nclass Args:\n"
    with _in_hunk(head.count("\n"), 4):
        parsed = parse_module(f"{head}{body}\n", "hunk")
    gone = {e.new.name for e in hunk.edits if isinstance(e.new, Field)}
    at = next((i for i, f in enumerate(module.fields) if f.name in gone), len(module.fields))
    before, after = module.fields[:at], module.fields[at:]
    kept = tuple(f for f in after if f.name not in gone)
    return Module(module.spec, (*before, *parsed.fields, *kept), module.functions)


def _splice(
    module: Module, block: Path, low: int, high: int, statements: tuple[Stmt, ...]
) -> Module:
    def put(body: tuple[Stmt, ...], path: Path) -> tuple[Stmt, ...]:
        if not path:
            return (*body[:low], *statements, *body[high + 1 :])
        index, branch = _int(path[0]), str(path[1])
        stmt = body[index]
        inner = put(dict(blocks(stmt))[branch], path[2:])
        return (*body[:index], with_blocks(stmt, {branch: inner}), *body[index + 1 :])

    functions = tuple(
        Function(f.kind, f.name, f.params, f.consts, f.options, put(f.body, block[1:]))
        if f.name == block[0]
        else f
        for f in module.functions
    )
    return Module(module.spec, module.fields, functions)


# --- why a hunk is there ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Made:
    """What one rule did to the module: `rule` is None for what is done after the last one."""

    rule: Step | None
    difference: Diff
    back: Mapping[Path, Path]  # a statement's place after it -> before it
    touched: frozenset[Path]  # places after it of what it inserted or changed


def _history(base: Module, trail: Iterable[tuple[Step, Module]], proposed: Module) -> list[_Made]:
    """The way from the base to the proposed text, rule by rule."""
    out: list[_Made] = []
    before = base
    for rule, after in (*trail, (None, proposed)):
        made = diff(before, after)
        touched = (e.new_path for e in made.edits if e.kind is not EditKind.MOVE)
        out.append(
            _Made(
                rule,
                made,
                {new: old for old, new in made.pairs.items()},
                frozenset(path for path in touched if path is not None),
            )
        )
        before = after
    return out


def _rules_of(edit: Edit, history: list[_Made]) -> list[Step]:
    """The rules that made an edit, in order: the first wrote the text, the others changed it."""
    found: list[Step | None] = []
    if FIELDS in (edit.new_path or edit.old_path or ())[:1]:  # fields have names, and no places
        same = (edit.kind, edit.old, edit.new)
        for made in history:
            if any((e.kind, e.old, e.new) == same for e in made.difference.edits):
                found.append(made.rule)
    elif edit.new_path is not None:
        path = edit.new_path
        for made in reversed(history):
            if path in made.touched or path not in made.back:
                found.insert(0, made.rule)
            if path not in made.back:
                break
            path = made.back[path]
    elif edit.old_path is not None:
        path = edit.old_path
        for made in history:
            if path not in made.difference.pairs:
                found.append(made.rule)
                break
            path = made.difference.pairs[path]
    return [rule for rule in found if rule is not None]


def _why(hunk: EditHunk, history: list[_Made], reason: str) -> Why:
    """Titles of the rules that wrote the hunk's text; reasons and clauses of those that changed it
    too."""
    rules = [found for e in hunk.edits if (found := _rules_of(e, history))]
    if not rules:
        return Why(_summary(hunk), reason)
    titles = dict.fromkeys(found[0].title for found in rules)
    reasons = dict.fromkeys(rule.reason for found in rules for rule in found)
    clauses = dict.fromkeys(c for found in rules for r in found for c in r.clause.split(", "))
    return Why("; ".join(titles), "; ".join(reasons), ", ".join(clauses))


def _summary(hunk: EditHunk) -> str:
    kinds = {edit.kind for edit in hunk.edits}
    verb = kinds.pop().value if len(kinds) == 1 else "change"
    return f"{verb} in {hunk.function}"
