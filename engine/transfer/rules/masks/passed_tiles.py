"""Which of a block's first and last tiles a part of its rows passes over.

A block of rows visits every tile of which some row keeps a pair, from the last tile to the first.
Rows that end earlier than the block's last ones have nothing to do in the first of these tiles,
rows that begin later than its first ones nothing in the last. Where a mask has two edges, key tiles
end where parts of a block's rows do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from engine.cuir.nodes import (
    Assign,
    Attr,
    Expr,
    Function,
    Module,
    Name,
    Num,
    Return,
    Select,
    free_names,
)
from engine.cuir.rewrite import stmt_reads
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import assign, expr
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.tile_sizes import chosen, tile_const, with_tile

KEYS = Attr(Name("args"), "Nk")
ZERO: Expr = Num(0)


def passed_at_first(lead: Function, keep: Expr, fresh: Fresh) -> Function:
    """The body of `lead`(args, b, h, q0, row0), with constants for the rows of the block, the keys
    of a tile and the rows from row0 on: how many of the block's first tiles lie behind the last key
    that these rows keep. `fresh` gives the names of variables.
    """
    at = _Asked(lead, keep, fresh)
    of_block, of_own = at.of_block, at.of_own
    prefix, begin, end, behind = (Name(fresh(n)) for n in ("prefix", "begin", "end", "own_end"))
    own_ends = [at.end(span) for span in (of_own.prefix, of_own.rest) if span is not None]
    if of_block == intervals.KeyRanges(None, None) or not own_ends:
        return lead
    if of_own == of_block:  # the ranges are the same for all rows
        return replace(lead, body=(Return(Num(0)),))
    # Only this is at least 0: no tile before it is passed over, so none below 0 is. Rows behind the
    # last one, of the last block, pass over all tiles.
    own_end = at.of_rows(reduce(intervals.maximum, [ZERO, *own_ends]))
    body = [Assign(behind.id, own_end)]
    passed: list[Expr] = []  # behind the last key, of the tiles from `begin` on and of the prefix
    if of_block.rest is not None:
        start = at.begin(of_block.rest)
        if of_block.prefix is not None:
            body.append(Assign(prefix.id, at.end(of_block.prefix)))
            start = intervals.maximum(prefix, start)
        body += [Assign(begin.id, start), Assign(end.id, at.end(of_block.rest))]
        passed.append(expr("max(0, e - max(b, own))", e=end, b=begin, own=behind))
    elif of_block.prefix is not None:
        prefix = end
        body.append(Assign(prefix.id, at.end(of_block.prefix)))
    if of_block.prefix is not None:
        passed.append(expr("max(0, prefix - own)", prefix=prefix, own=behind))
    total = reduce(lambda a, b: expr("a + b", a=a, b=b), passed)
    return at.function(body, total)


def passed_at_last(tail: Function, keep: Expr, fresh: Fresh) -> Function:
    """The body of `tail`, asked as `lead` is: how many of the block's last tiles lie before the
    first key that these rows keep, and are none of those that `lead` passes over."""
    at = _Asked(tail, keep, fresh)
    block, own, prefix = at.of_block.rest, at.of_own.rest, at.of_block.prefix
    # A prefix is visited last, and all rows of a block that has one keep its first key.
    some = None if prefix is None else _where_there_is_some(prefix)
    if block is None or own is None or (prefix is not None and some is None):
        return tail
    begin, own_begin = at.begin(block), at.begin(own)
    if begin == own_begin:
        return tail
    first, end = Name(fresh("begin")), Name(fresh("own_end"))
    body = [Assign(first.id, begin), Assign(end.id, at.of_rows(at.end(own)))]
    passed = expr("max(0, min(own, end) - begin)", own=own_begin, end=end, begin=first)
    if some is not None:
        passed = expr("0 if some else passed", passed=passed, some=some)
    return at.function(body, passed)


def _where_there_is_some(span: intervals.KeyRange) -> Expr | None:
    """The condition under which the range may hold keys, where it says that it holds none else."""
    match span.high:
        case Select(some, _, Num(-1)):
            return some
    return None


class _Asked:
    """A function that says what part of a block's rows does with its tiles."""

    def __init__(self, function: Function, keep: Expr, fresh: Fresh) -> None:
        self._function = function
        self._rows, self._keys, self._own_rows = (Name(c) for c in function.consts[:3])
        self._first, self.own = (Name(p.name) for p in function.params[3:5])
        self._last, self._own_last = (Name(fresh(n)) for n in ("last", "own_last"))
        block, own = (
            intervals.key_ranges(keep, intervals.Rows(*rows), KEYS)
            for rows in ((self._first, self._last), (self.own, self._own_last))
        )
        self.of_block, self.of_own = block, own

    def begin(self, span: intervals.KeyRange) -> Expr:
        """The tile of the range's first key."""
        return expr("low // keys", low=span.low, keys=self._keys)

    def end(self, span: intervals.KeyRange) -> Expr:
        """The first tile behind the range; below 0 where no key lies in it."""
        beyond = tidy(expr("high + 1", high=span.high))
        return expr("ceil_div(beyond, keys)", beyond=beyond, keys=self._keys)

    def of_rows(self, own_end: Expr) -> Expr:
        """0 for rows behind the last one, of the last block: they keep nothing."""
        return expr("end if own < args.Nq else 0", end=own_end, own=self.own)

    def function(self, body: list[Assign], value: Expr) -> Function:
        """With this body, and before it the last rows that it reads."""
        read = frozenset[str]().union(free_names(value), *map(stmt_reads, body))
        lasts = [
            assign("last = min(first + rows, args.Nq) - 1", last=name, first=beginning, rows=rows)
            for name, beginning, rows in (
                (self._last, self._first, self._rows),
                (self._own_last, self.own, self._own_rows),
            )
            if name.id in read
        ]
        return replace(self._function, body=(*lasts, *body, Return(value)))


PART = 64  # rows of a warpgroup
# Fewer keys than this leave registers for wide accumulators, and are no more than those need.
MANY = 96


def _edit(module: Module, case: Case) -> Module:
    found, tail = case.found, case.found.schedule.tail
    keys = tile_const(module.function(found.kernel), found, 1)
    if tail is None or keys is None or module.function(tail) == case.module.function(tail):
        return module
    return with_tile(module, found, keys, lambda value: _plain(chosen(value, _whole_parts)))


def _plain(value: Expr) -> Expr:
    """Without a choice between equal numbers."""
    if not isinstance(value, Select):
        return value
    then, other = _plain(value.then), _plain(value.other)
    return then if then == other else Select(value.cond, then, other)


def _whole_parts(number: int) -> int:
    return -(-number // PART) * PART if number > MANY else number


RULE = Rule(
    "edge_tiles",
    "Take key tiles in which an edge of the mask lies whole",
    "64 rows meet an edge of the mask in one tile of 128 keys, in 1.6 of 112 in the mean: fewer "
    "tiles evaluate the mask; nothing but the mask needs registers beside the scores",
    "mask",
    applies=lambda case: case.masked and case.softmax and case.lists is None and case.rest is None,
    edit=_edit,
    after=("smaller_tiles",),
)
