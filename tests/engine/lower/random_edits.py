"""Random legal edits of a lifted module: what a rule, a model or a person may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st

from engine.cuir.canonical import map_expr
from engine.cuir.nodes import (
    THEN,
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
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Param,
    Path,
    Return,
    Stmt,
    Tuple,
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
    path, stmt = draw(_pick(_kernels(module)))
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
    return edit_module(module, draw(_pick(places)), ()) if places else module


def _move(draw: st.DrawFn, module: Module) -> Module:
    """An effect without operands goes elsewhere."""
    places = [(p, s) for p, s in _kernels(module) if isinstance(s, Do) and not s.call.args]
    if not places:
        return module
    path, moved = draw(_pick(places))
    module = edit_module(module, path, ())
    to, stmt = draw(_pick(_kernels(module)))
    return edit_module(module, to, (stmt, moved))


def _wrap(draw: st.DrawFn, module: Module) -> Module:
    places = [(p, s) for p, s in _kernels(module) if _is_effect(s)]
    if not places:
        return module
    path, stmt = draw(_pick(places))
    other = (draw(effects),) if draw(st.booleans()) else ()
    return edit_module(module, path, (If(Compare("<", draw(sizes), NQ), (stmt,), other),))


def _unwrap(draw: st.DrawFn, module: Module) -> Module:
    places = [(p, s) for p, s in _kernels(module) if isinstance(s, If) and not s.other]
    safe = [(p, s) for p, s in places if isinstance(s, If) and all(_is_effect(x) for x in s.then)]
    if not safe:
        return module
    path, stmt = draw(_pick(safe))
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
    path, stmt = draw(_pick(places))
    assert isinstance(stmt, Assign)
    made = Assign(stmt.target, Call("map", (Name(stmt.target), Lambda(("x",), draw(scores)))))
    return edit_module(module, path, (made, stmt))


def _schedule(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    function = draw(_pick(_devices(module)))
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
    path, stmt = draw(_pick([*places, *loops]))
    if isinstance(stmt, Assign):
        return edit_module(module, path, (replace(stmt, value=Num(draw(st.integers(1, 8)))),))
    assert isinstance(stmt, For)
    changed = draw(
        st.sampled_from([replace(stmt, start=draw(sizes)), replace(stmt, stop=draw(sizes))])
    )
    return edit_module(module, path, (changed,))


def _fields(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    at = draw(st.integers(0, len(module.fields)))
    new = Field(fresh, draw(_pick(["tensor", "i32", "i64", "f32"])))
    return replace(module, fields=(*module.fields[:at], new, *module.fields[at:]))


def _parameter(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """A device function gets a parameter, or a constant, and every call passes one."""
    function = draw(_pick(_devices(module)))
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
        "device", fresh, (Param("args"), Param("n", "i32")), draw(_pick([(), ("BN",)])),
        (), body,
    )  # fmt: skip
    at = draw(st.integers(0, len(module.functions) - 1))
    functions = (*module.functions[:at], made, *module.functions[at:])
    return replace(module, functions=functions)


def _rename(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """A local of a kernel gets another name, maybe one that C++ has already."""
    function = draw(_pick([f for f in module.functions if f.kind == "kernel"]))
    loops = {s.var for _, s in walk(module) if isinstance(s, For)}
    assigned = {s.target for _, s in _kernels(module) if isinstance(s, Assign)}
    targets = sorted(assigned - loops)
    old, new = draw(_pick(targets)), draw(_pick([fresh, "register", "keep"]))
    if any(new in (getattr(s, "target", ""), getattr(s, "var", "")) for _, s in walk(module)):
        return module

    def name(expr: Expr) -> Expr:
        return Name(new) if expr == Name(old) else expr

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out = []
        for stmt in body:
            changes: dict[str, object] = {b: block(inner) for b, inner in blocks(stmt) if inner}
            for part in ("value", "call", "cond", "start", "stop", "step"):
                if isinstance(getattr(stmt, part, None), Expr):
                    changes[part] = map_expr(getattr(stmt, part), name)
            if isinstance(stmt, Assign) and stmt.target == old:
                changes["target"] = new
            out.append(replace(stmt, **changes))  # type: ignore[arg-type]
        return tuple(out)

    return _with_function(module, replace(function, body=block(function.body)))


def _accumulate(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """A variable, a loop that changes it (and may go on from it), and a use behind the loop."""
    path, stmt = draw(_pick(_kernels(module)))
    kind = draw(_pick([Num(0), Num(0.5)]))
    total, var = Name(fresh), Name(f"{fresh}v")
    step = draw(_pick([Num(1), Call(THEN, (total,))])) if kind == Num(0) else Num(1)
    inner: tuple[Stmt, ...] = (
        Assign(f"{fresh}w", Binary("*", var, Num(2))),
        Assign(fresh, Binary("+", total, Name(f"{fresh}w"))),
    )
    if draw(st.booleans()):
        inner = (If(Compare("<", var, NK), inner, (draw(effects),)),)
    new: tuple[Stmt, ...] = (
        Assign(fresh, kind),
        For(f"{fresh}v", Num(0), draw(sizes), step, inner),
        If(Compare("<", total, Num(3)), (draw(effects),)),
    )
    return edit_module(module, path, (*new, stmt))


def _other(draw: st.DrawFn, module: Module) -> Module:
    """An `else` comes, goes or grows."""
    places = [(p, s) for p, s in _kernels(module) if isinstance(s, If)]
    path, stmt = draw(_pick(places))
    assert isinstance(stmt, If)
    gone = all(_is_effect(s) or isinstance(s, If) for s in stmt.other)
    other = () if stmt.other and gone else (*stmt.other, draw(effects))
    return edit_module(module, path, (replace(stmt, other=other),))


def _second_kernel(draw: st.DrawFn, module: Module, fresh: str) -> Module:
    """Another kernel and its launch before the first one's: a pass of its own."""
    host = next(f for f in module.functions if f.kind == "host")
    last = host.body[-1]
    assert isinstance(last, Return) and isinstance(last.value, Call)
    body: tuple[Stmt, ...] = (
        Assign("q0", Binary("*", Call("block_id", (Num(0),)), Name("BM"))),
        Assign("first", Binary("+", Name("q0"), Name("section"))),
        If(Compare("<", Name("first"), NQ), (draw(effects),)),
    )
    options = (("threads", Num(128)), ("min_blocks", Num(2)))[: draw(st.integers(1, 2))]
    made = Function(
        "kernel", fresh, (Param("args"), Param("section", "i32")), ("T", "BM"), options, body
    )
    launch = Call(
        "run",
        (Index(Name(fresh), (Name("T"), Num(64))), Tuple((Name("args"), Num(3)))),
        (("grid", Tuple((draw(sizes),))), ("threads", Num(128)), ("shared", Num(0))),
    )
    status = f"{fresh}s"
    wrong = Compare("!=", Name(status), Name("success"))
    steps = (Assign(status, launch), If(wrong, (Return(Name(status)),)))
    at = module.functions.index(host)
    functions = (
        *module.functions[:at],
        made,
        replace(host, body=(*host.body[:-1], *steps, last)),
        *module.functions[at + 1 :],
    )
    return replace(module, functions=functions)


def _depth(draw: st.DrawFn, module: Module) -> Module:
    """How many copies stay in flight."""
    places = [
        (p, s) for p, s in _kernels(module)
        if isinstance(s, Do) and s.call.fn in ("wait_async", "mma_wait")
    ]  # fmt: skip
    own = {f.name for f in module.functions if "BN" in f.consts}
    path, stmt = draw(_pick([(p, s) for p, s in places if p[0] in own]))
    assert isinstance(stmt, Do)
    depth = draw(_pick([Num(0), Num(3), Name("BN"), Binary("//", Name("BN"), Num(64))]))
    return edit_module(module, path, (Do(replace(stmt.call, args=(depth,))),))


# A module has thousands of choices, and making a failing one smaller takes minutes.
QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
EDITS = (
    "insert", "delete", "move", "wrap", "unwrap", "mask", "score", "schedule", "constant",
    "fields", "parameter", "helper", "rename", "accumulate", "other", "second", "depth",
)  # fmt: skip


def _pick(choices: Sequence[Any]) -> st.SearchStrategy[Any]:
    """One of `choices`; an example that has none is no example."""
    assume(len(choices) > 0)
    return st.sampled_from(choices)


@st.composite
def edits(draw: st.DrawFn, module: Module) -> Module:
    """`module` with one to four legal edits."""
    for number in range(draw(st.integers(1, 4))):
        fresh = f"t{number}"
        match draw(_pick(EDITS)):
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
            case "rename":
                module = _rename(draw, module, fresh)
            case "accumulate":
                module = _accumulate(draw, module, fresh)
            case "other":
                module = _other(draw, module)
            case "second":
                module = _second_kernel(draw, module, fresh)
            case "depth":
                module = _depth(draw, module)
    return module
