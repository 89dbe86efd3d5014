"""Masks of partial tiles from the bits that the third list kernel made."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Assign, Attr, Binary, Call, Expr, If, Module, Name, Stmt, Tuple, Unary
from engine.cuir.rewrite import Block, map_blocks, map_function
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import block, expr, matched
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import names_in
from engine.transfer.rules.base.list_layout import ARGS, Lists, bits_at, with_view
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.elements.stage import starts_matmul


def mask_by_bits(module: Module, found: Attention, lists: Lists) -> Module:
    """Where the kernel masks a partial tile it takes the bits, if the tile has a slot."""
    kernel = module.function(found.kernel)
    fresh = Fresh({lists.field} | names_in(module, found))
    slot, full, bits = (Name(fresh(n)) for n in ("slot", "full", "bits"))

    def edit(stmts: Block) -> Block:
        return _by_bits(stmts, found, lists, slot, full, bits)

    edited = map_blocks(kernel.body, edit)
    if edited == kernel.body:
        return module
    body, _ = with_view(edited, found, lists)
    return map_function(module, kernel.name, lambda f: replace(f, body=body))


def _by_bits(
    stmts: Block, found: Attention, lists: Lists, slot: Name, full: Name, bits: Name
) -> Block:
    """A tile's class is asked for as soon as the tile is known, so that the mask need not wait.

    Beside an asynchronous matmul its bits are too: their latency passes under the matmul. A tile
    without a slot has them past the vector's end, which loads nothing.
    """
    at = next((n for n, stmt in enumerate(stmts) if _masks_partial(stmt, found)), None)
    known = [
        n for n, stmt in enumerate(stmts[:at])
        if isinstance(stmt, Assign) and isinstance(stmt.value, Call)
        and stmt.value.fn == found.schedule.index
    ]  # fmt: skip
    layout = found.score_layout
    if at is None or not known or layout is None:
        return stmts
    mask = stmts[at]
    assert isinstance(mask, If) and isinstance(mask.cond, Unary)
    ask, last = mask.cond.operand, mask.then[-1]
    assert isinstance(ask, Call) and isinstance(last, Assign) and isinstance(last.value, Call)
    where = dict(last.value.kwargs)["at"]
    assert isinstance(where, Tuple)
    consts = tuple(p.id for p in ask.params[:2] if isinstance(p, Name))
    row = expr("first % rows", first=ask.args[3], rows=consts[0])
    below = tidy(expr("row - first", row=where.items[0], first=ask.args[3]))

    def load(place: Expr) -> Stmt:
        words = bits_at(lists, ask.args[1:4], consts, place, tidy(Binary("+", row, below)))
        return Assign(bits.id, Call("load_bits", (words,), (), (layout,)))

    early = any(map(starts_matmul, stmts[known[-1] : at]))
    asked = block("slot = tile_slot[*consts](*at)", slot=slot, tile_slot=lists.slot,
                  at=ask.args, consts=ask.params[:2])  # fmt: skip
    if early:
        past = Attr(ARGS, lists.slots)
        place = expr("slot if slot >= 0 else past", slot=slot, past=past)
        asked += (Assign(full.id, ask), load(place))
    partial = block(
        """
        if not full:
            if slot >= 0:
                *load
                s = keep_bits(s, bits)
            else:
                *computed
        """,
        full=full if early else ask, slot=slot, load=() if early else load(slot),
        s=last.target, bits=bits, computed=mask.then,
    )  # fmt: skip
    first = known[-1] + 1
    return (*stmts[:first], *asked, *stmts[first:at], *partial, *stmts[at + 1 :])


def _masks_partial(stmt: Stmt, found: Attention) -> bool:
    holes = matched("if not full(*_):\n    *_\n    s = keep(s, *_)", stmt)
    return holes is not None and holes["full"] == Name(found.schedule.full)


RULE = Rule(
    "bits",
    "Mask partial tiles by their bits",
    "the mask of a tile is the same for all heads, so it is read as stored bits: one load for each "
    "row and no arithmetic; a tile for whose bits there was no room has its mask computed",
    "mask",
    applies=lambda case: case.lists is not None,
    edit=lambda module, case: mask_by_bits(module, case.found, case.the_lists()),
    after=("branches",),
)
