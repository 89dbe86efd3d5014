"""How the blocks of a kernel share its pieces of work, found by dataflow.

A persistent kernel with a loading thread: every block takes each gridDim-th piece, in one loop of
the thread that loads and in one of all threads that compute, and the launch has at most a block per
multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.arch import WARPGROUP_THREADS, arch_of
from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Compare,
    Do,
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
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS, Pending
from engine.cuir.ops.spec import Mismatch, RuleContext
from engine.cuir.ops.traits import MATMULS
from engine.cuir.static.facts import expressions, statements
from engine.cuir.static.host_constants import constants_of
from engine.cuir.static.infer import Typer
from engine.cuir.static.infer_scalars import Scope
from engine.cuir.types import (
    DTYPES,
    WORD_PITCH,
    BarriersType,
    DTypeValue,
    Scalar,
    SharedType,
    Type,
    Unknown,
    WordsType,
)
from engine.transfer.linear import tidy
from engine.transfer.match import Attention, definitions

BARRIER_BYTES = 8
SLOTS = 2  # shared words: one may still be fetched while the other is posted
WORDS_AT = SLOTS * 2 * BARRIER_BYTES  # behind a full and an empty barrier for each
MORE_BYTES = WORDS_AT + SLOTS * WORD_PITCH
PLACES = frozenset({"shared", "shared_stages", "mbarriers", "shared_words"})


@dataclass(frozen=True, slots=True)
class Sharing:
    """The loops over a block's pieces, and where a rule may add to what they share.

    `loading` is what one thread runs, `computing` what `threads` others run, all of them. `set_up`
    is the statement behind the last barrier's set-up. `last` names the last bytes of shared memory,
    which are barriers and end at `end`; `bytes` is the host's name of what the launch asks for.
    """

    loading: For
    computing: For
    threads: Expr
    set_up: Do
    last: Assign
    end: Expr
    bytes: str


def sharing_of(module: Module, found: Attention) -> Sharing | None:
    """None where any part of this shape is missing."""
    kernel, run = module.function(found.kernel), _launch(module, found)
    loops, threads = _loops(kernel), dict(kernel.options).get("threads")
    fences = [
        s for s in statements(kernel) if isinstance(s, Do) and s.call.fn == "fence_barrier_init"
    ]
    if run is None or loops is None or threads is None or len(fences) != 1:
        return None
    last, asked = _last_bytes(module, kernel, run), _bytes_of(module.function(found.host), run)
    if last is None or asked is None or not isinstance(last.value, Call):
        return None
    whole = constants_of(module).get(asked)
    if not isinstance(whole, int) or whole + MORE_BYTES > arch_of(module).shared_block:
        return None
    return Sharing(
        *loops,
        threads=tidy(Binary("-", threads, Num(WARPGROUP_THREADS))),
        set_up=fences[0],
        last=last,
        end=_end(last.value),
        bytes=asked,
    )


def steps_by_the_grid(stmt: Stmt) -> bool:
    """Whether this is a loop from the block's number on, by the number of blocks."""
    return (
        isinstance(stmt, For)
        and stmt.start == Call("block_id", (Num(0),))
        and stmt.step == Call("grid_dim", (Num(0),))
    )


def _loops(kernel: Function) -> tuple[For, For] | None:
    """The loading thread's loop and that of all other warpgroups, over the same pieces."""
    values = definitions(list(walk_block(kernel.body, ())))
    all_loops = [s for s in statements(kernel) if isinstance(s, For) and steps_by_the_grid(s)]
    if len(all_loops) != 2 or any(isinstance(s, Return) for s in statements(kernel)):
        return None
    for stmt in kernel.body:
        match stmt:
            case If(Compare("==", Name(group), Num()), then, other) if values.get(group) == [
                Call("warpgroup_id")
            ]:
                elected = [
                    s for inner in then
                    if isinstance(inner, If) and inner.cond == Call("elect") and not inner.other
                    for s in inner.then
                ]  # fmt: skip
                pair = [s for s in (*elected, *other) if isinstance(s, For) and s in all_loops]
                if len(pair) == 2 and pair[0] in elected and _same_pieces(pair, values):
                    loading, computing = pair
                    loads = any(OPS[fn].pending is Pending.BULK_LOAD for fn in _ops(loading))
                    if loads and not _ops(loading) & MATMULS and _ops(computing) & MATMULS:
                        return loading, computing
    return None


def _same_pieces(loops: list[For], values: dict[str, list[Expr]]) -> bool:
    """Whether both end at one name that stands for one number of pieces."""
    stops = {loop.stop for loop in loops}
    once = all(isinstance(s, Name) and len(values.get(s.id, ())) == 1 for s in stops)
    return once and len(stops) == 1


def _ops(loop: For) -> frozenset[str]:
    return frozenset(
        node.fn
        for _, stmt in walk_block(loop.body, ())
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
        if isinstance(node, Call) and node.fn in OPS
    )


def _launch(module: Module, found: Attention) -> Call | None:
    """The attention's launch, if it has at most a block per multiprocessor and per piece."""
    host = module.function(found.host)
    values = definitions(list(walk_block(host.body, ())))
    runs = [
        node for node in expressions(host)
        if isinstance(node, Call) and node.fn == "run"
        and isinstance(node.args[0], Index) and node.args[0].base == Name(found.kernel)
    ]  # fmt: skip
    if len(runs) != 1:
        return None
    match dict(runs[0].kwargs)["grid"]:
        case Tuple((Name(blocks),)) if len(values.get(blocks, ())) == 1:
            few = _at_most_the_processors(values[blocks][0])
        case Tuple((count,)):
            few = _at_most_the_processors(count)
        case _:
            few = False
    return runs[0] if few else None


def _at_most_the_processors(count: Expr) -> bool:
    match count:
        case Call("min", sides):
            return Call("sm_count") in sides
    return False


def _bytes_of(host: Function, run: Call) -> str | None:
    """The name of the launch's bytes, if it stands for them alone."""
    shared = dict(run.kwargs)["shared"]
    if not isinstance(shared, Name):
        return None
    reads = [e for e in expressions(host) if e == shared]
    written = [s for s in statements(host) if isinstance(s, Assign) and s.target == shared.id]
    return shared.id if len(reads) == len(written) == 1 else None


def _end(barriers: Call) -> Expr:
    """The byte after barriers, in their own words where these count barriers too."""
    (count,), (offset,) = barriers.params, barriers.args
    match offset:
        case Binary("+", before, Binary("*", Num(int() as times), same)) if same == count:
            return Binary("+", before, Binary("*", Num(times + BARRIER_BYTES), same))
    return tidy(Binary("+", offset, Binary("*", Num(BARRIER_BYTES), count)))


# --- shared memory ------------------------------------------------------------------------------


def _last_bytes(module: Module, kernel: Function, run: Call) -> Assign | None:
    """The statement that names the last bytes of the kernel's shared memory, if these are barriers
    that words may follow, and all of its places are named at the top of the kernel, where their
    sizes are known."""
    named = [s for s in kernel.body if isinstance(s, Assign) and _places(s)]
    if sum(map(_places, (s for f in module.functions for s in statements(f)))) != len(named):
        return None
    ends = _ends(module, kernel, run)
    known = [(ends[s.target], s) for s in named if s.target in ends]
    if not known or len(known) < len(named):
        return None
    end, last = max(known, key=lambda pair: pair[0])
    barriers = isinstance(last.value, Call) and last.value.fn == "mbarriers"
    return last if barriers and end % WORD_PITCH == 0 else None


def _places(stmt: Stmt) -> int:
    """How many places of shared memory a statement names."""
    nodes = (node for expr in stmt_exprs(stmt) for node in walk_expr(expr))
    return sum(isinstance(node, Call) and node.fn in PLACES for node in nodes)


def _ends(module: Module, kernel: Function, run: Call) -> dict[str, int]:
    """By name: the byte after each place, for the constants of this specialisation's launch."""
    spec: Scope = {}
    for name, value in module.spec:
        match value:
            case Name(id) if id in DTYPES:
                spec[name] = DTypeValue(DTYPES[id])
            case Num(number):
                spec[name] = Scalar("i32", number)
    typer = Typer(module, RuleContext(arch_of(module)), spec, lambda *called: Unknown())
    host, scope = constants_of(module), dict(spec)
    items = run.args[0].index if isinstance(run.args[0], Index) else ()
    for const, given in zip(kernel.consts, items, strict=True):
        found = host.get(given.id) if isinstance(given, Name) else None
        if isinstance(found, int):
            scope[const] = Scalar("bool" if isinstance(found, bool) else "i32", found)
    out: dict[str, int] = {}
    for stmt in kernel.body:
        if isinstance(stmt, Assign):
            scope[stmt.target] = made = _type(typer, stmt.value, scope)
            if isinstance(made, SharedType | BarriersType | WordsType) and made.offset is not None:
                out[stmt.target] = made.offset + made.bytes
    return out


def _type(typer: Typer, value: Expr, scope: Scope) -> Type:
    try:
        return typer.type(value, scope)
    except Mismatch:
        return Unknown()
