"""What lies under a mask: rows of V that no row of a block keeps are zeros to a matmul.

A masked pair has weight 0, and 0 times NaN is NaN: what a cache holds beyond a sequence's length
would reach the output wherever a length does not end on a tile. The keys that a block of rows keeps
lie in one range, which the mask's bounds give. The copies of V into shared memory take that range
and fill the other rows with zeros, as they do beyond the tensor. A NaN in a hole of the mask is
PyTorch's NaN too. A masked score is replaced, so K needs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Do,
    Expr,
    Function,
    Module,
    Name,
    Select,
    Stmt,
    walk_block,
)
from engine.cuir.ops.traits import MATMULS
from engine.cuir.rewrite import Block, map_blocks, map_function, map_statements, substitute
from engine.cuir.static.kernel_names import locals_for
from engine.cuir.text.quote import expr
from engine.transfer import schedule as intervals
from engine.transfer.linear import linear, linear_difference
from engine.transfer.match import Attention, base_name, tensor_maps
from engine.transfer.rules.base.list_layout import KEYS, ZERO, Area, Lists, with_view, word_of
from engine.transfer.rules.base.recipe_names import Words
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.masks.mask import descends


@dataclass(frozen=True, slots=True)
class Kept:
    """The keys that a block of rows keeps: the first one, and the one past the last, in the words
    of the function that counts the block's tiles, whose own name is their number. As it is by
    default copies are zeros anyway."""

    begin: Expr = ZERO
    end: Expr = KEYS


def kept_range(module: Module, found: Attention, words: Words, keep: Expr) -> Kept:
    """The range of keys that a block of rows keeps, as the mask's index part bounds it."""
    count = module.function(found.schedule.count)
    first, last = Name(count.params[3].name), Name("last row")
    ranges = intervals.key_ranges(words.of_schedule(keep, count), intervals.Rows(first, last), KEYS)
    found_ranges = [r for r in (ranges.prefix, ranges.rest) if r is not None]
    if not found_ranges:
        return Kept()
    last_row = expr("min(first + rows, args.Nq) - 1", first=first, rows=count.consts[0])

    def of_block(value: Expr) -> Expr:
        return spread(substitute(value, {last.id: last_row}))

    highs = [expr("high + 1", high=r.high) for r in found_ranges]
    end = highs[0] if len(highs) == 1 else Call("max", (highs[0], highs[1]))
    begin = ZERO if ranges.prefix is not None else of_block(found_ranges[0].low)
    return Kept(begin, of_block(end))


def listed_range(module: Module, found: Attention, lists: Lists) -> Kept:
    """The range of keys as the tile lists have it: from the first key of the first tile or, where
    that one is kept in part, from the first key that partial tiles keep; likewise to its end."""
    count = module.function(found.schedule.count)
    keys = Name(count.consts[1])

    # The tiles stand right behind their number, which is read where there are none.
    tiles = Name(count.name)
    ends = [
        word_of(count, lists, Area.COUNT, place)
        for place in (expr("min(1, tiles)", tiles=tiles), tiles)
    ]
    low, high = reversed(ends) if descends(module.function(found.schedule.index)) else ends
    begin, end = (word_of(count, lists, area) for area in (Area.KEY_BEGIN, Area.KEY_END))
    return Kept(
        expr("begin if begin < low * keys + keys else 0", begin=begin, low=low, keys=keys),
        expr("end if end > high * keys else args.Nk", end=end, high=high, keys=keys),
    )


def _kept(case: Case) -> Kept:
    if case.lists is not None:
        return listed_range(case.module, case.found, case.lists)
    return kept_range(case.module, case.found, case.words, case.keep)


def leave_out(module: Module, case: Case) -> Module:
    """The module whose copies of V take each block's range of keys alone."""
    found, kept, lists = case.found, _kept(case), case.lists
    kernel, host = module.function(found.kernel), module.function(found.host)
    count = module.function(found.schedule.count)
    tiles, asked = _asked(kernel, found)
    there = {p.name: a for p, a in zip(count.params, asked.args, strict=True)}
    there |= {**dict(zip(count.consts, asked.params, strict=True)), count.name: tiles}
    fresh = locals_for(module, (kernel,), case.words.names)
    given: list[Stmt] = []

    def named(wanted: str, value: Expr) -> Expr:
        """What stands for the value where copies are made."""
        if value in (ZERO, KEYS):
            return value
        name = fresh(wanted)
        given.append(Assign(name, substitute(value, there)))
        return Name(name)

    copies = _Copies(_value_tile(kernel, found), named("begin", kept.begin), named("end", kept.end))
    field = found.fields["v"]
    maps = frozenset(p for p, f in tensor_maps(kernel, host).items() if f == field)

    def in_kernel(function: Function) -> Function:
        body = map_blocks(function.body, copies.edit)
        body = map_blocks(body, lambda b: _after_count(b, copies, found, tuple(given)))
        params = tuple(replace(p, type="row_map") if p.name in maps else p for p in function.params)
        if lists is not None:
            body, _ = with_view(body, found, lists)
        return replace(function, params=params, body=body)

    module = map_function(module, kernel.name, in_kernel)
    return map_statements(module, host.name, lambda stmt: _with_row_map(stmt, field))


def _with_row_map(stmt: Stmt, field: str) -> Stmt:
    """The host's statement that makes a tensor map of `field`, for copies of a range of rows."""
    match stmt:
        case Assign(name, Call("tensor_map", (Attr(_, made), *_)) as call) if made == field:
            return Assign(name, replace(call, fn="row_map"))
    return stmt


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies into the shared tiles called `tiles`, and the range of keys that they take: its
    first one and the one past its last."""

    tiles: str
    begin: Expr
    end: Expr

    def is_one(self, stmt: Stmt) -> bool:
        match stmt:
            case Do(Call("copy_async" | "tma_load" | "copy_async_rows" | "tma_load_rows", args)):
                return base_name(args[0]) == self.tiles
        return False

    def edit(self, body: Block) -> Block:
        return tuple(self._edited(s) if self.is_one(s) else s for s in body)

    def _edited(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Do(Call("copy_async" | "tma_load" as fn, args)):
                return Do(Call(f"{fn}_rows", (*args, self.begin, self.end)))
        return stmt


def _asked(kernel: Function, found: Attention) -> tuple[Name, Call]:
    """The kernel's name of a block's number of tiles, and the call that gives it."""
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        match stmt:
            case Assign(name, Call(fn) as call) if fn == found.schedule.count:
                return Name(name), call
    raise AssertionError("an attention asks for its tiles")


def _value_tile(kernel: Function, found: Attention) -> str:
    """The name of V's shared tiles: what the second matmul takes."""
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        match stmt:
            case Do(Call(fn, (Name(acc), _, right))) if fn in MATMULS and acc == found.accumulator:
                name = base_name(right)
                if name is not None:
                    return name
    raise AssertionError("an attention has a second matmul")


def _after_count(body: Block, copies: _Copies, found: Attention, given: Block) -> Block:
    """`given` behind the question for the number of tiles where V's copies follow."""
    for position, stmt in enumerate(body):
        match stmt:
            case Assign(_, Call(fn)) if fn == found.schedule.count:
                rest = body[position + 1 :]
                if any(copies.is_one(inner) for _, inner in walk_block(rest, ("",))):
                    return (*body[: position + 1], *given, *rest)
    return body


RULE = Rule(
    "under_mask",
    "Leave out what lies under the mask",
    "rows of V under the mask may hold anything, NaN too (a cache that is not filled yet), and a "
    "weight of 0 times NaN is NaN: zeros are copied for keys that no row of the block keeps",
    "mask",
    applies=lambda case: case.masked and _kept(case) != Kept(),
    edit=leave_out,
    after=("ticket",),
)


def spread(expr: Expr) -> Expr:
    """The same value: `min(a, b) + c` is `min(a + c, b + c)`, and of two operands that differ by a
    number one goes. `max(min(a, b), min(a, c))` is `min(a, max(b, c))`."""
    form = linear(expr)
    for atom, coefficient in form.terms:
        rest = form.without(atom).to_expr()
        match atom:
            case Call("min" | "max" as fn, (left, right)) if coefficient == 1:
                a, b = (spread(Binary("+", side, rest)) for side in (left, right))
                return _extreme(fn, a, b)
            case Select(cond, then, other) if coefficient == 1:
                yes, no = spread(Binary("+", then, rest)), spread(Binary("+", other, rest))
                return Select(cond, yes, no)
    return form.to_expr()


def _extreme(fn: str, left: Expr, right: Expr) -> Expr:
    sides = _operands(fn, left), _operands(fn, right)
    kept: list[Expr] = []
    for operand in (*sides[0], *sides[1]):
        if not any(_is_extreme(fn, other, operand) for other in kept):
            kept = [other for other in kept if not _is_extreme(fn, operand, other)] + [operand]
    inner = "min" if fn == "max" else "max"
    parts = [_operands(inner, operand) for operand in kept]
    common = [e for e in parts[0] if all(e in part for part in parts[1:])]
    rests = [[e for e in part if e not in common] for part in parts]
    if len(parts) > 1 and common:
        if not all(rests):  # one of them is an operand of all others
            return _joined(inner, common)
        within = reduce(lambda a, b: _extreme(fn, a, b), (_joined(inner, rest) for rest in rests))
        return _joined(inner, [*common, within])
    return _joined(fn, kept)


def _operands(fn: str, expr: Expr) -> list[Expr]:
    match expr:
        case Call(name, (left, right)) if name == fn:
            return [*_operands(fn, left), *_operands(fn, right)]
    return [expr]


def _joined(fn: str, operands: list[Expr]) -> Expr:
    return reduce(lambda a, b: Call(fn, (a, b)), operands)


def _is_extreme(fn: str, one: Expr, other: Expr) -> bool:
    """Whether `one` is the smaller (of `max`: the larger) of both whatever the sizes are."""
    difference = linear_difference(one, other)
    below = difference.constant if fn == "min" else -difference.constant
    return not difference.terms and below <= 0
