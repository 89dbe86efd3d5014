"""How extra inputs reach the elements: their class decides where they are loaded.

A value per head is loaded once per block of rows, a value per query row once as a row vector, a
value per key once per tile as a column vector; a dense tile is read element by element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Path,
    Slice,
    Stmt,
    walk_expr,
)
from engine.spec.recipe import Input
from engine.transfer.match import Attention, Site, block_at, find_attention
from engine.transfer.rewrite import Block, free_names, map_expr, map_stmt_exprs
from engine.transfer.rules.sites import put_block

ROW, KEY = "i", "j"


@dataclass(frozen=True, slots=True)
class Staged:
    """One load and where its value comes from: `name` holds it, `statement` makes it."""

    load: Index
    name: str
    kind: str  # head, rows, keys
    statement: Assign


def stage_inputs(module: Module, found: Attention, tensors: tuple[Input, ...]) -> Module:
    """Every load of an extra input moved to the place that its class gives it."""
    names = {t.name for t in tensors}
    for number in range(len(found.sites)):
        site = find_attention(module).sites[number]
        body = block_at(module, site.block)
        loads = tuple(dict.fromkeys(_loads(body, site, names)))
        staged = [s for load in loads if (s := _staged(load, site, found)) is not None]
        if not staged:
            continue
        module = put_block(module, site.block, _use(body, site, staged))
        for item in staged:
            if item.kind != "keys":
                module = _hoist(module, found.kernel, number, item)
    return module


def _element_ops(body: Block, site: Site) -> Iterator[tuple[int, Stmt]]:
    """The statements of the site that work on the score's elements."""
    for position, stmt in enumerate(body):
        if position == site.mask and isinstance(stmt, If):
            for inner in stmt.then:
                yield position, inner
        elif isinstance(stmt, Assign) and stmt.target == site.score:
            yield position, stmt


def _loads(body: Block, site: Site, names: set[str]) -> Iterator[Index]:
    for _, stmt in _element_ops(body, site):
        if isinstance(stmt, Assign):
            for node in walk_expr(stmt.value):
                if isinstance(node, Index) and node.base in {Name(n) for n in names}:
                    yield node


def _staged(load: Index, site: Site, found: Attention) -> Staged | None:
    """Where a load belongs, or None when it is read element by element."""
    assert isinstance(load.base, Name)
    own = [free_names(e) & {ROW, KEY} for e in load.index]
    reads = frozenset[str]().union(*own)
    name = load.base.id
    if not reads:
        target = f"{name}_{_suffix(load, found)}"
        return Staged(load, target, "head", Assign(target, load))
    layout = found.score_layout
    if layout is None or len(reads) > 1 or any(own[:-1]):
        return None
    variable = Name(next(iter(reads)))
    if load.index[-1] != variable:
        return None
    rows = variable.id == ROW
    start = site.rows if rows else site.keys
    tile = Index(load.base, (*load.index[:-1], Slice(start)))
    op = "load_rows" if rows else "load_cols"
    target = f"{name}_{'rows' if rows else 'keys'}"
    return Staged(
        load, target, "rows" if rows else "keys", Assign(target, Call(op, (tile,), (), (layout,)))
    )


def _suffix(load: Index, found: Attention) -> str:
    names = [e.id for e in load.index if isinstance(e, Name)]
    return names[-1] if names else "0"


def _use(body: Block, site: Site, staged: list[Staged]) -> Block:
    """The site's block with the loads replaced, and column vectors loaded where they are used."""
    heads: dict[Expr, Expr] = {s.load: Name(s.name) for s in staged if s.kind == "head"}
    vectors = [s for s in staged if s.kind != "head"]
    out: list[Stmt] = []
    for position, stmt in enumerate(body):
        if position == site.mask and isinstance(stmt, If):
            inner: list[Stmt] = []
            for one in stmt.then:
                done, used = _with_vectors(one, heads, vectors)
                inner += [*(s.statement for s in used if s.kind == "keys"), done]
            out.append(If(stmt.cond, tuple(inner), stmt.other))
        elif isinstance(stmt, Assign) and stmt.target == site.score:
            done, used = _with_vectors(stmt, heads, vectors)
            out += [*(s.statement for s in used if s.kind == "keys"), done]
        else:
            out.append(stmt)
    return tuple(out)


def _with_vectors(
    stmt: Stmt, heads: dict[Expr, Expr], vectors: list[Staged]
) -> tuple[Stmt, list[Staged]]:
    """A map or keep whose loads come as operands; and the vectors that it uses."""
    stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, lambda node: heads.get(node)))
    match stmt:
        case Assign(
            target, Call(("map" | "keep") as op, (*tiles, Lambda(params, body)), kwargs, consts)
        ):
            pass
        case _:
            return stmt, []
    used = [s for s in vectors if _contains(body, s.load)]
    if not used:
        return stmt, []
    vector: dict[Expr, Expr] = {s.load: Name(s.name) for s in used}
    body = map_expr(body, lambda node: vector.get(node))
    coordinates = tuple(p for p in params if p in (ROW, KEY))
    values = tuple(p for p in params if p not in (ROW, KEY))
    if op == "map" and not {ROW, KEY} & free_names(body):
        coordinates, kwargs = (), tuple(k for k in kwargs if k[0] != "at")
    lambda_ = Lambda((*values, *(s.name for s in used), *coordinates), body)
    operands = (*tiles, *(Name(s.name) for s in used), lambda_)
    return Assign(target, Call(op, operands, kwargs, consts)), used


def _contains(expr: Expr, part: Expr) -> bool:
    return any(node == part for node in walk_expr(expr))


def _hoist(module: Module, kernel: str, number: int, item: Staged) -> Module:
    """Put a value's statement after the last definition that it needs, on the way to its site."""
    site = find_attention(module).sites[number]
    needs = free_names(item.statement.value)
    best: tuple[Path, int] | None = None
    for block in _ancestors(site.block):
        body = block_at(module, block)
        if any(isinstance(s, Assign) and s.target == item.name for s in body):
            return module  # another site has put it there
        for position, stmt in enumerate(body[: _limit(site.block, block)]):
            if isinstance(stmt, Assign) and stmt.target in needs:
                best = (block, position + 1)
    block, position = best if best is not None else ((kernel,), 0)
    body = block_at(module, block)
    return put_block(module, block, (*body[:position], item.statement, *body[position:]))


def _ancestors(block: Path) -> Iterator[Path]:
    """The statement lists from the function's body down to `block`."""
    yield block[:1]
    for end in range(3, len(block) + 1, 2):
        yield block[:end]


def _limit(site: Path, block: Path) -> int:
    """How far the list `block` runs before the site."""
    step = site[len(block)] if len(site) > len(block) else 1 << 30
    assert isinstance(step, int)
    return step
