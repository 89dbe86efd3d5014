"""How extra inputs reach the elements: their class decides where they are loaded.

A value per head is loaded once per block of rows, a value per query row once as a row vector, a
value per key once per tile as a column vector, and one per pair as the tile of the score's layout.
What fits none of these is read element by element.

Beside asynchronous matmuls the loads of a tile start before the score's matmul is waited for, where
its elements are small enough to be held, and key tiles are as narrow as that takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Stmt,
    Tuple,
    walk_expr,
)
from engine.cuir.quote import expr
from engine.transfer.match import Attention
from engine.transfer.rewrite import (
    Block,
    free_names,
    map_blocks,
    map_expr,
    map_function,
    map_stmt_exprs,
)
from engine.transfer.rules.hoist import Labels, hoist
from engine.transfer.rules.rule import Rule
from engine.transfer.rules.sites import is_element_op

ROW, KEY = "i", "j"
HELD = 4  # bytes for a pair of query and key that registers hold beside the accumulators


@dataclass(frozen=True, slots=True)
class Staged:
    """One load and where its value comes from: `name` holds it, `statement` makes it."""

    load: Index
    name: str
    kind: str  # head, rows, keys, tile
    statement: Assign

    @property
    def base(self) -> str:
        """The tensor's name."""
        assert isinstance(self.load.base, Name)
        return self.load.base.id


def stage_inputs(module: Module, found: Attention, bytes: Mapping[str, int]) -> Module:
    """Every load of a tensor in `bytes` moved to the place that its class gives it."""
    names = {Name(name) for name in bytes}
    sizes = {name: size or HELD + 1 for name, size in bytes.items()}
    hoisted: dict[str, Staged] = {}
    labels = Labels(module.function(found.kernel))

    def edit(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            if is_element_op(stmt, found):
                staged = _staged_loads(stmt, names, found, labels)
                stmt = _with_operands(stmt, staged)
                out += [s.statement for s in staged if s.kind == "keys"]
                tiles = [s for s in staged if s.kind == "tile"]
                held = sum(sizes[s.base] for s in tiles) <= HELD and any(map(starts_matmul, out))
                for item in tiles:
                    place = _known(item, out) if held else len(out)
                    out.insert(place, item.statement)
                hoisted.update({s.name: s for s in staged if s.kind in ("head", "rows")})
            out.append(stmt)
        return tuple(out) if len(out) != len(stmts) or out != list(stmts) else stmts

    module = map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))
    for item in hoisted.values():
        module = hoist(module, found.kernel, item.statement)
    return module


def _staged_loads(stmt: Stmt, names: set[Name], found: Attention, labels: Labels) -> list[Staged]:
    assert isinstance(stmt, Assign) and isinstance(stmt.value, Call)
    at = dict(stmt.value.kwargs).get("at")
    origin = at.items if isinstance(at, Tuple) else ()
    loads = dict.fromkeys(
        n for n in walk_expr(stmt.value) if isinstance(n, Index) and n.base in names
    )
    return [s for load in loads if (s := _staged(load, origin, found, labels)) is not None]


def _staged(
    load: Index, origin: tuple[Expr, ...], found: Attention, labels: Labels
) -> Staged | None:
    """Where a load belongs, or None when it is read element by element."""
    assert isinstance(load.base, Name)
    own = [free_names(e) & {ROW, KEY} for e in load.index]
    reads = frozenset[str]().union(*own)
    name = load.base.id
    if not reads:
        target = labels.of(load, f"{name}_{_suffix(load)}")
        return Staged(load, target, "head", Assign(target, load))
    layout = found.score_layout
    if layout is None or len(origin) != 2:
        return None
    if load.index[-2:] == (Name(ROW), Name(KEY)) and not any(own[:-2]):
        value = expr(
            "load_tile[layout](base[*lead, row:], key)",
            layout=layout, base=load.base, lead=load.index[:-2], row=origin[0], key=origin[1],
        )  # fmt: skip
        target = labels.of(value, f"{name}_tile")
        return Staged(load, target, "tile", Assign(target, value))
    if len(reads) > 1 or any(own[:-1]):
        return None
    variable = Name(next(iter(reads)))
    if load.index[-1] != variable:
        return None
    rows = variable.id == ROW
    kind, first = ("rows", origin[0]) if rows else ("keys", origin[1])
    value = expr(
        f"load_{'rows' if rows else 'cols'}[layout](base[*lead, first:])",
        layout=layout, base=load.base, lead=load.index[:-1], first=first,
    )  # fmt: skip
    target = labels.of(value, f"{name}_{kind}")
    return Staged(load, target, kind, Assign(target, value))


def _known(item: Staged, before: list[Stmt]) -> int:
    """The place among the statements from which on all is known that the load needs."""
    needs = free_names(item.statement.value)
    known = [n for n, s in enumerate(before) if isinstance(s, Assign) and s.target in needs]
    return max(known, default=-1) + 1


def starts_matmul(stmt: Stmt) -> bool:
    """True for an asynchronous matmul."""
    return isinstance(stmt, Do) and stmt.call.fn.startswith("gemm_async")


def _suffix(load: Index) -> str:
    names = [e.id for e in load.index if isinstance(e, Name)]
    return names[-1] if names else "0"


def _with_operands(stmt: Stmt, staged: list[Staged]) -> Stmt:
    """A map or keep whose loads come as names and operands."""
    values: dict[Expr, Expr] = {s.load: Name(s.name) for s in staged}
    vectors = [s for s in staged if s.kind != "head"]
    stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, lambda node: values.get(node)))
    match stmt:
        case Assign(
            target, Call(("map" | "keep") as op, (*tiles, Lambda(params, body)), kwargs, consts)
        ) if vectors:
            pass
        case _:
            return stmt
    coordinates = tuple(p for p in params if p in (ROW, KEY))
    elements = tuple(p for p in params if p not in (ROW, KEY))
    if op == "map" and not {ROW, KEY} & free_names(body):
        coordinates, kwargs = (), tuple(k for k in kwargs if k[0] != "at")
    lambda_ = Lambda((*elements, *(s.name for s in vectors), *coordinates), body)
    operands = (*tiles, *(Name(s.name) for s in vectors), lambda_)
    return Assign(target, Call(op, operands, kwargs, consts))


RULE = Rule(
    "stage",
    "Load each input where its class belongs",
    "values per head are loaded once, per row as a row vector, per key once a tile",
    "input",
    applies=lambda case: bool(case.words.tensors),
    edit=lambda module, case: stage_inputs(module, case.found, case.bytes),
    after=("offset",),
)
