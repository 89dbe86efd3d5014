"""Which of a block's first tiles a part of its rows passes over.

A block of rows visits every tile of which some row keeps a pair, from the last tile to the first.
Rows that end earlier than the block's last ones have nothing to do in the first of these tiles.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Assign, Attr, Binary, Call, Expr, Function, Name, Num, Return
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.rewrite import Block, free_names, stmt_exprs
from engine.transfer.rules.names import Fresh

KEYS, QUERIES = Attr(Name("args"), "Nk"), Attr(Name("args"), "Nq")


def passed_over(lead: Function, keep: Expr, fresh: Fresh) -> Function:
    """The body of `lead`(args, b, h, q0, row0), with constants for the rows of the block, the keys
    of a tile and the rows from row0 on: how many of the block's first tiles lie behind the last key
    that these rows keep. Only tiles of the range after a prefix are passed over, if there is one.
    `fresh` gives the names of variables.
    """
    block_rows, tile_keys, own_rows = (Name(c) for c in lead.consts[:3])
    first, own = (Name(p.name) for p in lead.params[3:5])
    last, own_last, begin, end = (Name(fresh(n)) for n in ("last", "own_last", "begin", "end"))
    of_block = intervals.key_ranges(keep, intervals.Rows(first, last), KEYS)
    of_own = intervals.key_ranges(keep, intervals.Rows(own, own_last), KEYS)

    def ends(span: intervals.KeyRange) -> Expr:
        """The first tile behind the range; none is below 0."""
        behind = Call("ceil_div", (tidy(Binary("+", span.high, Num(1))), tile_keys))
        return intervals.maximum(Num(0), behind)

    body: Block
    if of_block.rest is None or of_own.rest is None:
        if of_block.prefix is None or of_own.prefix is None or of_block.rest != of_own.rest:
            return lead
        body = (
            Assign(end.id, ends(of_block.prefix)),
            Return(Binary("-", end, Call("min", (end, ends(of_own.prefix))))),
        )
    else:
        start: Expr = Binary("//", of_block.rest.low, tile_keys)
        if of_block.prefix is not None:
            start = intervals.maximum(ends(of_block.prefix), start)
        stop = Call("max", (ends(of_own.rest), begin))
        body = (
            Assign(begin.id, start),
            Assign(end.id, ends(of_block.rest)),
            Return(Binary("-", end, Call("min", (end, stop)))),
        )
    read = frozenset[str]().union(*(free_names(e) for s in body for e in stmt_exprs(s)))
    bounds = ((last.id, first, block_rows), (own_last.id, own, own_rows))
    lasts = tuple(_last(*bound) for bound in bounds if bound[0] in read)
    return replace(lead, body=lasts + body)


def _last(name: str, first: Expr, rows: Expr) -> Assign:
    value = Binary("-", Call("min", (Binary("+", first, rows), QUERIES)), Num(1))
    return Assign(name, value)
