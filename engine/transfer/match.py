"""Find the attention in a lifted module: by dataflow, never by names.

The anchor is `m = row_max(s, m)`: the tile `s` there is a finished score tile. Everything else
follows from where values come from: the schedule functions from the loop around it, the roles of
the tensors from the two matmuls and the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Index,
    Module,
    Name,
    Path,
    Slice,
    Stmt,
    Tuple,
    Unary,
    free_names,
    walk_block,
    walk_expr,
)  # fmt: skip
from engine.cuir.ops.traits import FIELD_VIEWS, MATMULS, TILE_LOADS
from engine.cuir.rewrite import get
from engine.cuir.static.calls import fields_of
from engine.errors import TransferError


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a score tile is finished, masked and reduced."""

    block: Path  # the statement list: path of its parent plus branch, or (function,)
    score: str  # the tile's name
    mask: int | None  # index in the block of the `if not full: keep` (or a bare keep)
    row_max: int  # index in the block of `m = row_max(score, m)`
    row_max_name: str
    rows: Expr  # first query row of the tile
    keys: Expr  # first key of the tile


@dataclass(frozen=True, slots=True)
class Schedule:
    """The three device functions that every worker asks for its key tiles; and, where a part of
    the block's rows passes over the first or the last of them, those that say how many."""

    count: str
    index: str
    full: str
    lead: str | None = None
    tail: str | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """What the rules need to know about a lifted attention program."""

    kernel: str
    host: str
    sites: tuple[Site, ...]
    schedule: Schedule
    batch: Expr
    head: Expr
    kv_head: Expr
    fields: dict[str, str]  # role (q, k, v, o, lse, scale) -> field of Args
    accumulator: str  # name of the O accumulator
    score_layout: Expr | None


def find_attention(module: Module) -> Attention:
    """The attention in `module`. Raises `TransferError` that says what is missing."""
    kernels = [f for f in module.functions if f.kind == "kernel"]
    hosts = [f for f in module.functions if f.kind == "host"]
    if len(kernels) > 1:
        # Other kernels may prepare or finish the work of the one that multiplies and reduces.
        kernels = [f for f in kernels if _multiplies(f) and find_sites(module, f.name)]
    if len(kernels) != 1 or len(hosts) != 1:
        raise TransferError(
            f"rules carry programs with one kernel and one launch; this one has {len(kernels)} "
            f"and {len(hosts)}"
        )
    kernel, host = kernels[0], hosts[0]
    statements = list(walk_block(kernel.body, (kernel.name,)))
    values = definitions(statements)
    sites = find_sites(module, kernel.name)
    if not sites:
        raise TransferError("no `row_max` of a score tile: rules carry softmax attention kernels")
    schedule = _schedule(module, kernel, statements, values, sites[0])
    fields, accumulator = _roles(module, kernel, host, statements, values)
    batch, head, kv_head = _coordinates(statements, values, fields)
    layout = next(
        (s.value.args[0] for _, s in statements
         if isinstance(s, Assign) and s.target == sites[0].score
         and isinstance(s.value, Call) and s.value.fn in ("zeros", "fill")),
        None,
    )  # fmt: skip
    return Attention(
        kernel.name, host.name, sites, schedule, batch, head, kv_head, fields, accumulator, layout
    )


def _multiplies(kernel: Function) -> bool:
    statements = walk_block(kernel.body, (kernel.name,))
    return any(isinstance(s, Do) and s.call.fn in MATMULS for _, s in statements)


def find_sites(module: Module, kernel: str) -> tuple[Site, ...]:
    """Where the kernel finishes score tiles, in the order of the text."""
    statements = walk_block(module.function(kernel).body, (kernel,))
    return tuple(_site(module, path, stmt) for path, stmt in statements if _is_row_max(stmt))


def definitions(statements: list[tuple[Path, Stmt]]) -> dict[str, list[Expr]]:
    """Every value assigned to each name."""
    out: dict[str, list[Expr]] = {}
    for _, stmt in statements:
        if isinstance(stmt, Assign):
            out.setdefault(stmt.target, []).append(stmt.value)
    return out


def _is_row_max(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.fn == "row_max"


def block_at(module: Module, block: Path) -> tuple[Stmt, ...]:
    """The statement list that `block` names."""
    if len(block) == 1:
        return module.function(str(block[0])).body
    from engine.cuir.nodes import blocks

    return dict(blocks(get(module, block[:-1])))[str(block[-1])]


def _keep_of(stmt: Stmt, score: str) -> Call | None:
    """The keep call when `stmt` masks `score`, bare or as the last thing that an `if` does."""
    if isinstance(stmt, If) and stmt.then:
        ways = (stmt.then, stmt.other) if stmt.other else (stmt.then,)
        return next((c for w in ways if (c := _keep_of(w[-1], score)) is not None), None)
    match stmt:
        case Assign(target, Call("keep") as call) if target == score:
            return call
    return None


def _site(module: Module, path: Path, stmt: Stmt) -> Site:
    assert isinstance(stmt, Assign) and isinstance(stmt.value, Call)
    score = stmt.value.args[0]
    if not isinstance(score, Name):
        raise TransferError(f"row_max at {path} does not read a named score tile")
    block, position = path[:-1], path[-1]
    assert isinstance(position, int)
    body = block_at(module, block)
    for index in range(position - 1, -1, -1):
        call = _keep_of(body[index], score.id)
        if call is not None:
            at = dict(call.kwargs).get("at")
            if not isinstance(at, Tuple) or len(at.items) != 2:
                raise TransferError("the keep before row_max has no `at=[row, key]`")
            return Site(block, score.id, index, position, stmt.target, at.items[0], at.items[1])
    raise TransferError(
        f"the score tile {score.id} is never masked before its row_max; rules need its coordinates"
    )


def _device_call(expr: Expr, module: Module) -> Call | None:
    devices = set(module.devices)
    for node in walk_expr(expr):
        if isinstance(node, Call) and node.fn in devices:
            return node
    return None


def _resolve(expr: Expr, values: dict[str, list[Expr]], module: Module) -> Call | None:
    """The device call behind an expression, through names that are assigned calls."""
    found = _device_call(expr, module)
    if found is not None:
        return found
    for name in sorted(free_names(expr)):
        for value in values.get(name, []):
            found = _device_call(value, module)
            if found is not None:
                return found
    return None


def _schedule(
    module: Module,
    kernel: Function,
    statements: list[tuple[Path, Stmt]],
    values: dict[str, list[Expr]],
    site: Site,
) -> Schedule:
    full = None
    mask = block_at(module, site.block)[site.mask] if site.mask is not None else None
    if isinstance(mask, If) and isinstance(mask.cond, Unary) and mask.cond.op == "not":
        full = _resolve(mask.cond.operand, values, module)
    index = _resolve(site.keys, values, module)
    count = lead = tail = None
    for _, stmt in statements:
        if isinstance(stmt, For) and index is not None and _contains_call(stmt, index.fn):
            # The innermost loop that asks for tile indices runs over the tile count.
            start = _resolve(stmt.start, values, module)
            stop, less = parts_of_stop(stmt.stop, values)
            found = _resolve(stop, values, module) or start
            count = found or count
            if start is not None and found is not None and start.fn != found.fn:
                lead = start.fn
            passed = None if less is None else _resolve(less, values, module)
            tail = passed.fn if passed is not None else tail
    missing = [n for n, c in (("count", count), ("index", index), ("full", full)) if c is None]
    if missing:
        raise TransferError(f"no tile schedule function found for: {', '.join(missing)}")
    assert count is not None and index is not None and full is not None
    return Schedule(count.fn, index.fn, full.fn, lead, tail)


def parts_of_stop(stop: Expr, values: Mapping[str, list[Expr]]) -> tuple[Expr, Expr | None]:
    """Where a loop over steps ends: at a number of tiles, less those at the end that are passed
    over, if any."""
    while isinstance(stop, Name) and len(values.get(stop.id, ())) == 1:
        (stop,) = values[stop.id]
    return (stop.left, stop.right) if isinstance(stop, Binary) and stop.op == "-" else (stop, None)


def _contains_call(stmt: Stmt, fn: str) -> bool:
    from engine.cuir.nodes import stmt_exprs

    inside = [stmt]
    if isinstance(stmt, For):
        inside += [s for _, s in walk_block(stmt.body, ("",))]
    return any(
        isinstance(node, Call) and node.fn == fn
        for s in inside
        for e in stmt_exprs(s)
        for node in walk_expr(e)
    )


def base_name(expr: Expr) -> str | None:
    """The name behind indices, transposes and columns."""
    match expr:
        case Name(id):
            return id
        case Index(base, _):
            return base_name(base)
        case Call("transpose" | "columns", (inner,)):
            return base_name(inner)
    return None


def is_transposed(operand: Expr) -> bool:
    """Whether a matmul's right operand is that of the scores: K by its rows."""
    return isinstance(operand, Call) and operand.fn == "transpose"


def _roles(
    module: Module,
    kernel: Function,
    host: Function,
    statements: list[tuple[Path, Stmt]],
    values: dict[str, list[Expr]],
) -> tuple[dict[str, str], str]:
    """Role -> field, from the two matmuls, the stores and the one float field; and O's name."""
    maps = tensor_maps(kernel, host)
    loaded: dict[str, str] = {}  # shared tile -> field
    stored: dict[str, str] = {}  # "tile" / "rows" -> field
    views = {
        name: fields_of(call.args[0])[-1]
        for name, found in values.items()
        for call in found
        if isinstance(call, Call) and call.fn == "gmem" and fields_of(call.args[0])
    }
    matmuls: list[Call] = []
    for _, stmt in statements:
        if not isinstance(stmt, Do):
            continue
        call = stmt.call
        if call.fn in TILE_LOADS:
            source = base_name(call.args[1])
            field = views.get(source or "") or maps.get(source or "")
            if field:
                loaded[base_name(call.args[0]) or ""] = field
        elif call.fn == "copy" or (call.fn == "store" and base_name(call.args[0]) in views):
            stored["o"] = views[base_name(call.args[0]) or ""]
        elif call.fn == "tma_store":
            stored["o"] = maps[base_name(call.args[0]) or ""]
        elif call.fn == "store_rows":
            stored["lse"] = views[base_name(call.args[0]) or ""]
        elif call.fn in MATMULS:
            matmuls.append(call)
    first = [c for c in matmuls if is_transposed(c.args[2])]
    second = [c for c in matmuls if c not in first]
    if not first or not second:
        raise TransferError("the two matmuls of attention were not found")
    fields = dict(stored)
    fields["q"] = loaded.get(base_name(first[0].args[1]) or "", "")
    fields["k"] = loaded.get(base_name(first[0].args[2]) or "", "")
    fields["v"] = loaded.get(base_name(second[0].args[2]) or "", "")
    floats = [f.name for f in module.fields if f.type == "f32"]
    if len(floats) == 1:
        fields["scale"] = floats[0]
    absent = [role for role in ("q", "k", "v", "o", "scale") if not fields.get(role)]
    if absent:
        raise TransferError(f"no field of Args was found for: {', '.join(absent)}")
    accumulator = base_name(second[0].args[0])
    assert accumulator is not None
    return fields, accumulator


def tensor_maps(kernel: Function, host: Function) -> dict[str, str]:
    """Kernel parameter -> field, through the host's `tensor_map` and `run`."""
    made: dict[str, str] = {}
    out: dict[str, str] = {}
    for _, stmt in walk_block(host.body, (host.name,)):
        if (
            isinstance(stmt, Assign)
            and isinstance(stmt.value, Call)
            and stmt.value.fn in FIELD_VIEWS
        ):
            source = stmt.value.args[0]
            if isinstance(source, Attr):
                made[stmt.target] = source.field
        run = stmt.call if isinstance(stmt, Do) else getattr(stmt, "value", None)
        if isinstance(run, Call) and run.fn == "run" and len(run.args) > 1:
            given = run.args[1]
            if isinstance(given, Tuple):
                for param, actual in zip(kernel.params, given.items, strict=False):
                    if isinstance(actual, Name) and actual.id in made:
                        out[param.name] = made[actual.id]
    return out


def _coordinates(
    statements: list[tuple[Path, Stmt]], values: dict[str, list[Expr]], fields: dict[str, str]
) -> tuple[Expr, Expr, Expr]:
    """Batch, query head and key/value head, from the tiles of LSE (or O) and K."""
    views = {
        fields_of(call.args[0])[-1]: name
        for name, found in values.items()
        for call in found
        if isinstance(call, Call) and call.fn == "gmem" and fields_of(call.args[0])
    }
    q_view = views.get(fields.get("lse", "")) or views.get(fields["o"]) or views.get(fields["q"])
    batch = head = kv = None
    for _, stmt in statements:
        exprs = (
            (stmt.value,)
            if isinstance(stmt, Assign)
            else (stmt.call,)
            if isinstance(stmt, Do)
            else ()
        )
        for expr in exprs:
            for node in walk_expr(expr):
                match node:
                    case Index(Name(view), (b, h, Slice())) if view == q_view:
                        batch, head = b, h
                    case Index(Name(view), (_, hk, Slice())) if view == views.get(fields["k"]):
                        kv = hk
                    case Call("tma_load", (_, _, Tuple(items), *_)) if (
                        len(items) == 4 and kv is None
                    ):
                        kv = items[2] if _loads_keys(node, statements) else None
    if batch is None or head is None or kv is None:
        raise TransferError("batch, head and key/value head of the tiles were not found")
    return batch, head, kv


def _loads_keys(load: Call, statements: list[tuple[Path, Stmt]]) -> bool:
    target = base_name(load.args[0])
    return any(
        isinstance(s, Do) and s.call.fn in MATMULS and is_transposed(s.call.args[2])
        and base_name(s.call.args[2]) == target
        for _, s in statements
    )  # fmt: skip
