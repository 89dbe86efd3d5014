"""Which of a block's first tiles a part of its rows passes over.

A block of rows visits every tile of which some row keeps a pair, from the last tile to the first.
Rows that end earlier than the block's last ones have nothing to do in the first of these tiles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from engine.cuir.nodes import Assign, Attr, Expr, Function, Name, Num, Return, free_names
from engine.cuir.rewrite import stmt_reads
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import assign, expr
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy

KEYS = Attr(Name("args"), "Nk")
ZERO: Expr = Num(0)


def passed_over(lead: Function, keep: Expr, fresh: Fresh) -> Function:
    """The body of `lead`(args, b, h, q0, row0), with constants for the rows of the block, the keys
    of a tile and the rows from row0 on: how many of the block's first tiles lie behind the last key
    that these rows keep. `fresh` gives the names of variables.
    """
    block_rows, tile_keys, own_rows = (Name(c) for c in lead.consts[:3])
    first, own = (Name(p.name) for p in lead.params[3:5])
    last, own_last, prefix, begin, end, behind = (
        Name(fresh(n)) for n in ("last", "own_last", "prefix", "begin", "end", "own_end")
    )
    of_block = intervals.key_ranges(keep, intervals.Rows(first, last), KEYS)
    of_own = intervals.key_ranges(keep, intervals.Rows(own, own_last), KEYS)

    def ends(span: intervals.KeyRange) -> Expr:
        """The first tile behind the range; below 0 where no key lies in it."""
        beyond = tidy(expr("high + 1", high=span.high))
        return expr("ceil_div(beyond, keys)", beyond=beyond, keys=tile_keys)

    own_ends = [ends(span) for span in (of_own.prefix, of_own.rest) if span is not None]
    if of_block == intervals.KeyRanges(None, None) or not own_ends:
        return lead
    if of_own == of_block:  # the ranges are the same for all rows
        return replace(lead, body=(Return(Num(0)),))
    # Only this is at least 0: no tile before it is passed over, so none below 0 is. Rows behind the
    # last one, of the last block, pass over all tiles.
    own_end = reduce(intervals.maximum, [ZERO, *own_ends])
    own_end = expr("end if own < args.Nq else 0", end=own_end, own=own)
    body = [Assign(behind.id, own_end)]
    passed: list[Expr] = []  # behind the last key, of the tiles from `begin` on and of the prefix
    if of_block.rest is not None:
        start: Expr = expr("low // keys", low=of_block.rest.low, keys=tile_keys)
        if of_block.prefix is not None:
            body.append(Assign(prefix.id, ends(of_block.prefix)))
            start = intervals.maximum(prefix, start)
        body += [Assign(begin.id, start), Assign(end.id, ends(of_block.rest))]
        passed.append(expr("max(0, e - max(b, own))", e=end, b=begin, own=behind))
    elif of_block.prefix is not None:
        prefix = end
        body.append(Assign(prefix.id, ends(of_block.prefix)))
    if of_block.prefix is not None:
        passed.append(expr("max(0, prefix - own)", prefix=prefix, own=behind))
    total = reduce(lambda a, b: expr("a + b", a=a, b=b), passed)
    read = frozenset[str]().union(free_names(total), *map(stmt_reads, body))
    lasts = [
        assign("last = min(first + rows, args.Nq) - 1", last=name, first=beginning, rows=rows)
        for name, beginning, rows in ((last, first, block_rows), (own_last, own, own_rows))
        if name.id in read
    ]
    return replace(lead, body=(*lasts, *body, Return(total)))
