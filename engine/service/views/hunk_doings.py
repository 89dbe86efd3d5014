"""What a hunk does to a module, in words, from its edits alone; and what its new ops are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby, islice, takewhile
from operator import itemgetter

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
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    Stmt,
    Unary,
    children,
    free_names,
    rebuild,
    stmt_call,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.traits import MATMULS, TILE_LOADS
from engine.cuir.printer import cut, print_expr
from engine.errors import CuBridgeError
from engine.service.views.rule_names import meaning
from engine.transfer.match import find_attention

MOST = 3  # edits that are told one by one
_KINDS = {"kernel": "kernel", "device": "device function", "host": "launcher"}
_VERBS = {EditKind.INSERT: "adds", EditKind.DELETE: "removes", EditKind.MOVE: "moves"}


class Doings:
    """Words for the hunks between two modules."""

    def __init__(self, base: Module, proposed: Module) -> None:
        self._known = {(p[0], s.target) for p, s in walk(base) if isinstance(s, Assign)}
        self._told_ops = {name for _, s in walk(base) for name in _ops_of(s)}
        self._device = {f.name for f in base.functions if f.kind == "device"}
        self._roles, self._values, count = _roles(base)
        self._old, self._new = _Places(base, count), _Places(proposed, count)

    def of(self, hunk: EditHunk, named: bool) -> tuple[str, ...]:
        """What the hunk does, then a line for each op that neither the base nor a hunk asked for
        before has. `named`: its names are those of rules."""
        edits = [e for e in hunk.edits if e.kind is not EditKind.MOVE] or hunk.edits
        found = list(dict.fromkeys(self._edit(e, named) for e in edits))
        told = [_at_once(group) for _, group in groupby(found[:MOST], key=itemgetter(1))]
        if len(found) > MOST:
            told.append(f"{len(found) - MOST} more")
        added = dict.fromkeys(op for e in hunk.edits for op in _ops_of(e.new))
        new = [op for op in added if op not in self._told_ops][:MOST]
        self._told_ops.update(new)
        docs = {op: OPS[op].doc.split(". ")[0].rstrip(".") for op in new}
        return ("; ".join(told), *(f"{op}: {words}" for op, words in docs.items()))

    def _edit(self, edit: Edit, named: bool) -> tuple[str, str]:
        """What an edit does, and where."""
        node, path = edit.new if edit.new is not None else edit.old, edit.path
        verb = _VERBS.get(edit.kind, "changes")
        match node:
            case Field(name, kind):
                return f"{verb} the argument {name} ({kind}){_says(name, named)}", ""
            case Function():
                return self._function(verb, edit, node, named), ""
            case None | tuple():
                return f"{verb} what the module is specialised for", ""
            case _ if path[0] in self._device:
                return f"changes {_with_role(str(path[0]), self._roles)}", ""
            case _:
                places = self._old if edit.new_path is None else self._new
                return self._statement(verb, edit, node, named), places.words(path)

    def _function(self, verb: str, edit: Edit, node: Function, named: bool) -> str:
        was = edit.old.params if isinstance(edit.old, Function) else ()
        known = {p.name: p.type for p in was}
        told = []
        for p in node.params if edit.kind is EditKind.CHANGE else ():
            if p.name not in known:
                told.append(f"gives {_with_role(node.name, self._roles)} the parameter {p.name}")
            elif p.type != known[p.name]:
                told.append(f"makes {node.name}'s parameter {p.name} a {p.type}, which was a "
                            f"{known[p.name]}")  # fmt: skip
        kind = _KINDS[node.kind]
        return "; ".join(told) or f"{verb} the {kind} {node.name}{_says(node.name, named)}"

    def _statement(self, verb: str, edit: Edit, node: Stmt, named: bool) -> str:
        """Words that the place follows."""
        changed = edit.kind is EditKind.CHANGE
        match node:
            case Assign(target, value):
                name = _with_role(target, self._values)
                if edit.kind is EditKind.INSERT and (edit.path[0], target) in self._known:
                    return f"adds a step to {name}, {_short(value)},"
                if changed:
                    was = edit.old.value if isinstance(edit.old, Assign) else value
                    return f"changes {name}{_difference(was, value)}"
                if (seen := _viewed(value)) is not None:
                    return f"{verb} {name}, a view of {_short(seen)},"
                says, text = _meant("", target, named), print_expr(value)
                short = edit.kind is EditKind.INSERT and (cut(text) == text or not says)
                return f"{verb} {name}{f' = {cut(text)}' if short else ''}{says},"
            case Do(call):
                first = _first_name(call)
                filled = edit.old.call.fn if isinstance(edit.old, Do) else call.fn
                if filled != call.fn:
                    return f"fills {first} by {call.fn} instead of {filled}"
                return f"{verb} {_short(call)}{_meant(f'{first}: ', first, named)},"
            case For(var, start, stop, step, body):
                if edit.kind is EditKind.INSERT and (does := _calls(body)):
                    return f"adds a loop that does {does},"
                steps = ", ".join(_short(e) for e in (start, stop, step))
                return f"{verb} the loop over {var}: range({steps}),"
            case If():
                return f"{verb} {_branch(node, told=edit.kind is EditKind.INSERT)}"
            case _:
                return f"{verb} a statement"


class _Places:
    """Where a statement stands: beside the loop over key tiles, which goes as far as the schedule's
    count says, and for which of the kernel's warps."""

    def __init__(self, module: Module, count: str) -> None:
        counted: set[tuple[object, str]] = set()
        for p, s in walk(module):
            if isinstance(s, Assign) and self._tells(p, s.value, count, counted):
                counted.add((p[0], s.target))
        self._stmts = dict(walk(module))
        self._order = {path: n for n, (path, _) in enumerate(walk(module))}
        self._loops = [
            p
            for p, s in walk(module)
            if isinstance(s, For) and self._tells(p, s.stop, count, counted)
        ]

    @staticmethod
    def _tells(path: Path, expr: Expr, count: str, counted: Set[tuple[object, str]]) -> bool:
        """Whether a number follows from how many tiles there are."""
        asked = any(isinstance(e, Call) and e.fn == count for e in walk_expr(expr))
        return asked or any((path[0], name) in counted for name in free_names(expr))

    def words(self, path: Path) -> str:
        """`before flash_fwd's loop over key tiles where wg == 0`."""
        function = path[0]
        mine = [loop for loop in self._loops if loop[0] == function]
        where = f"in {function}"
        if any(len(path) > len(loop) and path[: len(loop)] == loop for loop in mine):
            where = f"in {function}'s loop over key tiles"
        elif mine and path in self._order:
            near = max(mine, key=lambda loop: _shared(path, loop))
            side = "before" if self._order[path] < self._order[near] else "after"
            where = f"{side} {function}'s loop over key tiles"
        return where + self._warps(path)

    def _warps(self, path: Path) -> str:
        """Which of the kernel's warps, by the first branch outside all loops, and what they do."""
        for n in range(1, len(path)):
            match self._stmts.get(path[:n]), path[n]:
                case For(), _:
                    return ""
                case If(cond) as branch, way:
                    mine = branch.then if way == "then" else branch.other
                    ops = {op for _, stmt in walk_block(mine, ()) for op in _ops_of(stmt)}
                    role = " (the warps that compute)" if ops & MATMULS else ""
                    role = role or (" (the warps that load)" if ops & TILE_LOADS else "")
                    return f" where {print_expr(cond if way == 'then' else _contrary(cond))}{role}"
        return ""


def _at_once(edits: Iterable[tuple[str, str]]) -> str:
    """What edits of one place do: the place stands once."""
    words, where = zip(*edits, strict=True)
    *before, last = words
    told = "; ".join([*(w.removesuffix(",") for w in before), last])
    return f"{told} {where[0]}".strip()


def _calls(body: Iterable[Stmt]) -> str:
    """The first calls of a block that are of a name, each with it."""
    calls = (stmt_call(s) for _, s in walk_block(tuple(body), ()))
    told = (f"{c.fn} of {name}" for c in calls if c is not None and (name := _first_name(c)))
    return ", ".join(islice(dict.fromkeys(told), MOST))


def _branch(stmt: If, told: bool) -> str:
    """`a branch on not full that has a branch on slot >= 0 that does keep_bits of s, else keep of
    s,`; without what it does where that is not `told`."""
    words = f"a branch on {_short(stmt.cond)}"
    match stmt.then:
        case _ if not told:
            return words
        case (If() as inner,):
            return f"{words} that has {_branch(inner, told)}"
    does, other = _calls(stmt.then), _calls(stmt.other)
    return words + (f" that does {does}{f', else {other}' if other else ''}," if does else "")


def _viewed(value: Expr) -> Expr | None:
    """The tensor that a value is a view of."""
    op = OPS.get(value.fn) if isinstance(value, Call) and value.args else None
    kind = "" if op is None or op.spelling is None else op.spelling.kind
    return value.args[0] if isinstance(value, Call) and kind.startswith("view") else None


def _contrary(cond: Expr) -> Expr:
    match cond:
        case Compare(op, left, right):
            return Compare(CONTRARY[op], left, right)
        case _:
            return Unary("not", cond)


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many first items both have, such as the blocks that hold two statements."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _says(name: str, named: bool) -> str:
    """`: what the name means`, where a rule gave it."""
    words = meaning(name) if named else ""
    return f": {words}" if words else ""


def _meant(begin: str, name: str, named: bool) -> str:
    """` (name: what it means)`, where a rule gave it."""
    words = meaning(name) if named else ""
    return f" ({begin}{words})" if words else ""


def _short(expr: Expr) -> str:
    return cut(print_expr(expr))


def _difference(was: Expr, now: Expr) -> str:
    """`: m becomes m_ok`, the smallest part in which alone they differ."""
    was, now = _apart(was, now)
    if isinstance(was, Call) and isinstance(now, Call) and was == replace(now, fn=was.fn):
        return f": {was.fn} becomes {now.fn},"
    old, new = print_expr(was), print_expr(now)
    if new.startswith(f"{old} "):
        return f": adds `{cut(new[len(old) + 1 :])}` to {cut(old)},"
    return f": {cut(old)} becomes {cut(new)},"


def _apart(was: Expr, now: Expr) -> tuple[Expr, Expr]:
    """The smallest parts of two expressions in which alone they differ; of what is asked of each
    element, what it is asked, whatever it is given for it."""
    match was, now:
        case Lambda(body=one), Lambda(body=other):
            return _apart(one, other)
        case Call(fn=one, args=(*_, Lambda() as old)), Call(fn=other, args=(*_, Lambda() as new)):
            if one == other and old.body != new.body:
                return _apart(old, new)
    if children(was) and rebuild(was, _nothing) == rebuild(now, _nothing):
        pairs = [p for p in zip(children(was), children(now), strict=True) if p[0] != p[1]]
        if len(pairs) == 1:
            return _apart(*pairs[0])
    return was, now


def _nothing(_expr: Expr) -> Expr:
    return Num(0)


def _first_name(call: Call) -> str:
    """The name that a call's first argument is of, empty where it is none."""
    found = call.args[0] if call.args else None
    while isinstance(found, Index):
        found = found.base
    return found.id if isinstance(found, Name) else ""


def _with_role(name: str, roles: Mapping[str, str]) -> str:
    return f"{name} ({roles[name]})" if name in roles else name


def _roles(base: Module) -> tuple[Mapping[str, str], Mapping[str, str], str]:
    """What the functions of the tile schedule are asked for, what names of the kernel hold, and the
    function that counts key tiles."""
    try:
        found = find_attention(base)
    except CuBridgeError:
        return {}, {}, ""
    schedule = found.schedule
    functions = {
        schedule.count: "how many key tiles a block of rows visits",
        schedule.index: "which key tile is visited at a step",
        schedule.full: "whether a tile needs no mask",
    }
    for name in (schedule.lead, schedule.tail):
        if name is not None:
            functions[name] = "how many tiles a part of the block's rows skips"
    values = {site.row_max_name: "the row maxima" for site in found.sites}
    values |= {site.score: "the tile's scores" for site in found.sites}
    values[found.accumulator] = "the output so far"
    return functions, values, schedule.count


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
