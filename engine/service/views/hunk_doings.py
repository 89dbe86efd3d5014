"""What a hunk does to a module, in words, from its edits alone; and what its new ops are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.cuir.changes.edits import Edit, EditHunk, EditKind, Node
from engine.cuir.nodes import (
    CONTRARY,
    Assign,
    Call,
    Compare,
    Do,
    Expr,
    Field,
    For,
    Function,
    If,
    Module,
    Path,
    Stmt,
    Unary,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.printer import print_expr
from engine.errors import CuBridgeError
from engine.transfer.match import find_attention

MOST = 3  # edits that are told one by one
_KINDS = {"kernel": "kernel", "device": "device function", "host": "launcher"}
_VERBS = {EditKind.INSERT: "adds", EditKind.DELETE: "removes", EditKind.MOVE: "moves"}


class Doings:
    """Words for the hunks between two modules."""

    def __init__(self, base: Module, proposed: Module) -> None:
        self._old, self._new = dict(walk(base)), dict(walk(proposed))
        self._known = {(p[0], s.target) for p, s in walk(base) if isinstance(s, Assign)}
        self._old_ops = {name for _, s in walk(base) for name in _ops_of(s)}
        self._device = {f.name for f in base.functions if f.kind == "device"}
        self._roles, self._values = _roles(base)

    def of(self, hunk: EditHunk) -> tuple[str, ...]:
        """What the hunk does, then a line for each op that the base has nowhere."""
        told = list(dict.fromkeys(self._edit(e) for e in hunk.edits))
        if len(told) > MOST:
            told = [*told[:MOST], f"{len(told) - MOST} more"]
        added = dict.fromkeys(op for e in hunk.edits for op in _ops_of(e.new))
        new = [op for op in added if op not in self._old_ops]
        docs = {op: OPS[op].doc.split(". ")[0].rstrip(".") for op in new[:MOST]}
        return ("; ".join(told), *(f"{op}: {words}" for op, words in docs.items()))

    def _edit(self, edit: Edit) -> str:
        node, path = edit.new if edit.new is not None else edit.old, edit.path
        verb = _VERBS.get(edit.kind, "changes")
        match node:
            case Field(name, kind):
                return f"{verb} the argument {name}: {kind}"
            case Function(kind, name, params):
                was = edit.old.params if isinstance(edit.old, Function) else ()
                more = ", ".join(p.name for p in params if p not in was)
                if edit.kind is EditKind.CHANGE and more:
                    return f"gives {_with_role(name, self._roles)} the parameter {more}"
                return f"{verb} the {_KINDS[kind]} {name}"
            case None | tuple():
                return f"{verb} what the module is specialised for"
            case _ if path[0] in self._device:
                return f"changes {_with_role(str(path[0]), self._roles)}"
            case _:
                return self._statement(verb, edit, node, path)

    def _where(self, path: Path, stmts: Mapping[Path, Stmt]) -> str:
        """The kernel, whether in a loop of it, and which of its warps, by the first branch."""
        around = [(stmts.get(path[:n]), path[n]) for n in range(1, len(path))]
        loops = [n for n, (stmt, _) in enumerate(around) if isinstance(stmt, For)]
        warps = ""
        for stmt, way in around[: loops[0] if loops else None]:
            if isinstance(stmt, If) and not warps:
                warps = f" where {print_expr(stmt.cond if way == 'then' else _contrary(stmt.cond))}"
        loop = "'s loop" if loops else ""
        return f"in {path[0]}{loop}{warps}"

    def _statement(self, verb: str, edit: Edit, node: Stmt, path: Path) -> str:
        where = self._where(path, self._old if edit.new_path is None else self._new)
        match node:
            case Assign(target):
                name = _with_role(target, self._values)
                if edit.kind is EditKind.INSERT and (path[0], target) in self._known:
                    return f"computes {name} again {where}"
                how = "how " if edit.kind is EditKind.CHANGE else ""
                return f"{verb} {how}{name}{' is computed' if how else ''} {where}"
            case Do(call):
                was = edit.old.call.fn if isinstance(edit.old, Do) else call.fn
                return f"{verb} {was}{f' to {call.fn}' if was != call.fn else ''} {where}"
            case For(var):
                return f"{verb} the loop over {var} {where}"
            case If():
                return f"{verb} a branch {where}"
            case _:
                return f"{verb} a statement {where}"


def _contrary(cond: Expr) -> Expr:
    match cond:
        case Compare(op, left, right):
            return Compare(CONTRARY[op], left, right)
        case _:
            return Unary("not", cond)


def _with_role(name: str, roles: Mapping[str, str]) -> str:
    return f"{name} ({roles[name]})" if name in roles else name


def _roles(base: Module) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What the functions of the tile schedule are asked for, and what names of the kernel hold."""
    try:
        found = find_attention(base)
    except CuBridgeError:
        return {}, {}
    schedule = found.schedule
    functions = {
        schedule.count: "how many key tiles a block of rows visits",
        schedule.index: "which key tile is visited at a step",
        schedule.full: "whether a tile needs no mask",
    }
    for name in (schedule.lead, schedule.tail):
        if name is not None:
            functions[name] = "how many tiles a part of the block's rows passes over"
    values = {site.row_max_name: "the row maxima" for site in found.sites}
    values |= {site.score: "the tile's scores" for site in found.sites}
    return functions, {**values, found.accumulator: "the output so far"}


def _ops_of(node: Node | None) -> Iterator[str]:
    match node:
        case None | Field() | tuple():
            return
        case Function():
            statements = walk_block(node.body, ())
        case _:
            statements = walk_block((node,), ())
    for _, stmt in statements:
        for expr in stmt_exprs(stmt):
            yield from (p.fn for p in walk_expr(expr) if isinstance(p, Call) and p.fn in OPS)
