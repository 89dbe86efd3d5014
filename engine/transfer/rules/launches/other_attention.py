"""Another attention of the same score, mask and values, whose output goes into this one's.

The kernel runs twice: first on the other q and k, into a tensor of the caller's, then on q and k
themselves, where each element of the output becomes what the spec makes of both. The second launch
reads each element of the first one's output once, as it stores its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    Index,
    Module,
    Name,
    Num,
    Param,
    Return,
    Stmt,
    Tuple,
    map_stmt_exprs,
)
from engine.cuir.rewrite import (
    Block,
    map_expr,
    map_function,
    map_statements,
    substitute,
    substitute_expr,
)
from engine.cuir.static.calls import is_launch
from engine.cuir.static.facts import own_names
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import block, expr, stmt
from engine.errors import TransferError
from engine.scalar_algebra.rewrite import rename
from engine.spec.recipes.recipe import OTHER, Input, Recipe
from engine.transfer.binding import kernel_order
from engine.transfer.rules.base.input_views import names_in
from engine.transfer.rules.base.rule import Case, Rule


def with_other_output(recipe: Recipe, module: Module) -> Recipe:
    """The recipe with an input that holds the other attention's output, which the launch fills."""
    if recipe.other is None:
        return recipe
    taken = {f.name for f in module.fields} | {f.name for f in module.functions}
    taken |= {n for f in module.functions for n in own_names(f)}
    fresh = Fresh(taken | {n for i in recipe.inputs for n in (i.name, *i.dims)})
    dims = kernel_order(recipe.output_dims, "o")
    made = Input(fresh("other_output"), "extra", "T", dims, made=OTHER)
    element = Index(Name(made.name), tuple(map(Name, ("b", "h", "i", "d"))))
    value = rename(recipe.other.value, {OTHER.id: element})
    other = replace(recipe.other, value=value)
    return replace(recipe, inputs=(*recipe.inputs, made), other=other)


def of_other(case: Case) -> str:
    """The kernel's parameter that is 1 while it computes the other attention."""
    taken = names_in(case.module, case.found) | {f.name for f in case.module.fields}
    return Fresh(taken | case.words.names)("of_other")


def twice(module: Module, case: Case) -> Module:
    """The kernel on the tensors of its launch, and a launch for the other attention before its
    own."""
    other, found = case.recipe.other, case.found
    assert other is not None
    output = next(i.name for i in case.recipe.inputs if i.made == OTHER)
    extra = {i.name for i in case.used}  # k may be that of both
    instead: dict[Expr, Expr] = {
        Attr(Name("args"), found.fields[role]): Attr(Name("args"), name)
        for role, name in (("q", other.q), ("k", other.k), ("o", output))
        if role == "o" or name in extra
    }
    flag = of_other(case)

    def chosen(e: Expr) -> Expr | None:
        other_one = instead.get(e)
        if other_one is None:
            return None
        return expr("other if flag == 1 else own", other=other_one, own=e, flag=flag)

    def change(one: Stmt) -> Stmt:
        match one:
            case Do(Call("store_rows", _)):  # of no use, and a refused second launch writes nothing
                return stmt("if flag == 0:\n    *one", flag=flag, one=(one,))
        return map_stmt_exprs(one, lambda e: map_expr(e, chosen))

    module = map_statements(module, found.kernel, change)
    module = map_function(
        module, found.kernel, lambda f: replace(f, params=(*f.params, Param(flag, "i32")))
    )
    host = module.function(found.host)
    fresh = Fresh(own_names(host) | {f.name for f in module.functions})
    maps: dict[str, str] = {}

    def launched(stmts: Block) -> Block:
        out: list[Stmt] = []
        for one in stmts:
            call = _launch(one, found.kernel)
            if isinstance(one, Assign) and call is None:
                out += [one, *_of_other(one, instead, maps, fresh)]
                continue
            if call is None:
                out.append(one)
                continue
            first, own = (_with(call, n, m) for n, m in ((1, maps), (0, {})))
            status = fresh("other_status")
            out += block(
                """
                status = first
                if status != success:
                    return status
                """,
                status=status, first=first,
            )  # fmt: skip
            out.append(map_stmt_exprs(one, partial(substitute_expr, old=call, new=own)))
        return tuple(out)

    changed = launched(host.body)
    if changed == host.body or not any(_launch(s, found.kernel) for s in host.body):
        raise TransferError(f"the launch of {found.kernel} does not stand in the host's own body")
    return map_function(module, found.host, lambda f: replace(f, body=changed))


def _launch(one: Stmt, kernel: str) -> Call | None:
    """The launch of the attention in a statement."""
    value = one.value if isinstance(one, Assign | Return) else None
    if not (isinstance(value, Call) and is_launch(value)):
        return None
    what = value.args[0]
    name = what.base if isinstance(what, Index) else what
    return value if name == Name(kernel) else None


def _of_other(
    one: Assign, instead: dict[Expr, Expr], maps: dict[str, str], fresh: Fresh
) -> list[Stmt]:
    """The same of the other attention's tensor, where the host makes something of a tensor."""
    value = map_expr(substitute(one.value, {n: Name(m) for n, m in maps.items()}), instead.get)
    if value == one.value:
        return []
    maps[one.target] = fresh(f"other_{one.target}")
    return [Assign(maps[one.target], value)]


def _with(call: Call, flag: int, maps: dict[str, str]) -> Call:
    kernel, given, *rest = call.args
    assert isinstance(given, Tuple)
    named = {n: Name(m) for n, m in maps.items()}
    items = tuple(substitute(e, named) for e in given.items)
    return replace(call, args=(kernel, Tuple((*items, Num(flag))), *rest))


RULE = Rule(
    "other",
    "Run the kernel on the other q and k first",
    "the spec combines two attentions that differ in q and k alone: the first launch leaves the "
    "other one's output in a tensor of the caller's, and the second one combines each element with "
    "its own as it stores it",
    "other",
    applies=lambda case: case.recipe.other is not None,
    edit=twice,
    after=("kv_head",),
)
