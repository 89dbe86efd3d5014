"""Edits at the places where a score tile is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.cuir.nodes import Assign, Call, Expr, Lambda, Module, Name, Num, Stmt, Tuple, blocks
from engine.transfer.match import Attention, Site, block_at, find_sites
from engine.transfer.rewrite import Block, free_names, map_function, with_block

X = Name("x")
NEG_INF = Num(float("-inf"))


def edit_site(module: Module, found: Attention, edit: Callable[[Site, Block], Block]) -> Module:
    """`edit` applied to the statement list of every site (found again: indices may have moved)."""
    for number in range(len(found.sites)):
        site = find_sites(module, found.kernel)[number]
        body = block_at(module, site.block)
        module = put_block(module, site.block, edit(site, body))
    return module


def put_block(module: Module, block: tuple[str | int, ...], body: Block) -> Module:
    def put(stmts: Block, path: tuple[str | int, ...]) -> Block:
        if not path:
            return body
        index, branch = path[0], path[1]
        assert isinstance(index, int)
        stmt = stmts[index]
        inner = dict(blocks(stmt))[str(branch)]
        return (
            *stmts[:index],
            with_block(stmt, str(branch), put(inner, path[2:])),
            *stmts[index + 1 :],
        )

    return map_function(module, str(block[0]), lambda f: replace(f, body=put(f.body, block[1:])))


def score_map(site: Site, body: Expr) -> Assign:
    params: tuple[str, ...] = ("x",)
    kwargs: tuple[tuple[str, Expr], ...] = ()
    if {"i", "j"} & free_names(body):
        params, kwargs = ("x", "i", "j"), (("at", Tuple((site.rows, site.keys))),)
    return Assign(site.score, Call("map", (Name(site.score), Lambda(params, body)), kwargs))


def statements(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for _, inner in blocks(stmt):
            yield from statements(inner)


def is_element_op(stmt: Stmt, found: Attention, *ops: str) -> bool:
    """True for a map or keep of a score tile, what works on the score's elements; or for `ops`."""
    match stmt:
        case Assign(target, Call(op, (Name(first), *_))) if op in (ops or ("map", "keep")):
            return target == first and target in {s.score for s in found.sites}
    return False
