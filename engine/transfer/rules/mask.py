"""The mask: the keep predicate of partial tiles and the tile schedule."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    Function,
    If,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Select,
    walk_block,
)
from engine.cuir.printer import print_expr
from engine.errors import TransferError
from engine.spec.recipe import Recipe
from engine.transfer import schedule as intervals
from engine.transfer.bounds import tile_full
from engine.transfer.linear import tidy
from engine.transfer.logic import conjunction, factored, normal
from engine.transfer.match import Attention, Site
from engine.transfer.rewrite import Block, free_names, map_expr, map_stmt_exprs, stmt_exprs
from engine.transfer.rules.inputs import scalar_inputs, view_of
from engine.transfer.rules.lead import passed_over
from engine.transfer.rules.list_kernels import kernels
from engine.transfer.rules.lists import Lists, from_lists, insert_after, launch_lists
from engine.transfer.rules.names import locals_for
from engine.transfer.rules.sites import edit_site
from engine.transfer.rules.steps import Step
from engine.transfer.rules.words import Words


def mask_steps(found: Attention, recipe: Recipe, words: Words, lists: Lists | None) -> list[Step]:
    keep = factored(scalar_inputs(recipe.keep, recipe))
    pred = words.of_kernel(keep)
    steps = [
        Step(
            "Keep what the spec keeps",
            "the keep predicate of partial tiles gets the spec's mask",
            "mask",
            lambda m: _edit_keep(m, found, pred),
        )
    ]
    if lists is None:
        title, reason = _visiting(intervals.slack(keep))
        steps.append(Step(title, reason, "mask", lambda m: _edit_schedule(m, found, words, keep)))
        return steps
    steps += [
        Step(
            "Find the tiles that hold a kept pair",
            "of the tiles that the index part of the mask may keep, the ranges of what it reads "
            "decide most; the pairs of the others are looked at, and their mask is kept as bits",
            "mask",
            lambda m: _insert_builders(m, found, words, keep, lists),
        ),
        Step(
            "Visit the tiles of a list",
            "the mask depends on data: which key tiles of a block of rows hold a kept pair, and "
            "which only such, is read from a list that the device makes first",
            "mask",
            lambda m: _replaced(m, from_lists(m, found, lists)),
        ),
        Step(
            "Make the lists before the attention",
            "three launches in stream order, no host wait and no allocation: the caller gives the "
            "workspace, and says when it holds the lists already",
            "mask",
            lambda m: launch_lists(m, found, lists),
        ),
    ]
    return steps


def _visiting(slack: intervals.Slack) -> tuple[str, str]:
    """Title and reason of the schedule's step: what it visits, and what it may visit in vain."""
    analysis = "interval analysis of the mask over a block of rows gives the range of key tiles, "
    if not slack:
        return "Visit only tiles that hold a kept pair", analysis + "and which of them need no mask"
    why = [f"`{print_expr(atom)}` bounds no range" for atom in slack.unbounded]
    if slack.spans:
        why.append("one range spans several of the mask's")
    return (
        "Visit the tiles of a range that holds all kept pairs",
        f"{analysis}and which need no mask; {', '.join(why)}: some tiles may hold no kept pair "
        "(G2 counts them)",
    )


def _insert_builders(
    module: Module, found: Attention, words: Words, keep: Expr, lists: Lists
) -> Module:
    """The candidates' count and index, and the three kernels, behind the schedule."""
    names = found.schedule
    count, index = (module.function(n) for n in (names.count, names.index))
    candidates = _ranges(module, found, words, keep, lists.count)
    order = [f.name for f in module.functions]
    last = max((names.count, names.index, names.full), key=order.index)
    new = (
        replace(candidates[count.name], name=lists.count),
        replace(candidates[index.name], name=lists.index),
        from_lists(module, found, lists)[lists.slot],
        *_candidate_lead(module, found, words, keep, lists),
        *kernels(module, found, words, keep, lists),
    )
    return insert_after(module, last, new)


def _edit_keep(module: Module, found: Attention, pred: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None

        def change(expr: Expr) -> Expr | None:
            match expr:
                case Call("keep", (score, Lambda(("i", "j"), body)), kwargs, params):
                    return Call(
                        "keep",
                        (score, Lambda(("i", "j"), conjunction(body, pred))),
                        kwargs,
                        params,
                    )
                case Call("keep"):
                    raise TransferError("the kernel's keep has an unexpected lambda")
            return None

        stmt = stmts[site.mask]
        if isinstance(stmt, If):
            inner = tuple(map_stmt_exprs(s, lambda e: map_expr(e, change)) for s in stmt.then)
            stmt = If(stmt.cond, inner, stmt.other)
        else:
            stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, change))
        return (*stmts[: site.mask], stmt, *stmts[site.mask + 1 :])

    return edit_site(module, found, edit)


def _edit_schedule(module: Module, found: Attention, words: Words, keep: Expr) -> Module:
    names = found.schedule
    new = _ranges(module, found, words, keep, names.count)
    index = module.function(names.index)
    if names.lead is not None and descends(index):
        lead = module.function(names.lead)
        new[lead.name] = _passed_over(module, lead, words, keep)
    return _replaced(module, new)


def _candidate_lead(
    module: Module, found: Attention, words: Words, keep: Expr, lists: Lists
) -> tuple[Function, ...]:
    """How many of the first candidates a part of the block's rows passes over; nothing where the
    kernel's own lead says it."""
    if found.schedule.lead is None or not descends(module.function(found.schedule.index)):
        return ()
    lead = module.function(found.schedule.lead)
    passed = _passed_over(module, lead, words, keep)
    return () if passed.body == lead.body else (replace(passed, name=lists.passed),)


def _passed_over(module: Module, lead: Function, words: Words, keep: Expr) -> Function:
    fresh = locals_for(module, (lead,), words.names)
    return _with_views(passed_over(lead, words.of_schedule(keep, lead), fresh), words)


def _with_views(function: Function, words: Words) -> Function:
    """The function with a view of every input that it reads."""
    read = frozenset[str]().union(
        *(free_names(e) for _, s in walk_block(function.body, ()) for e in stmt_exprs(s))
    )
    have = {s.target for s in function.body if isinstance(s, Assign)}
    views = tuple(view_of(i) for i in words.tensors if i.name in read - have)
    return replace(function, body=(*views, *function.body))


def _replaced(module: Module, new: dict[str, Function]) -> Module:
    return replace(module, functions=tuple(new.get(f.name, f) for f in module.functions))


def _ranges(
    module: Module, found: Attention, words: Words, keep: Expr, counted_by: str
) -> dict[str, Function]:
    """The schedule's three functions for the ranges of tiles that indices alone give.

    `counted_by` names the function that gives the number of tiles.
    """
    names = found.schedule
    count, index, full = (module.function(n) for n in (names.count, names.index, names.full))
    tile_rows, tile_keys = (Name(c) for c in count.consts[:2])
    keys = Attr(Name("args"), "Nk")
    queries = Attr(Name("args"), "Nq")
    fresh = locals_for(module, (count, index, full), words.names)
    last, begin, prefix, visit = (Name(fresh(n)) for n in ("last", "first", "prefix", "visit"))

    def rows_of(function: Function) -> intervals.Rows:
        first = Name(function.params[3].name)
        return intervals.Rows(first, last)

    def last_row(function: Function) -> Assign:
        # A third constant says how many rows are asked about, where not the whole block's.
        first = Name(function.params[3].name)
        rows = Name(function.consts[2]) if len(function.consts) > 2 else tile_rows
        value = Binary("-", Call("min", (Binary("+", first, rows), queries)), Num(1))
        return Assign(last.id, value)

    def finish(function: Function, body: Block) -> Function:
        read = frozenset[str]().union(*(free_names(e) for s in body for e in stmt_exprs(s)))
        body = tuple(view_of(i) for i in words.tensors if i.name in read) + body
        return replace(function, body=((last_row(function),) if last.id in read else ()) + body)

    ranges = intervals.key_ranges(words.of_schedule(keep, count), rows_of(count), keys)
    new: dict[str, Function] = {}
    zero = Num(0)

    def ends(high: Expr) -> Expr:
        """Tiles up to a key; below 0 (which ceil_div may give) is none."""
        return Call("ceil_div", (tidy(Binary("+", high, Num(1))), tile_keys))

    def tiles_until(high: Expr) -> Expr:
        return intervals.maximum(zero, ends(high))

    def tile_of(key: Expr) -> Expr:
        return Binary("//", key, tile_keys)

    step: Expr = Name(index.params[4].name)
    if descends(index):
        arguments = tuple(Name(p.name) for p in index.params[:4])
        visits = Call(counted_by, arguments, (), tuple(Name(c) for c in index.consts))
        step = Binary("-", Binary("-", visits, Num(1)), step)
    if ranges.rest is None:
        high = ranges.prefix.high if ranges.prefix else Num(-1)
        new[count.name] = finish(count, (Return(tiles_until(high)),))
        new[index.name] = finish(index, (Return(step),))
    else:
        ranges_i = intervals.key_ranges(words.of_schedule(keep, index), rows_of(index), keys)
        assert ranges_i.rest is not None
        if ranges.prefix is None:
            beyond = Binary("-", ends(ranges.rest.high), begin)
            body: Block = (
                Assign(begin.id, tile_of(ranges.rest.low)),
                Return(intervals.maximum(zero, beyond)),
            )
            new[count.name] = finish(count, body)
            first = tile_of(ranges_i.rest.low)
            new[index.name] = finish(index, (Return(Binary("+", first, step)),))
        else:
            assert ranges_i.prefix is not None
            first = intervals.maximum(prefix, tile_of(ranges.rest.low))
            beyond = Binary("-", ends(ranges.rest.high), begin)
            body = (
                Assign(prefix.id, tiles_until(ranges.prefix.high)),
                Assign(begin.id, first),
                Return(Binary("+", prefix, intervals.maximum(zero, beyond))),
            )
            new[count.name] = finish(count, body)
            first_i = intervals.maximum(prefix, tile_of(ranges_i.rest.low))
            later = Binary("+", first_i, Binary("-", visit, prefix))
            body = (
                Assign(prefix.id, tiles_until(ranges_i.prefix.high)),
                Assign(visit.id, step),
                Return(Select(Compare("<", visit, prefix), visit, later)),
            )
            new[index.name] = finish(index, body)
    tile = Name(full.params[4].name)
    first_key = Binary("*", tile, tile_keys)
    last_key = Binary("-", Binary("+", first_key, tile_keys), Num(1))
    extra = tile_full(words.of_schedule(keep, full), rows_of(full), first_key, last_key)
    new[full.name] = finish(full, _and_return(full, extra))
    return new


def descends(index: Function) -> bool:
    """True when the kernel visits its tiles from the last to the first."""
    from engine.transfer.linear import linear

    last = index.body[-1]
    if not isinstance(last, Return) or last.value is None:
        raise TransferError(f"{index.name} does not end in a return")
    slope = linear(last.value).coefficient(Name(index.params[4].name))
    if abs(slope) != 1:
        raise TransferError(f"{index.name} visits tiles in an order that no rule reads")
    return slope < 0


def _and_return(function: Function, extra: Expr) -> Block:
    """The function's body with `extra` added to what it returns."""
    *head, last = function.body
    if not isinstance(last, Return) or last.value is None:
        raise TransferError(f"{function.name} does not end in a return")
    return (*head, Return(normal(conjunction(last.value, extra))))
