"""Edits at the places where a score tile is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    Module,
    Name,
    Stmt,
    blocks,
    free_names,
    with_blocks,
)
from engine.cuir.rewrite import Block, map_function
from engine.cuir.text.quote import stmt
from engine.transfer.match import Attention, Site, block_at, find_sites

X = Name("x")


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
        one = stmts[index]
        inner = dict(blocks(one))[str(branch)]
        return (
            *stmts[:index],
            with_blocks(one, {str(branch): put(inner, path[2:])}),
            *stmts[index + 1 :],
        )

    return map_function(module, str(block[0]), lambda f: replace(f, body=put(f.body, block[1:])))


def score_map(site: Site, body: Expr) -> Stmt:
    """Each element x of the score tile, in row i and for key j, becomes `body`."""
    if {"i", "j"} & free_names(body):
        return stmt("s = map(s, lambda x, i, j: body, at=[row, key])", s=site.score, body=body,
                    row=site.rows, key=site.keys)  # fmt: skip
    return stmt("s = map(s, lambda x: body)", s=site.score, body=body)


def map_rows(
    target: str, vectors: tuple[Expr, ...], params: tuple[Name, ...], body: Expr, row: Expr
) -> Stmt:
    """A row vector made element by element; `row` is the query row that the first stands for."""
    if "i" in free_names(body):
        return stmt("t = map(*vectors, lambda *of, i: body, at=[row])", t=target, vectors=vectors,
                    of=params, body=body, row=row)  # fmt: skip
    return stmt("t = map(*vectors, lambda *of: body)", t=target, vectors=vectors, of=params,
                body=body)  # fmt: skip


def is_element_op(one: Stmt, found: Attention, *ops: str) -> bool:
    """True for a map or keep of a score tile, what works on the score's elements; or for `ops`."""
    match one:
        case Assign(target, Call(op, (Name(first), *_))) if op in (ops or ("map", "keep")):
            return target == first and target in {s.score for s in found.sites}
    return False
