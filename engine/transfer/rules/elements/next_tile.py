"""The next dense tile on its way while this one is worked on.

A dense tile whose loads start before its score's matmul has that matmul alone to arrive under,
and memory takes longer. Once this tile is added its registers are free again: when the weights are
summed the next tile's loads start, and pass under both matmuls.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Assign, Call, Expr, For, Module, Num, Stmt, free_names
from engine.cuir.rewrite import Block, map_blocks, map_function, substitute
from engine.cuir.text.quote import expr, stmt
from engine.transfer.match import Attention
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.elements.dense_tiles import held_alone
from engine.transfer.rules.elements.stage import starts_matmul


def load_next(module: Module, found: Attention, sizes: dict[str, int], plain: bool) -> Module:
    """A tile that is held alone is loaded one step ahead: the first before the loop, each other one
    when the weights of the tile before are summed.

    Operands as of `narrow_tiles`. The module stays as it is where masks leave tiles out (the first
    step may then have none), where matmuls are waited for at once, and in loops of another form.
    """
    if not (plain and held_alone(module, found, sizes)):
        return module

    def edit(stmts: Block) -> Block:
        out: list[Stmt] = []
        for one in stmts:
            moved = _ahead(one, found) if isinstance(one, For) else None
            out += moved if moved is not None else (one,)
        return tuple(out)

    return map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))


def _ahead(loop: For, found: Attention) -> tuple[Stmt, ...] | None:
    """The first load and the loop that starts each next one; None where there is none to move."""
    body = loop.body
    tile = next((s for s in body if _calls(s, found.schedule.index)), None)
    loads = [n for n, s in enumerate(body) if _calls(s, "load_tile")]
    matmul = next((n for n, s in enumerate(body) if starts_matmul(s)), None)
    ends = [n + 1 for n, s in enumerate(body) if _calls(s, "row_sum")]
    if tile is None or matmul is None or len(loads) != 1 or not ends or loop.step != Num(1):
        return None
    (at,), end = loads, ends[-1]
    load = body[at]
    assert isinstance(tile, Assign) and isinstance(load, Assign)
    local = {s.target for s in body if isinstance(s, Assign)} - {tile.target}
    if not at < matmul < end or free_names(load.value) & (local | {loop.var}):
        return None

    def of(step: Expr) -> Assign:
        place = substitute(tile.value, {loop.var: step})
        return replace(load, value=substitute(load.value, {tile.target: place}))

    following = expr("step + 1", step=loop.var)
    start = stmt("if step + 1 < stop: *load", step=loop.var, stop=loop.stop, load=of(following))
    kept = (*body[:at], *body[at + 1 : end], start, *body[end:])
    return of(loop.start), replace(loop, body=kept)


def _calls(stmt: Stmt, fn: str) -> bool:
    match stmt:
        case Assign(_, Call(name)):
            return name == fn
    return False


RULE = Rule(
    "next_tile",
    "Load the next dense tile while this one is worked on",
    "memory takes longer than the score's matmul: the next loads start when "
    "the weights are summed, and pass under both matmuls",
    "input",
    applies=lambda case: bool(case.words.tensors),
    edit=lambda module, case: load_next(module, case.found, case.bytes, case.plain),
    after=("built_tiles",),
)
