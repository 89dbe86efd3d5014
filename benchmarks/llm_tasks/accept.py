"""Behavioural acceptance of instructions: what the module does, not how it is spelled.

Each check is module -> None, or why the instruction is not followed. G2 and G3 judge beside them
that the module still computes the spec and can be built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    For,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Return,
    Stmt,
    Tuple,
    blocks,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)  # fmt: skip
from engine.cuir.rewrite import map_expr
from engine.scalar_algebra.evaluate import evaluate

Check = Callable[[Module], "str | None"]
SIZES = {"B": 2, "Hq": 3, "Hkv": 3, "Nq": 400, "Nk": 500}
FACTS = {"shared_limit": 166_912, "sm_count": 108}
BYTES = {"f16": 2, "bf16": 2, "f32": 4}
_MATMULS = frozenset({"gemm", "gemm_async", "gemm_async_init"})


class Unknown(Exception):
    """Something that is no plain scalar here."""


# --- running the scalar part ----------------------------------------------------------------------


def value(module: Module, expr: Expr, env: Mapping[str, Any], block: int = 0) -> Any:
    """A scalar expression with sizes, facts and device functions filled in. Raises `Unknown`."""
    devices = {f.name for f in module.functions if f.kind == "device"}

    def change(node: Expr) -> Expr | None:
        match node:
            case Attr(Name("args"), field) if field in SIZES:
                return Num(SIZES[field])
            case Call("block_id", (Num(0),)):
                return Num(block)
            case Call(fn, ()) if fn in FACTS:
                return Num(FACTS[fn])
            case Call("sizeof", (Name(kind),)):
                return Num(BYTES.get(str(env.get(kind, kind)), 2))
            case Call(fn, args, _, params) if fn in devices:
                given = [a if a == Name("args") else value(module, a, env, block) for a in args]
                consts = [value(module, p, env, block) for p in params]
                return Num(call(module, fn, given, consts, block))
        return None

    try:
        return evaluate(map_expr(expr, change), dict(env))
    except Unknown:
        raise
    except Exception as error:
        raise Unknown(str(error)) from None


def call(module: Module, name: str, given: list[Any], consts: list[Any], block: int = 0) -> Any:
    """What a device function returns for these operands."""
    function = module.function(name)
    env = {p.name: v for p, v in zip(function.params, given, strict=True) if p.name != "args"}
    env |= dict(zip(function.consts, consts, strict=True))
    found = _run(module, function.body, env, block)
    if found is None:
        raise Unknown(f"{name} returns nothing")
    return found


def _run(module: Module, body: tuple[Stmt, ...], env: dict[str, Any], block: int) -> Any:
    for stmt in body:
        match stmt:
            case Assign(target, expr):
                env[target] = value(module, expr, env, block)
            case Return(expr) if expr is not None:
                return value(module, expr, env, block)
            case If(cond, then, other):
                found = _run(module, then if value(module, cond, env, block) else other, env, block)
                if found is not None:
                    return found
            case For(var, start, stop, step, inner):
                bounds = [value(module, e, env, block) for e in (start, stop, step)]
                for at in range(*bounds):
                    env[var] = at
                    found = _run(module, inner, env, block)
                    if found is not None:
                        return found
            case _:
                raise Unknown(type(stmt).__name__)
    return None


def launch(module: Module) -> tuple[Function, dict[str, Any], int]:
    """The kernel that the host launches, its constants' values, and the number of blocks."""
    host = next(f for f in module.functions if f.kind == "host")
    env: dict[str, Any] = {k: v.value for k, v in module.spec if isinstance(v, Num)}
    names = {k: v.id for k, v in module.spec if isinstance(v, Name)}
    for _, stmt in walk_block(host.body, (host.name,)):
        if isinstance(stmt, Assign):
            try:
                env[stmt.target] = value(module, stmt.value, env | names)
            except Unknown:
                continue
        run = stmt.value if isinstance(stmt, Assign | Return) else getattr(stmt, "call", None)
        if isinstance(run, Call) and run.fn == "run" and isinstance(run.args[0], Index):
            target = run.args[0]
            assert isinstance(target.base, Name)
            kernel = module.function(target.base.id)
            consts: dict[str, Any] = {}
            for name, expr in zip(kernel.consts, target.index, strict=True):
                consts[name] = names.get(expr.id) if isinstance(expr, Name) else None
                if consts[name] is None:
                    consts[name] = value(module, expr, env)
            grid = dict(run.kwargs)["grid"]
            sizes = grid.items if isinstance(grid, Tuple) else (grid,)
            total = 1
            for size in sizes:
                total *= value(module, size, env)
            return kernel, consts, total
    raise Unknown("the host launches no kernel")


def prologue(module: Module, block: int) -> dict[str, Any]:
    """The kernel's scalars before its first loop, in one block."""
    kernel, env, _ = launch(module)
    out = dict(env)
    for stmt in kernel.body:
        if isinstance(stmt, For):
            break
        if isinstance(stmt, Assign):
            try:
                out[stmt.target] = value(module, stmt.value, out, block)
            except Unknown:
                continue
    return out


def places(module: Module) -> list[tuple[int, int, int]]:
    """(batch, head, first row) of every block, in launch order, from the tiles of Q it loads."""
    kernel, _, blocks_ = launch(module)
    views = {
        s.target
        for _, s in walk_block(kernel.body, (kernel.name,))
        if isinstance(s, Assign) and isinstance(s.value, Call) and s.value.fn == "gmem"
        and s.value.args[0] == Attr(Name("args"), "q")
    }  # fmt: skip
    tile = next(
        node
        for _, s in walk_block(kernel.body, (kernel.name,))
        for e in stmt_exprs(s)
        for node in walk_expr(e)
        if isinstance(node, Index) and isinstance(node.base, Name) and node.base.id in views
    )
    b, h, rows = tile.index
    first = getattr(rows, "start", rows)
    out = []
    for block in range(blocks_):
        env = prologue(module, block)
        out.append(tuple(int(value(module, e, env, block)) for e in (b, h, first)))
    return out  # type: ignore[return-value]


def loops_with_matmul(module: Module) -> list[For]:
    """The innermost loops that hold a matmul of the kernel."""
    kernel, _, _ = launch(module)
    out = []
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        if isinstance(stmt, For) and any(c.fn in _MATMULS for c in _calls(stmt.body)):
            out.append(stmt)
    return [f for f in out if not any(g is not f and _holds(f, g) for g in out)]


def _holds(outer: For, inner: For) -> bool:
    return any(s is inner for _, s in walk_block(outer.body, ("",)))


def _calls(body: tuple[Stmt, ...]) -> Iterator[Call]:
    for _, stmt in walk_block(body, ("",)):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    yield node


def _under_if(body: tuple[Stmt, ...], fn: str, inside: bool = False) -> bool:
    """Whether some call of `fn` stands under an `if`."""
    for stmt in body:
        if inside and any(
            isinstance(n, Call) and n.fn == fn for e in stmt_exprs(stmt) for n in walk_expr(e)
        ):
            return True
        if any(_under_if(b, fn, inside or isinstance(stmt, If)) for _, b in blocks(stmt)):
            return True
    return False


# --- the instructions -----------------------------------------------------------------------------


def split_loop(module: Module) -> str | None:
    """One loop that never masks, one that always does, and no test of it inside either."""
    loops = loops_with_matmul(module)
    masked = [f for f in loops if any(c.fn == "keep" for c in _calls(f.body))]
    if len(loops) < 2:
        return f"there is {len(loops)} loop with a matmul; full and partial tiles need one each"
    if not masked or len(masked) == len(loops):
        return "one of the loops must mask (`keep`), the other must not"
    if any(_under_if(f.body, "keep") for f in masked):
        return "the masking loop still asks for each tile whether it masks"
    return None


def reverse_tiles(module: Module) -> str | None:
    _, consts, _ = launch(module)
    index = next((f for f in module.functions if f.name == "tile_index"), None)
    count = next((f for f in module.functions if f.name == "tile_count"), None)
    if index is None or count is None:
        return "tile_count and tile_index no longer define the schedule"
    try:
        tiles = [consts[c] for c in index.consts]
        args = Name("args")
        sizes = [consts[c] for c in count.consts]
        number = call(module, "tile_count", [args, 0, 0, 0], sizes)
        order = [call(module, "tile_index", [args, 0, 0, 0, s], tiles) for s in range(number)]
    except Unknown as error:
        return f"the schedule could not be run: {error}"
    want = list(range(-(-SIZES["Nk"] // consts["BN"])))[::-1]
    return None if order == want else f"key tiles are visited as {order[:6]}..., not from the last"


def narrow_tiles(module: Module) -> str | None:
    _, consts, _ = launch(module)
    return None if consts.get("BN") == 32 else f"a key tile has {consts.get('BN')} keys, not 32"


def three_stages(module: Module) -> str | None:
    _, consts, _ = launch(module)
    found = consts.get("STAGES")
    return None if found == 3 else f"there are {found} stages, not 3"


def no_lse(module: Module) -> str | None:
    if any(c.fn == "store_rows" for f in module.functions for c in _calls(f.body)):
        return "a row vector is still stored"
    logs = ("log", "log2", "log2_approx")
    if any(c.fn in logs for f in module.functions for c in _calls(f.body)):
        return "a logarithm is still computed"
    return None


def heads_fastest(module: Module) -> str | None:
    found = places(module)
    problem = _all_there(found)
    if problem:
        return problem
    heads = [h for _, h, _ in found[: 2 * SIZES["Hq"]]]
    rows = {r for _, _, r in found[: SIZES["Hq"]]}
    if heads != [*range(SIZES["Hq"])] * 2 or len(rows) != 1:
        return f"the first blocks have the heads {heads}; consecutive blocks need consecutive heads"
    return None


def late_rows_first(module: Module) -> str | None:
    found = places(module)
    problem = _all_there(found)
    if problem:
        return problem
    for b in range(SIZES["B"]):
        for h in range(SIZES["Hq"]):
            rows = [r for b2, h2, r in found if (b2, h2) == (b, h)]
            if rows != sorted(rows, reverse=True):
                return f"batch {b}, head {h} does its rows in the order {rows}"
    return None


def _all_there(found: list[tuple[int, int, int]]) -> str | None:
    rows = sorted({r for _, _, r in found})
    want = {(b, h, r) for b in range(SIZES["B"]) for h in range(SIZES["Hq"]) for r in rows}
    if len(set(found)) != len(found) or set(found) != want:
        return "the blocks no longer cover every batch, head and block of rows exactly once"
    return None


def natural_exp(module: Module) -> str | None:
    used = {c.fn for f in module.functions for c in _calls(f.body)}
    if used & {"exp2", "exp2_approx"}:
        return "a base-2 exponential is still used"
    if "exp" not in used:
        return "no natural exponential is used"
    names = {
        node.id
        for _, stmt in walk(module)
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
        if isinstance(node, Name)
    }
    return "LOG2E is still applied somewhere" if "LOG2E" in names else None


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        split_loop, reverse_tiles, narrow_tiles, three_stages, no_lse, heads_fastest,
        late_rows_first, natural_exp,
    )
}  # fmt: skip


def accept(name: str, module: Module) -> str | None:
    """Why the instruction is not followed, or None. What cannot be run is not followed."""
    try:
        return CHECKS[name](module)
    except (Unknown, KeyError, StopIteration, ValueError) as error:
        return f"what the module does could not be determined: {type(error).__name__}: {error}"
