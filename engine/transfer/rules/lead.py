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

KEYS, QUERIES = Attr(Name("args"), "Nk"), Attr(Name("args"), "Nq")


def passed_over(lead: Function, keep: Expr) -> Function:
    """The body of `lead`(args, b, h, q0, row0), with constants for the rows of the block, the keys
    of a tile and the rows from row0 on: how many of the block's first tiles lie behind the last key
    that these rows keep. Only tiles of the range after a prefix are passed over, if there is one.
    """
    block_rows, tile_keys, own_rows = (Name(c) for c in lead.consts[:3])
    first, own = (Name(p.name) for p in lead.params[3:5])
    of_block = intervals.key_ranges(keep, intervals.Rows(first, Name("last")), KEYS)
    of_own = intervals.key_ranges(keep, intervals.Rows(own, Name("own_last")), KEYS)

    def ends(span: intervals.KeyRange) -> Expr:
        """The first tile behind the range; none is below 0."""
        end = Call("ceil_div", (tidy(Binary("+", span.high, Num(1))), tile_keys))
        return intervals.maximum(Num(0), end)

    body: Block
    if of_block.rest is None or of_own.rest is None:
        if of_block.prefix is None or of_own.prefix is None or of_block.rest != of_own.rest:
            return lead
        body = (
            Assign("end", ends(of_block.prefix)),
            Return(Binary("-", Name("end"), Call("min", (Name("end"), ends(of_own.prefix))))),
        )
    else:
        begin: Expr = Binary("//", of_block.rest.low, tile_keys)
        if of_block.prefix is not None:
            begin = intervals.maximum(ends(of_block.prefix), begin)
        stop = Call("max", (ends(of_own.rest), Name("begin")))
        body = (
            Assign("begin", begin),
            Assign("end", ends(of_block.rest)),
            Return(Binary("-", Name("end"), Call("min", (Name("end"), stop)))),
        )
    read = frozenset[str]().union(*(free_names(e) for s in body for e in stmt_exprs(s)))
    bounds = (("last", first, block_rows), ("own_last", own, own_rows))
    lasts = tuple(_last(*bound) for bound in bounds if bound[0] in read)
    return replace(lead, body=lasts + body)


def _last(name: str, first: Expr, rows: Expr) -> Assign:
    value = Binary("-", Call("min", (Binary("+", first, rows), QUERIES)), Num(1))
    return Assign(name, value)
