"""The mask: the keep predicate of partial tiles and the tile schedule."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Function,
    If,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Stmt,
    free_names,
    map_stmt_exprs,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import Block, map_expr, stmt_reads, substitute
from engine.cuir.static.kernel_names import Fresh, locals_for
from engine.cuir.text.quote import block, expr
from engine.errors import TransferError
from engine.transfer import schedule as intervals
from engine.transfer.bounds import tile_full
from engine.transfer.linear import linear, tidy
from engine.transfer.logic import conjunction, normal
from engine.transfer.match import Site
from engine.transfer.rules.base.input_views import view_of
from engine.transfer.rules.base.list_layout import from_lists, insert_after
from engine.transfer.rules.base.recipe_names import Words
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import edit_site
from engine.transfer.rules.masks.passed_tiles import passed_at_first, passed_at_last
from engine.transfer.rules.tile_lists.list_kernels import kernels

NK = Attr(Name("args"), "Nk")


def _visiting(slack: intervals.Slack) -> tuple[str, str]:
    """Title and reason of the schedule's step: what it visits, and what it may visit in vain."""
    analysis = "the mask's bounds over a block of rows give the range of key tiles to visit, "
    if not slack:
        return (
            "Visit only tiles that hold a kept pair",
            f"{analysis}and which of them are kept whole and need no mask",
        )
    why = [f"`{print_expr(atom)}` bounds no range" for atom in slack.unbounded]
    if slack.spans:
        why.append("one range spans several of the mask's")
    return (
        "Visit the tiles of a range that holds all kept pairs",
        f"{analysis}and which need no mask; {', '.join(why)}: some tiles may hold no kept pair "
        "(G2 counts them)",
    )


def _edit_keep(module: Module, case: Case) -> Module:
    pred = case.words.of_kernel(case.keep)

    def change(node: Expr) -> Expr | None:
        match node:
            case Call("keep", (score, Lambda((row, key), body))):
                # The predicate's row and key are `i` and `j`, so the lambda's own become these.
                if {"i", "j"} & (free_names(body) - {row, key}):
                    raise TransferError("the kernel's keep reads a variable that is called i or j")
                body = substitute(body, {row: Name("i"), key: Name("j")})
                return replace(node, args=(score, Lambda(("i", "j"), conjunction(body, pred))))
            case Call("keep"):
                raise TransferError("the kernel's keep has an unexpected lambda")
        return None

    def masked(stmt: Stmt) -> Stmt:
        if isinstance(stmt, If):
            return If(stmt.cond, tuple(map(masked, stmt.then)), stmt.other)
        return map_stmt_exprs(stmt, lambda e: map_expr(e, change))

    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None
        return (*stmts[: site.mask], masked(stmts[site.mask]), *stmts[site.mask + 1 :])

    return edit_site(module, case.found, edit)


def _edit_schedule(module: Module, case: Case) -> Module:
    names = case.found.schedule
    new = _ranges(module, case, names.count)
    if names.lead is not None and descends(module.function(names.index)):
        new[names.lead] = _passed_over(module, module.function(names.lead), case, passed_at_first)
    if names.tail is not None and descends(module.function(names.index)):
        new[names.tail] = _passed_over(module, module.function(names.tail), case, passed_at_last)
    return _replaced(module, new)


def _find_tiles(module: Module, case: Case) -> Module:
    """The candidates' count and index, and the three kernels, behind the schedule."""
    names, lists = case.found.schedule, case.the_lists()
    candidates = _ranges(module, case, lists.count)
    order = [f.name for f in module.functions]
    last = max((names.count, names.index, names.full), key=order.index)
    new = (
        replace(candidates[names.count], name=lists.count),
        replace(candidates[names.index], name=lists.index),
        from_lists(module, case.found, lists)[lists.slot],
        *_candidate_lead(module, case),
        *kernels(module, case.found, case.words, case.keep, lists),
    )
    return insert_after(module, last, new)


def _candidate_lead(module: Module, case: Case) -> tuple[Function, ...]:
    """How many of the first candidates a part of the block's rows passes over; nothing where the
    kernel's own lead says it."""
    names = case.found.schedule
    if names.lead is None or not descends(module.function(names.index)):
        return ()
    lead = module.function(names.lead)
    passed = _passed_over(module, lead, case, passed_at_first)
    return () if passed.body == lead.body else (replace(passed, name=case.the_lists().passed),)


def _passed_over(
    module: Module, asked: Function, case: Case, rule: Callable[[Function, Expr, Fresh], Function]
) -> Function:
    fresh = locals_for(module, (asked,), case.words.names)
    passed = rule(asked, case.words.of_schedule(case.keep, asked), fresh)
    have = {s.target for s in passed.body if isinstance(s, Assign)}
    return _with_views(passed, passed.body, case.words, have)


def _with_views(
    function: Function, body: Block, words: Words, but: Set[str] = frozenset()
) -> Function:
    """The function with this body and a view of every input that it reads."""
    read = _read(body) - but
    views = tuple(view_of(i) for i in words.tensors if i.name in read)
    return replace(function, body=(*views, *body))


def _read(body: Block) -> frozenset[str]:
    return frozenset[str]().union(*map(stmt_reads, body))


def _replaced(module: Module, new: dict[str, Function]) -> Module:
    return replace(module, functions=tuple(new.get(f.name, f) for f in module.functions))


def _ranges(module: Module, case: Case, counted_by: str) -> dict[str, Function]:
    """The schedule's three functions for the ranges of tiles that indices alone give.

    `counted_by` names the function that gives the number of tiles.
    """
    names, words = case.found.schedule, case.words
    count, index, full = (module.function(n) for n in (names.count, names.index, names.full))
    rows, keys = (Name(c) for c in count.consts[:2])
    fresh = locals_for(module, (count, index, full), words.names)
    last, begin, prefix, visit = (Name(fresh(n)) for n in ("last", "first", "prefix", "visit"))

    def of_block(function: Function) -> intervals.Rows:
        return intervals.Rows(Name(function.params[3].name), last)

    def ranges_of(function: Function) -> intervals.KeyRanges:
        return intervals.key_ranges(words.of_schedule(case.keep, function), of_block(function), NK)

    def finish(function: Function, body: Block) -> Function:
        """With what the body reads before it: the block's last row, and views of inputs."""
        # A third constant says how many rows are asked about, where not the whole block's.
        own = function.consts[2] if len(function.consts) > 2 else rows
        last_row = block(
            "last = min(first + rows, args.Nq) - 1",
            last=last, first=function.params[3].name, rows=own,
        )  # fmt: skip
        done = _with_views(function, body, words)
        return replace(done, body=(*last_row, *done.body)) if last.id in _read(body) else done

    def ends(high: Expr) -> Expr:
        """Tiles up to a key; below 0 (which ceil_div may give) is none."""
        return expr("ceil_div(beyond, keys)", beyond=tidy(expr("high + 1", high=high)), keys=keys)

    def tiles_until(high: Expr) -> Expr:
        return intervals.maximum(Num(0), ends(high))

    def first_of(span: intervals.KeyRange) -> Expr:
        """The first tile of the range that is none of the prefix's."""
        tile = expr("low // keys", low=span.low, keys=keys)
        return tile if ranges.prefix is None else intervals.maximum(prefix, tile)

    step: Expr = Name(index.params[4].name)
    if descends(index):
        order = [f.name for f in module.functions]
        if counted_by in order and order.index(counted_by) > order.index(index.name):
            raise TransferError(
                f"{index.name} has to call {counted_by}, which is defined after it",
                fix=f"move {counted_by} before {index.name} in the source",
            )
        step = expr(
            "count[*consts](*at) - 1 - step",
            count=counted_by, consts=tuple(map(Name, index.consts)), step=step,
            at=tuple(Name(p.name) for p in index.params[:4]),
        )  # fmt: skip
    ranges, of_index = ranges_of(count), ranges_of(index)
    if ranges.rest is None:
        high = ranges.prefix.high if ranges.prefix else Num(-1)
        counted = block("return tiles", tiles=tiles_until(high))
        indexed = block("return step", step=step)
    else:
        assert of_index.rest is not None
        later = expr("ends - begin", ends=ends(ranges.rest.high), begin=begin)
        later = intervals.maximum(Num(0), later)
        start = block("begin = tile", begin=begin, tile=first_of(ranges.rest))
        if ranges.prefix is None:
            counted = (*start, Return(later))
            indexed = block("return first + step", first=first_of(of_index.rest), step=step)
        else:
            assert of_index.prefix is not None
            counted = block(
                """
                prefix = tiles
                *start
                return prefix + later
                """,
                prefix=prefix, tiles=tiles_until(ranges.prefix.high), start=start, later=later,
            )  # fmt: skip
            indexed = block(
                """
                prefix = tiles
                visit = step
                return visit if visit < prefix else first + (visit - prefix)
                """,
                prefix=prefix, tiles=tiles_until(of_index.prefix.high), visit=visit, step=step,
                first=first_of(of_index.rest),
            )  # fmt: skip
    first_key = expr("tile * keys", tile=full.params[4].name, keys=keys)
    last_key = expr("first + keys - 1", first=first_key, keys=keys)
    extra = tile_full(words.of_schedule(case.keep, full), of_block(full), first_key, last_key)
    return {
        count.name: finish(count, counted),
        index.name: finish(index, indexed),
        full.name: finish(full, _and_return(full, extra)),
    }


def descends(index: Function) -> bool:
    """True when the kernel visits its tiles from the last to the first."""
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


def _title(case: Case) -> str:
    return _visiting(intervals.slack(case.keep))[0]


def _reason(case: Case) -> str:
    return _visiting(intervals.slack(case.keep))[1]


KEEP = Rule(
    "keep",
    "Keep what the spec keeps",
    "each pair of a tile that is kept in part is tested: the test becomes the spec's mask",
    "mask",
    applies=lambda case: case.masked,
    edit=_edit_keep,
    after=("exponent",),
)
VISIT = Rule(
    "visit",
    _title,
    _reason,
    "mask",
    applies=lambda case: case.masked and case.lists is None,
    edit=_edit_schedule,
    after=("keep",),
)
FIND = Rule(
    "find_tiles",
    "Find the tiles that hold a kept pair",
    "small kernels sort each block's key tiles into masked, kept in part and kept whole: most by "
    "the smallest and largest of what the mask reads, the others by looking at their pairs, whose "
    "mask is stored as bits",
    "mask",
    applies=lambda case: case.lists is not None,
    edit=_find_tiles,
    after=("visit",),
)
LISTED = Rule(
    "listed",
    "Visit the tiles of a list",
    "the mask depends on data: which key tiles of a block of rows hold a kept pair, and "
    "which only such, is read from a list that the device makes first",
    "mask",
    applies=lambda case: case.lists is not None,
    edit=lambda module, case: _replaced(module, from_lists(module, case.found, case.the_lists())),
    after=("find_tiles",),
)
