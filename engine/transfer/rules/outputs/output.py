"""What happens to the normalised output before it is stored: gates, scales and norms.

What a row's elements share goes into the factor that normalises the row; what each element has
itself is taken up in the accumulator's layout, and so are sums over a row's columns.
"""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Stmt,
    Tuple,
    free_names,
    rebuild,
    walk_expr,
)
from engine.cuir.rewrite import map_expr, put_before, substitute, substitute_expr
from engine.cuir.static.facts import statements
from engine.cuir.static.kernel_names import locals_for
from engine.cuir.text.quote import block, expr, stmt
from engine.errors import TransferError
from engine.spec.recipes.recipe import OUTPUT
from engine.transfer.match import Attention, block_at
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import X, map_rows, put_block
from engine.transfer.rules.elements.arithmetic import cheap
from engine.transfer.rules.elements.row_values import costly
from engine.transfer.rules.launches.other_attention import of_other
from engine.transfer.rules.outputs.sink import ending_of


def change_output(module: Module, case: Case) -> Module:
    """The output as the spec has it, before the store."""
    value = case.words.of_kernel(scalar_inputs(case.recipe.output, case.recipe))
    norm = any(isinstance(e, Lambda) for e in walk_expr(value))
    other = case.recipe.other
    if other is None and not norm and case.softmax and "d" not in free_names(value):
        return _change_rows(module, case, value)
    new: list[Stmt] = []
    if value != OUTPUT:
        new = _rows_by_columns(module, case, value) if norm else _elements(case, value)
    if other is not None:
        both = case.words.of_kernel(scalar_inputs(other.value, case.recipe))
        own = expr("flag == 0", flag=of_other(case))
        new = [If(own, (*_elements(case, both), *new))]
    accumulator = case.found.accumulator
    return put_before(
        module, case.found.kernel, lambda one: tuple(new) if _stores(one, accumulator) else ()
    )


def _change_rows(module: Module, case: Case, value: Expr) -> Module:
    """The factor that normalises a row becomes what the spec makes of it."""
    found = case.found
    end = ending_of(module, case)
    stmts = block_at(module, end.block)
    inverse = stmts[end.inverse]
    assert isinstance(inverse, Assign)
    fresh = locals_for(module, [module.function(found.kernel)], case.words.names)
    one = Name(fresh("share"))
    body = _of_nothing(substitute(value, {"o": one}), one)
    change = map_rows(
        inverse.target, (Name(inverse.target),), (one,), body, found.sites[0].rows
    )  # fmt: skip
    at = end.inverse + 1
    return put_block(module, end.block, (*stmts[:at], change, *stmts[at:]))


def _elements(case: Case, value: Expr) -> list[Stmt]:
    """Each element x of the accumulator, in row i and column d, becomes `value`."""
    found = case.found
    body = _of_nothing(cheap(substitute(value, {"o": X})), X)
    if {"i", "d"} & free_names(body):
        return [stmt("o = map(o, lambda x, i, d: body, at=[row, 0])", o=found.accumulator,
                     body=body, row=found.sites[0].rows)]  # fmt: skip
    return [stmt("o = map(o, lambda x: body)", o=found.accumulator, body=body)]


def _rows_by_columns(module: Module, case: Case, value: Expr) -> list[Stmt]:
    """A norm of the output's rows: sums over the accumulator's columns, then each element."""
    found = case.found
    fresh = locals_for(module, [module.function(found.kernel)], case.words.names)
    rows = Index(Name("row_of"), (_layout_of(module, found),))
    new: list[Stmt] = []
    totals: dict[str, str] = {}  # the names of row vectors, and of their elements
    width = next(i.dims[-1] for i in case.recipe.inputs if i.role == "v")
    built = dict(module.spec)  # an extent may be the number that this specialisation is built for
    columns = [case.words.of_kernel(Name(size)) for size in (width, "Dv")]
    columns.append(built.get("Dv", built["D"]))

    def summed(e: Expr) -> Expr | None:
        match e:
            case Call("sum_over", (Lambda((column,), body), extent)):
                if extent not in columns:
                    raise TransferError(
                        "a sum over some of the output's columns is carried by no rule"
                    )
                own = substitute_expr(body, Index(Name("o"), (Name(column),)), X)
                if any(isinstance(x, Index) and x.base == Name("o") for x in walk_expr(own)):
                    raise TransferError(
                        "a sum that reads the output at other columns is carried by no rule"
                    )
                terms, total = Name(fresh("squares")), Name(fresh("total"))
                new.extend(block(
                    """
                    terms = map(o, lambda x: own)
                    total = zeros(rows)
                    total = row_sum(terms, total)
                    total = row_reduce(total)
                    """,
                    terms=terms, o=found.accumulator, own=own, total=total, rows=rows,
                ))  # fmt: skip
                totals[total.id] = fresh(f"{total.id}_at")
                return Name(totals[total.id])
            case Call("max_over"):
                raise TransferError("a maximum over the output's columns is carried by no rule")
        return None

    body = _of_nothing(cheap(substitute(map_expr(value, summed), {"o": X})), X)
    vectors = {element: total for total, element in totals.items()}
    factors: dict[Expr, str] = {}

    def once_a_row(e: Expr) -> Expr:
        """What takes a row's totals alone and is not cheap, as an element of a row vector."""
        names = free_names(e)
        own = names & {X.id, "i", "d"} or any(isinstance(x, Index) for x in walk_expr(e))
        if own or not names & vectors.keys() or not costly(e):
            return rebuild(e, once_a_row)
        if e not in factors:
            factors[e] = fresh("factor")
            of = [v for v in vectors if v in names]
            given = tuple(Name(vectors[v]) for v in of)
            new.append(map_rows(factors[e], given, tuple(map(Name, of)), e, found.sites[0].rows))
        return Name(f"{factors[e]}_at")

    body = once_a_row(body)
    vectors |= {f"{factor}_at": factor for factor in factors.values()}
    read = [v for v in vectors if v in free_names(body)]
    places = ("i", "d") if {"i", "d"} & free_names(body) else ()
    f = Lambda(("x", *read, *places), body)
    at = (("at", Tuple((found.sites[0].rows, Num(0)))),) if places else ()
    given = (Name(found.accumulator), *(Name(vectors[v]) for v in read))
    return [*new, Assign(found.accumulator, Call("map", (*given, f), at))]


def _layout_of(module: Module, found: Attention) -> Expr:
    """The layout of the accumulator of the output."""
    for one in statements(module.function(found.kernel)):
        match one:
            case Assign(name, Call("zeros", (layout,))) if name == found.accumulator:
                return layout
    raise TransferError(f"{found.kernel} does not begin its accumulator with zeros")


def _of_nothing(value: Expr, element: Name) -> Expr:
    """`value`, but 0 of an element that is 0: without keys a factor such as 1 / Nk is infinite, and
    nothing times it is still nothing."""
    divides = any(isinstance(e, Binary) and e.op == "/" for e in walk_expr(value))
    return expr("0.0 if x == 0.0 else value", x=element, value=value) if divides else value


def _stores(one: Stmt, accumulator: str) -> bool:
    match one:
        case Do(Call("store", (_, Name(name)))):
            return name == accumulator
    return False


RULE = Rule(
    "output",
    "Change the output before it is stored",
    "the spec changes the result: by what a row shares in the factor that normalises it, by what "
    "each element has itself, or a norm of the row, before the store",
    "output",
    applies=lambda case: case.recipe.changes_output,
    edit=change_output,
    after=("lse_base",),
)
