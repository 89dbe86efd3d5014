"""Where a kernel asks whether a thread is the elected one, and what may be made of the answer.

A branch is one thread's only where its condition holds for no other: `elect()` alone, beside `and`,
or by a name that was given just that. Any other question (`not elect()`, `or`, an `else`) sends the
other threads of the unit one way and this one another, which no op of the language says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from engine.cuir.nodes import (
    Assign,
    Binary,
    Bool,
    Call,
    Expr,
    For,
    Function,
    If,
    Name,
    Path,
    Stmt,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.traits import ELECTIONS

WORDS = (
    "elect() is asked so that other threads than the elected one go another way: "
    "`if elect():`, alone or beside `and` and without an else, leaves its body to one thread"
)


def is_one_thread(expr: Expr, flags: Collection[str]) -> bool:
    """Whether the expression holds for the elected thread at most; `flags` are names that do."""
    match expr:
        case Call(fn):
            return fn in ELECTIONS
        case Name(id):
            return id in flags
        case Bool("and", left, right) | Binary("&", left, right):
            return is_one_thread(left, flags) or is_one_thread(right, flags)
    return False


def flags_of(function: Function) -> frozenset[str]:
    """Names that hold for the elected thread at most: given that once, and nothing else ever."""
    stmts = [s for _, s in walk_block(function.body, ())]
    given = Counter(s.target for s in stmts if isinstance(s, Assign))
    given.update(s.var for s in stmts if isinstance(s, For))
    given.update(p.name for p in function.params)
    flags: set[str] = set()
    for stmt in stmts:
        if not isinstance(stmt, Assign) or given[stmt.target] > 1:
            continue
        if is_one_thread(stmt.value, flags):
            flags.add(stmt.target)
    return frozenset(flags)


def misuses(function: Function) -> Iterator[Path]:
    """The statements that make something else of `elect()`."""
    flags = flags_of(function)
    for path, stmt in walk_block(function.body, (function.name,)):
        asks = any(_asks(e, flags) for e in stmt_exprs(stmt))
        if asks and not _is_use(stmt, flags):
            yield path


def _is_use(stmt: Stmt, flags: Collection[str]) -> bool:
    match stmt:
        case Assign(target):
            return target in flags
        case If(cond, _, other):
            return not other and is_one_thread(cond, flags)
    return False


def _asks(expr: Expr, flags: Collection[str]) -> bool:
    return any(
        (isinstance(e, Call) and e.fn in ELECTIONS) or (isinstance(e, Name) and e.id in flags)
        for e in walk_expr(expr)
    )
