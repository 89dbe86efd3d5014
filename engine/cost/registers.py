"""Registers that register tiles take, from what is alive at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.cuir.nodes import (
    Assign,
    Do,
    Expr,
    For,
    If,
    Opaque,
    Return,
    Stmt,
    names_in,
    stmt_exprs,
)
from engine.cuir.types import TileType

OTHER = 40  # addresses, loop counters, fragments in flight: what ptxas needs beside the tiles


def tile_registers(tile: TileType, threads: int) -> float:
    """32-bit registers of one thread that a tile takes, `threads` sharing it."""
    layout = tile.layout
    base = layout.base or layout
    if layout.role == "row":
        return base.rows * 4 / threads
    if layout.role == "col":
        return base.cols / 4
    size = 4 if tile.dtype in ("f32", "i32") else 2
    return layout.rows * layout.cols * size / (4 * threads)


def most_alive(body: Sequence[Stmt], tiles: Mapping[str, TileType], threads: int) -> float:
    """The most registers per thread that the named tiles take at one place of `body`."""
    peak = 0.0

    def registers(alive: frozenset[str]) -> float:
        return sum(tile_registers(tiles[n], threads) for n in alive)

    def names(expr: Expr) -> frozenset[str]:
        return names_in(expr) & tiles.keys()

    def block(stmts: Sequence[Stmt], after: frozenset[str]) -> frozenset[str]:
        """What is alive before the statements, given what is alive after them."""
        nonlocal peak
        alive = after
        for stmt in reversed(stmts):
            read = frozenset[str]().union(*(names(e) for e in stmt_exprs(stmt)))
            match stmt:
                case Assign(target, _):
                    peak = max(peak, registers(alive | ({target} & tiles.keys())))
                    alive = (alive - {target}) | read
                case If(_, then, other):
                    alive = block(then, alive) | block(other, alive) | read
                case For():
                    # What is alive at the end of a round is alive at the start of the next.
                    around = block(stmt.body, alive) | alive
                    alive = block(stmt.body, around) | alive | read
                case Opaque(_, reads, writes, _):
                    alive = (alive - frozenset(writes)) | (frozenset(reads) & tiles.keys())
                case Do() | Return():
                    alive = alive | read
            peak = max(peak, registers(alive))
        return alive

    block(body, frozenset())
    return peak
