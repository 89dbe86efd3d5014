"""Where each statement of a function stands: what holds there, and whether a loop runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cuir.nodes import (
    Call,
    Compare,
    Expr,
    For,
    Function,
    If,
    Num,
    Path,
    Return,
    Select,
    Stmt,
    next_of,
)

Within = tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A statement and its place. `held` are the tests of the `if`s around it, and of those before
    it that return, each with how it came out; `asked` says by which `if` each was."""

    path: Path
    stmt: Stmt
    held: Within
    asked: tuple[Path, ...]


def standings(function: Function) -> Iterator[Standing]:
    """Every statement of a function, in the order of the text."""
    return _of_block(function.body, (function.name,), (), ())


def _of_block(
    body: tuple[Stmt, ...], prefix: Path, held: Within, asked: tuple[Path, ...]
) -> Iterator[Standing]:
    for position, stmt in enumerate(body):
        path = (*prefix, position)
        yield Standing(path, stmt, held, asked)
        match stmt:
            case If(cond, then, other):
                at = (*asked, path)
                yield from _of_block(then, (*path, "then"), (*held, (cond, True)), at)
                yield from _of_block(other, (*path, "other"), (*held, (cond, False)), at)
                if then and isinstance(then[-1], Return):
                    held, asked = (*held, (cond, False)), at
            case For():
                yield from _of_block(stmt.body, (*path, "body"), held, asked)


def climbs(loop: For) -> bool | None:
    """Whether a loop counts upwards; None where the value of its step says so in a run."""
    match loop.step:
        case Num(value):
            return value > 0
        case Call("grid_dim"):
            return True
    return True if next_of(loop.step) is not None else None


def runs(loop: For) -> Expr:
    """The test of whether a loop runs at all."""
    up, down = Compare("<", loop.start, loop.stop), Compare(">", loop.start, loop.stop)
    way = climbs(loop)
    if way is None:
        return Select(Compare(">", loop.step, Num(0)), up, down)
    return up if way else down
