"""Random CuIR modules and random edits of them, for properties of trees (not of meaning)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

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
    Opaque,
    Param,
    Path,
    Return,
    Select,
    Slice,
    Stmt,
    Str,
    Tuple,
    Unary,
    blocks,
    walk,
)  # fmt: skip

names = st.sampled_from(["a", "b", "s", "m", "acc", "tile_sum", "x1"])
fns = st.sampled_from(["gemm", "sync", "map", "row_max", "f"])


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.builds(Attr, st.just(Name("args")), names),
        st.builds(
            Call,
            fns,
            st.lists(inner, max_size=2).map(tuple),
            st.lists(st.tuples(st.sampled_from(["at", "box"]), inner), max_size=1).map(tuple),
            st.lists(inner, max_size=1).map(tuple),
        ),
        st.builds(
            Index, st.builds(Name, names), st.lists(inner, min_size=1, max_size=2).map(tuple)
        ),
        st.builds(Index, st.builds(Name, names), inner.map(lambda e: (Slice(e),))),
        st.builds(Unary, st.sampled_from(["not", "~"]), inner),
        st.builds(lambda op, p: Binary(op, *p), st.sampled_from("+-*/%"), pairs),
        st.builds(lambda op, p: Compare(op, *p), st.sampled_from(["<", "<=", "=="]), pairs),
        st.builds(lambda op, p: Bool(op, *p), st.sampled_from(["and", "or"]), pairs),
        st.builds(Select, inner, inner, inner),
        st.builds(Lambda, st.just(("i", "j")), inner),
        st.builds(Tuple, st.lists(inner, max_size=2).map(tuple)),
    )


exprs: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(
        st.builds(
            Num, st.integers(-9, 9) | st.sampled_from([0.5, 1.0, float("-inf")]) | st.booleans()
        ),
        st.builds(Name, names),
        st.builds(Str, st.sampled_from(["sm_80", "it's"])),
    ),
    _grow,
    max_leaves=3,
)

simple: st.SearchStrategy[Stmt] = st.one_of(
    st.builds(Assign, names, exprs),
    st.builds(Do, st.builds(Call, fns, st.lists(exprs, max_size=2).map(tuple))),
    st.builds(Return, st.none() | exprs),
    st.builds(Opaque, st.sampled_from(['asm volatile("x");', "y++;"])),
)


def _nest(inner: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    body = st.lists(inner, max_size=3).map(tuple)
    steps = st.just(Num(1)) | names.map(lambda name: Call(THEN, (Name(name),)))
    return st.one_of(
        st.builds(For, names, st.just(Num(0)), exprs, steps, body),
        st.builds(If, exprs, body, body),
        st.builds(Opaque, st.just("call(z);"), st.just(("a",)), st.just(("b",)), body),
    )


stmts: st.SearchStrategy[Stmt] = st.recursive(simple, _nest, max_leaves=4)
bodies = st.lists(stmts, max_size=4).map(tuple)


def _functions(names_used: list[str]) -> st.SearchStrategy[tuple[Function, ...]]:
    return st.tuples(
        *(
            st.builds(
                Function,
                st.sampled_from(["host", "kernel", "device"]),
                st.just(name),
                st.sampled_from([(), (Param("args"),), (Param("args"), Param("q0", "i32"))]),
                st.sampled_from([(), ("T",), ("BM", "BN")]),
                st.sampled_from([(), (("threads", Num(128)),)]),
                bodies,
            )
            for name in names_used
        )
    )


_fields = st.lists(
    st.builds(
        Field,
        st.sampled_from(["q", "k", "v", "B", "Nk", "scale"]),
        st.sampled_from(["tensor", "i32"]),
    ),
    max_size=4,
    unique_by=lambda f: f.name,
).map(tuple)

modules: st.SearchStrategy[Module] = st.builds(
    Module,
    st.sampled_from([(("arch", Str("sm_80")),), (("arch", Str("sm_90a")), ("D", Num(64)))]),
    _fields,
    st.permutations(["flash_fwd", "tile_count", "launch"])
    .flatmap(lambda p: st.integers(0, 3).map(lambda n: p[:n]))
    .flatmap(_functions),
)


def edit_at(body: tuple[Stmt, ...], path: Path, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` with the statement at `path` (without the function's name) replaced by `new`."""
    position, rest = path[0], path[1:]
    assert isinstance(position, int)
    if not rest:
        return (*body[:position], *new, *body[position + 1 :])
    inner = dict(blocks(body[position]))
    branch = str(rest[0])
    changed = replace(body[position], **{branch: edit_at(inner[branch], rest[1:], new)})
    return (*body[:position], changed, *body[position + 1 :])


def edit_module(module: Module, path: Path, new: tuple[Stmt, ...]) -> Module:
    functions = tuple(
        replace(f, body=edit_at(f.body, path[1:], new)) if f.name == path[0] else f
        for f in module.functions
    )
    return replace(module, functions=functions)


@st.composite
def edited(draw: st.DrawFn, base: Module) -> Module:
    """`base` with a few statements inserted, deleted, doubled, wrapped, changed or moved."""
    module = base
    for _ in range(draw(st.integers(1, 4))):
        places = list(walk(module))
        if not places:
            return module
        path, stmt = draw(st.sampled_from(places))
        match draw(st.sampled_from(["insert", "delete", "wrap", "change", "move", "unwrap"])):
            case "insert":
                module = edit_module(module, path, (draw(stmts), stmt))
            case "delete":
                module = edit_module(module, path, ())
            case "wrap":
                module = edit_module(module, path, (If(draw(exprs), (stmt,)),))
            case "change" if isinstance(stmt, Assign):
                module = edit_module(module, path, (replace(stmt, value=draw(exprs)),))
            case "move":
                module = edit_module(module, path, ())
                left = list(walk(module))
                if left:
                    to, there = draw(st.sampled_from(left))
                    module = edit_module(module, to, (there, stmt))
            case "unwrap":
                inner = tuple(s for _, block in blocks(stmt) for s in block)
                module = edit_module(module, path, inner or (stmt,))
            case _:
                pass
    return module
