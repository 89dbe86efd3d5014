"""How extra inputs reach the elements: their class decides where they are loaded.

A value per head is loaded once per block of rows, a value per query row once as a row vector, a
value per key once per tile as a column vector, and one per pair as the tile of the score's layout.
What fits none of these is read element by element. What the output's elements or the rows' sums
need is loaded after the last key tile.

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
    free_names,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import Block, map_blocks, map_expr, map_function
from engine.cuir.static.facts import statements
from engine.cuir.text.quote import expr
from engine.transfer.match import Attention
from engine.transfer.rules.base.hoist import Labels, hoist
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import is_element_op

ROW, KEY, COLUMN = "i", "j", "d"
HELD = 4  # bytes for a pair of query and key that registers hold beside the accumulators
OF_OUTPUT = 2  # bytes of an output's element that they hold behind the loop over keys


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
    layout = _accumulator_layout(module, found)
    roomy = not any(map(starts_matmul, statements(module.function(found.kernel))))
    of_output = frozenset(n for n, size in sizes.items() if roomy or size == OF_OUTPUT)

    def edit(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            place = _place(stmt, names, found, layout, of_output)
            if place is not None:
                staged = _staged_loads(stmt, names, place, labels)
                stmt = _with_operands(stmt, staged, place)
                if place.last:
                    out += [s.statement for s in staged if s.statement not in out]
                    staged = []
                out += [s.statement for s in staged if s.kind == "keys"]
                tiles = [s for s in staged if s.kind == "tile"]
                held = sum(sizes[s.base] for s in tiles) <= HELD and any(map(starts_matmul, out))
                for item in tiles:
                    out.insert(_known(item, out) if held else len(out), item.statement)
                hoisted.update({s.name: s for s in staged if s.kind in ("head", "rows")})
            out.append(stmt)
        return tuple(out) if len(out) != len(stmts) or out != list(stmts) else stmts

    module = map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))
    for item in hoisted.values():
        module = hoist(module, found.kernel, item.statement)
    return module


@dataclass(frozen=True, slots=True)
class Place:
    """Where elements of an operation stand: in an accumulator's layout from `origin` on, or in a
    row vector's. `last` says that the loop over keys is over, so that what is loaded for it is
    loaded there: before, it would be held in registers all through the loop. `tiles` are the
    tensors of which a tile fits into registers beside the accumulator; None is all of them."""

    layout: Expr | None
    origin: tuple[Expr, ...]
    column: str
    last: bool
    tiles: frozenset[str] | None = None


def _place(
    stmt: Stmt, names: set[Name], found: Attention, accumulator: Expr | None, tiles: frozenset[str]
) -> Place | None:
    """The place of an operation on elements that may read inputs; `tiles` is an output's."""
    if is_element_op(stmt, found):
        return Place(found.score_layout, _origin(stmt), KEY, False)
    match stmt:
        case Assign(target, Call("map", (Name(first), *_)) as call) if any(
            isinstance(e, Index) and e.base in names for e in walk_expr(call)
        ):
            own = target == first == found.accumulator
            layout = accumulator if own else found.score_layout
            return Place(layout, _origin(stmt), COLUMN, True, tiles)
    return None


def _origin(stmt: Stmt) -> tuple[Expr, ...]:
    assert isinstance(stmt, Assign) and isinstance(stmt.value, Call)
    at = dict(stmt.value.kwargs).get("at")
    return at.items if isinstance(at, Tuple) else ()


def _accumulator_layout(module: Module, found: Attention) -> Expr | None:
    for stmt in statements(module.function(found.kernel)):
        match stmt:
            case Assign(target, Call("zeros", (layout,))) if target == found.accumulator:
                return layout
    return None


def _staged_loads(stmt: Stmt, names: set[Name], place: Place, labels: Labels) -> list[Staged]:
    assert isinstance(stmt, Assign) and isinstance(stmt.value, Call)
    loads = dict.fromkeys(
        n for n in walk_expr(stmt.value) if isinstance(n, Index) and n.base in names
    )
    return [s for load in loads if (s := _staged(load, place, labels)) is not None]


def _staged(load: Index, place: Place, labels: Labels) -> Staged | None:
    """Where a load belongs, or None when it is read element by element."""
    assert isinstance(load.base, Name)
    own = [free_names(e) & {ROW, place.column} for e in load.index]
    origin = place.origin
    reads = frozenset[str]().union(*own)
    name = load.base.id
    if not reads:
        target = labels.of(load, f"{name}_{_suffix(load)}")
        return Staged(load, target, "head", Assign(target, load))
    layout = place.layout
    if layout is None or not origin:
        return None
    if load.index[-2:] == (Name(ROW), Name(place.column)) and not any(own[:-2]):
        if place.tiles is not None and name not in place.tiles:
            return None
        tile = expr(
            "base[*lead, row:]", base=load.base, lead=load.index[:-2], row=origin[0]
        )  # fmt: skip
        value = (
            expr("load_output[layout](tile)", layout=layout, tile=tile) if place.last
            else expr("load_tile[layout](tile, key)", layout=layout, tile=tile, key=origin[1])
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
    target = labels.of(value, f"{name}_{kind if rows or place.column == KEY else 'columns'}")
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


def _with_operands(stmt: Stmt, staged: list[Staged], place: Place) -> Stmt:
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
    places = {ROW, place.column}
    coordinates = tuple(p for p in params if p in places)
    elements = tuple(p for p in params if p not in places)
    if op == "map" and not places & free_names(body):
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
