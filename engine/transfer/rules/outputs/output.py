"""What happens to the normalised output before it is stored: gates and scales.

What a row's elements share goes into the factor that normalises the row; what each element has
itself is taken up in the accumulator's layout.
"""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    Module,
    Name,
    Stmt,
    free_names,
    walk_expr,
)
from engine.cuir.rewrite import put_before, substitute
from engine.cuir.static.kernel_names import locals_for
from engine.cuir.text.quote import expr, stmt
from engine.transfer.match import block_at
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import X, put_block, row_map
from engine.transfer.rules.elements.arithmetic import cheap
from engine.transfer.rules.outputs.sink import ending_of


def change_output(module: Module, case: Case) -> Module:
    """The output as the spec has it, before the store."""
    value = case.words.of_kernel(scalar_inputs(case.recipe.output, case.recipe))
    if case.softmax and "d" not in free_names(value):
        return _change_rows(module, case, value)
    return _change_elements(module, case, value)


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
    change = row_map(
        inverse.target, (Name(inverse.target),), (one,), body, found.sites[0].rows
    )  # fmt: skip
    at = end.inverse + 1
    return put_block(module, end.block, (*stmts[:at], change, *stmts[at:]))


def _change_elements(module: Module, case: Case, value: Expr) -> Module:
    """Each element x of the accumulator, in row i and column d, becomes `value`."""
    found = case.found
    body = _of_nothing(cheap(substitute(value, {"o": X})), X)
    if {"i", "d"} & free_names(body):
        change = stmt("o = map(o, lambda x, i, d: body, at=[row, 0])", o=found.accumulator,
                      body=body, row=found.sites[0].rows)  # fmt: skip
    else:
        change = stmt("o = map(o, lambda x: body)", o=found.accumulator, body=body)

    return put_before(
        module, found.kernel, lambda one: (change,) if _stores(one, found.accumulator) else ()
    )


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
    "the spec multiplies the result: by what a row shares in the factor that normalises it, by "
    "what each element has itself before the store",
    "output",
    applies=lambda case: case.recipe.changes_output,
    edit=change_output,
    after=("lse_base",),
)
