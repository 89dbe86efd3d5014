"""Which of a block's first tiles a part of its rows passes over.

A block of rows visits every tile of which some row keeps a pair, from the last tile to the first.
Rows that end earlier than the block's last ones have nothing to do in the first of these tiles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from engine.cuir.nodes import Assign, Attr, Binary, Call, Expr, Function, Name, Num, Return, Stmt
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.rewrite import free_names, stmt_exprs
from engine.transfer.rules.names import Fresh

KEYS, QUERIES = Attr(Name("args"), "Nk"), Attr(Name("args"), "Nq")


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
        return Call("ceil_div", (tidy(Binary("+", span.high, Num(1))), tile_keys))

    own_ends = [ends(span) for span in (of_own.prefix, of_own.rest) if span is not None]
    if of_block == intervals.KeyRanges(None, None) or not own_ends:
        return lead
    if of_own == of_block:  # the ranges are the same for all rows
        return replace(lead, body=(Return(Num(0)),))
    body: list[Stmt] = []
    passed: list[Expr] = []  # behind the last key, of the tiles from `begin` on and of the prefix
    # Only this is at least 0: no tile before it is passed over, so none below 0 is.
    zero: Expr = Num(0)
    body.append(Assign(behind.id, reduce(intervals.maximum, own_ends, zero)))
    if of_block.rest is not None:
        start: Expr = Binary("//", of_block.rest.low, tile_keys)
        if of_block.prefix is not None:
            body.append(Assign(prefix.id, ends(of_block.prefix)))
            start = intervals.maximum(prefix, start)
        body += [Assign(begin.id, start), Assign(end.id, ends(of_block.rest))]
        stop = Call("max", (begin, behind))
        passed.append(Call("max", (Num(0), Binary("-", end, stop))))
    elif of_block.prefix is not None:
        prefix = end
        body.append(Assign(prefix.id, ends(of_block.prefix)))
    if of_block.prefix is not None:
        passed.append(Call("max", (Num(0), Binary("-", prefix, behind))))
    total = passed[0] if len(passed) == 1 else Binary("+", passed[0], passed[1])
    body.append(Return(total))
    read = frozenset[str]().union(*(free_names(e) for s in body for e in stmt_exprs(s)))
    bounds = ((last.id, first, block_rows), (own_last.id, own, own_rows))
    lasts = tuple(_last(*bound) for bound in bounds if bound[0] in read)
    return replace(lead, body=(*lasts, *body))


def _last(name: str, first: Expr, rows: Expr) -> Assign:
    value = Binary("-", Call("min", (Binary("+", first, rows), QUERIES)), Num(1))
    return Assign(name, value)
