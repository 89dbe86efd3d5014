"""Random legal edits of a lifted module: what a rule, a model or a person may ask for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from engine.cuir.canonical import map_expr
from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    Field,
    For,
    Function,
    If,
    Lambda,
    Module,
    Name,
    Num,
    Param,
    Path,
    Return,
    Stmt,
    blocks,
    walk,
)
from tests.engine.cuir.random_modules import edit_module

NK, NQ = Attr(Name("args"), "Nk"), Attr(Name("args"), "Nq")
ROW, COL = Name("i"), Name("j")

sizes: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([NK, NQ]) | st.builds(Num, st.integers(0, 9)),
    lambda e: st.builds(Binary, st.sampled_from(["+", "-", "*", "//", "%"]), e, e),
    max_leaves=3,
)
coordinates: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([ROW, COL, NK, NQ]) | st.builds(Num, st.integers(0, 9)),
    lambda e: st.builds(Binary, st.sampled_from(["+", "-", "//"]), e, e),
    max_leaves=3,
)
predicates: st.SearchStrategy[Expr] = st.recursive(
    st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "=="]), coordinates, coordinates),
    lambda p: st.builds(Bool, st.sampled_from(["and", "or"]), p, p),
    max_leaves=4,
)
scores: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([Name("x"), Attr(Name("args"), "scale"), Num(0.5), Num(2.0)]),
    lambda e: (
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), e, e)
        | st.builds(lambda a: Call("tanh", (a,)), e)
    ),
    max_leaves=4,
)
effects: st.SearchStrategy[Stmt] = st.sampled_from(
    [Do(Call("sync")), Do(Call("commit_async")), Do(Call("wait_async", (Num(2),)))]
)


def _kernels(module: Module) -> list[tuple[Path, Stmt]]:
    names = {f.name for f in module.functions if f.kind == "kernel"}
    return [(path, stmt) for path, stmt in walk(module) if path[0] in names]


def _devices(module: Module) -> list[Function]:
    """Device functions of the argument struct: the tile schedule."""
    return [f for f in module.functions if f.kind == "device" and f.params[0].name == "args"]


def _with_function(module: Module, function: Function) -> Module:
    functions = tuple(function if f.name == function.name else f for f in module.functions)
    return replace(module, functions=functions)


def _insert(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    path, stmt = draw(st.sampled_from(_kernels(module)))
    scalar = st.builds(Assign, st.just(fresh), sizes)
    guarded = st.builds(lambda c, s: If(Compare("<", c, Num(3)), (s,)), sizes, effects)
    both = st.builds(lambda c, a, b: If(Compare("<", c, NK), (a,), (b,)), sizes, effects, effects)
    loop = st.builds(lambda n, s: For(f"{fresh}v", Num(0), n, Num(1), (s,)), sizes, effects)
    down = st.builds(lambda n, s: For(f"{fresh}v", n, Num(-1), Num(-1), (s,)), sizes, effects)
    new = draw(scalar | effects | guarded | both | loop | down)
    order = (new, stmt) if draw(st.booleans()) else (stmt, new)
    return edit_module(module, path, order)


def _is_effect(stmt: Stmt) -> bool:
    return isinstance(stmt, Do)


def _delete(draw: st.DrawFn, module: Module) -> Module:
    places = [path for path, stmt in _kernels(module) if _is_effect(stmt)]
    return edit_module(module, draw(st.sampled_from(places)), ()) if places else module


def _move(draw: st.DrawFn, module: Module) -> Module:
    """An effect without operands goes elsewhere."""
    places = [(p, s) for p, s in _kernels(module) if isinstance(s, Do) and not s.call.args]
    if not places:
        return module
    path, moved = draw(st.sampled_from(places))
    module = edit_module(module, path, ())
    to, stmt = draw(st.sampled_from(_kernels(module)))
    return edit_module(module, to, (stmt, moved))


def _wrap(draw: st.DrawFn, module: Module) -> Module:
    places = [(p, s) for p, s in _kernels(module) if _is_effect(s)]
    if not places:
        return module
    path, stmt = draw(st.sampled_from(places))
    other = (draw(effects),) if draw(st.booleans()) else ()
    return edit_module(module, path, (If(Compare("<", draw(sizes), NQ), (stmt,), other),))


def _unwrap(draw: st.DrawFn, module: Module) -> Module:
    places = [(p, s) for p, s in _kernels(module) if isinstance(s, If) and not s.other]
    safe = [(p, s) for p, s in places if isinstance(s, If) and all(_is_effect(x) for x in s.then)]
    if not safe:
        return module
    path, stmt = draw(st.sampled_from(safe))
    assert isinstance(stmt, If)
    return edit_module(module, path, stmt.then)


def _mask(draw: st.DrawFn, module: Module) -> Module:
    """The keep predicate of every keep."""
    wanted = draw(predicates)
    for path, stmt in _kernels(module):
        match stmt:
            case Assign(target, Call("keep", (s, Lambda(params)), kwargs)):
                value = Call("keep", (s, Lambda(params, wanted)), kwargs)
                module = edit_module(module, path, (Assign(target, value),))
    return module


def _score(draw: st.DrawFn, module: Module) -> Module:
    places = [
        (p, s) for p, s in _kernels(module)
        if isinstance(s, Assign) and isinstance(s.value, Call) and s.value.fn == "keep"
    ]  # fmt: skip
    if not places:
        return module
    path, stmt = draw(st.sampled_from(places))
    assert isinstance(stmt, Assign)
    made = Assign(stmt.target, Call("map", (Name(stmt.target), Lambda(("x",), draw(scores)))))
    return edit_module(module, path, (made, stmt))


def _schedule(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    function = draw(st.sampled_from(_devices(module)))
    last = function.body[-1]
    assert isinstance(last, Return) and last.value is not None
    value: Expr = Binary("+", Name(fresh), last.value)
    if isinstance(last.value, Compare | Bool):
        value = Bool("and", Compare("<", Name(fresh), Num(7)), last.value)
    early = If(Compare("<", Name(fresh), Num(0)), (Return(Num(0)),))
    if isinstance(last.value, Compare | Bool):
        early = If(Compare("<", Name(fresh), Num(0)), (Return(Num(False)),))
    guard = (early,) if draw(st.booleans()) else ()
    body = (*function.body[:-1], Assign(fresh, draw(sizes)), *guard, Return(value))
    return _with_function(module, replace(function, body=body))


def _constant(draw: st.DrawFn, module: Module) -> Module:
    """A number somewhere in the host plan, or a loop's bound in the kernel."""
    host = next(f for f in module.functions if f.kind == "host")
    places = [
        ((host.name, i), s) for i, s in enumerate(host.body)
        if isinstance(s, Assign) and isinstance(s.value, Num)
    ]  # fmt: skip
    loops = [(p, s) for p, s in _kernels(module) if isinstance(s, For)]
    path, stmt = draw(st.sampled_from([*places, *loops]))
    if isinstance(stmt, Assign):
        return edit_module(module, path, (replace(stmt, value=Num(draw(st.integers(1, 8)))),))
    assert isinstance(stmt, For)
    changed = draw(
        st.sampled_from([replace(stmt, start=draw(sizes)), replace(stmt, stop=draw(sizes))])
    )
    return edit_module(module, path, (changed,))


def _fields(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    at = draw(st.integers(0, len(module.fields)))
    new = Field(fresh, draw(st.sampled_from(["tensor", "i32", "i64", "f32"])))
    return replace(module, fields=(*module.fields[:at], new, *module.fields[at:]))


def _parameter(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """A device function gets a parameter, or a constant, and every call passes one."""
    function = draw(st.sampled_from(_devices(module)))
    constant = draw(st.booleans())
    changed = (
        replace(function, consts=(*function.consts, fresh))
        if constant
        else replace(function, params=(*function.params, Param(fresh, "i32")))
    )

    def call(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or expr.fn != function.name:
            return expr
        if constant:
            return replace(expr, params=(*expr.params, Num(3)))
        return replace(expr, args=(*expr.args, Num(5)))

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out = []
        for stmt in body:
            changes: dict[str, object] = {
                name: block(inner) for name, inner in blocks(stmt) if inner
            }
            for name in ("value", "call", "cond", "start", "stop", "step"):
                if isinstance(getattr(stmt, name, None), Expr):
                    changes[name] = map_expr(getattr(stmt, name), call)
            out.append(replace(stmt, **changes))  # type: ignore[arg-type]
        return tuple(out)

    functions = tuple(
        replace(changed if f.name == function.name else f, body=block(f.body))
        for f in module.functions
    )
    return replace(module, functions=functions)


def _helper(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """A new device function before the kernel."""
    body = (
        If(Compare("<", Name("n"), draw(sizes)), (Return(Num(1)),)),
        Return(Binary("*", Name("n"), draw(sizes))),
    )
    made = Function(
        "device", fresh, (Param("args"), Param("n", "i32")), draw(st.sampled_from([(), ("BN",)])),
        (), body,
    )  # fmt: skip
    at = draw(st.integers(0, len(module.functions) - 1))
    functions = (*module.functions[:at], made, *module.functions[at:])
    return replace(module, functions=functions)


EDITS = (
    "insert", "delete", "move", "wrap", "unwrap", "mask", "score", "schedule", "constant",
    "fields", "parameter", "helper",
)  # fmt: skip


@st.composite
def edits(draw: st.DrawFn, module: Module) -> Module:
    """`module` with one to four legal edits."""
    for number in range(draw(st.integers(1, 4))):
        fresh = f"t{number}"
        match draw(st.sampled_from(EDITS)):
            case "insert":
                module = _insert(draw, module, fresh)
            case "delete":
                module = _delete(draw, module)
            case "move":
                module = _move(draw, module)
            case "wrap":
                module = _wrap(draw, module)
            case "unwrap":
                module = _unwrap(draw, module)
            case "mask":
                module = _mask(draw, module)
            case "score":
                module = _score(draw, module)
            case "schedule":
                module = _schedule(draw, module, fresh)
            case "constant":
                module = _constant(draw, module)
            case "fields":
                module = _fields(draw, module, fresh)
            case "parameter":
                module = _parameter(draw, module, fresh)
            case "helper":
                module = _helper(draw, module, fresh)
    return module
