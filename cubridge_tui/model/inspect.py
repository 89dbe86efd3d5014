"""The op inspector: type and layout, where it lives, bytes, FLOPs, guard, origin, clause, hunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubridge_tui.model.built import kernel_words
from cubridge_tui.model.explained import NOTHING, lines_of
from cubridge_tui.model.links import FIELDS, FOUND, LIFTED, lifted_name
from cubridge_tui.model.rows import Key, Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from engine.cuir.arch import arch as arch_facts
from engine.cuir.arch import arch_name
from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Module,
    Name,
    Path,
    Return,
    Stmt,
    blocks,
    walk,
    walk_expr,
)  # fmt: skip
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Mismatch, RuleContext
from engine.cuir.ops.traits import MATMULS, ORDERS
from engine.cuir.printer import print_expr
from engine.cuir.static.infer import Typer
from engine.cuir.types import (
    DTYPES,
    DTypeValue,
    Layout,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
    describe,
)  # fmt: skip
from engine.errors import CuBridgeError
from engine.types import Gate, Stage

Values = Mapping[str, Mapping[str, int | float | bool | str]]


def inspect(snap: Snapshot, stage: Stage, row: Row) -> list[str]:
    """What is known of the op that a row shows, as lines."""
    key = _shown_key(snap, row)
    lines = [f"text       {row.text.strip()}"]
    if key is None:
        return [*lines, "", "no op: a comment, a brace, a blank line, or text that did not lift"]
    if key[0] == FOUND:
        return [*lines, "", *_of_place(snap, key)]
    found = _find(snap, key)
    path = found[1] if found is not None else key[1]  # as gates name it: in the target
    lines.append(f"op         {'/'.join(map(str, path))}  ({_home(key)})")
    if found is not None:
        module, path, stmt = found
        lines += _of_statement(module, path, stmt, snap.constants)
        lines += _of_opaque(snap, key)
    elif key[1][:1] == (FIELDS,):
        lines.append("what       a field of the argument struct")
    else:
        told = f"{_proposed(snap, row)}: the target has it once that is accepted"
        lines.append("what       a function" if len(key[1]) == 1 else f"what       {told}")
    around = snap.links.around.get(key)
    if around is not None:
        loop = "/".join(map(str, around.loop[1])) if around.loop is not None else "none"
        lines += [f"loop       {loop}", f"worker     {'/'.join(map(str, around.worker[1]))}"]
    built = snap.state.verdict(Gate.G3)
    if built is not None:
        lines += [f"built      {words}" for words in kernel_words(built.details, str(path[0]))]
    lines += ["", *_where(snap, key, row), "", *_cause(snap, row, stage)]
    return lines


def _of_place(snap: Snapshot, key: Key) -> list[str]:
    """What was found at a line of a source that is executed: its coordinates and evidence, what
    was launched, and the work of each case before and after."""
    told = [r.text for r in snap.panes[View.OPS][Stage.LIFTED].rows if r.key == key]
    lines = [*told, "", *work_lines(snap)]
    return lines if any(lines) else ["nothing was found at this line"]


def work_lines(snap: Snapshot) -> list[str]:
    """Each case that was executed: its launches, and the thread instructions of the source and of
    the patched source."""
    rows: dict[Gate, list[Mapping[str, Any]]] = {}
    for gate in (Gate.G1, Gate.G2):
        verdict = snap.state.verdict(gate)
        cases = verdict.details.get("cases") if verdict is not None else None
        rows[gate] = [r for r in cases or () if isinstance(r, Mapping)]
    before, after = ({r.get("case"): r for r in rows[g]} for g in (Gate.G1, Gate.G2))
    lines = []
    for case, row in (after | before).items():
        lines.append(f"case       {case}: {', '.join(row.get('launches') or ())}".rstrip(": "))
        was, now = (r.get(case, {}).get("instructions") for r in (before, after))
        whose = ((was, "of the source"), (now, "patched"))
        told = [f"{count:,} {words}" for count, words in whose if count is not None]
        change = f" ({100 * (now / was - 1):+.1f}%)" if was and now is not None else ""
        lines.append(f"  work     thread instructions executed: {', '.join(told)}{change}")
    return lines


def _shown_key(snap: Snapshot, row: Row) -> Key | None:
    """The op that a row is about. The head line of a hunk that was taken is about the hunk's first
    op as it now stands in the target, not as the proposal named it."""
    if row.kind is RowKind.HEAD and row.hunk:
        for other in snap.panes[View.OPS][Stage.TARGET].rows:
            taken = other.hunk == row.hunk and other.kind is RowKind.ADD
            if taken and other.key is not None and other.number is not None:
                return other.key
    return row.key


def _of_opaque(snap: Snapshot, key: Key) -> list[str]:
    """What is known of an opaque op, and what has been said of it."""
    op = snap.opaque_at(key)
    if op is None:
        return []
    lines = [
        f"opaque     {op.id}, line {op.line} of the source: {op.reason}",
        *(f"  text     {line}" for line in op.text.split("\n")),
        f"  reads    {', '.join(op.reads) or 'nothing'}",
        f"  writes   {', '.join(op.writes) or 'nothing'}",
    ]
    for proposal, hunk, decision in snap.meanings:
        if hunk.id == op.id:
            state = decision.kind.value if decision is not None else "undecided"
            edited = decision.replacement if decision is not None else None
            text = (hunk.after if edited is None else edited).split("\n")
            lines.append(f"{hunk.clause:<10} {hunk.origin.value}, {state}, {proposal.id}")
            lines += [f"  {line}" for line in text]
    lines.append(f"meaning    {'assumed until G4 passes' if op.meant else 'none: G1 cannot run'}")
    return lines


def _home(key: Key) -> str:
    return "of the expert's kernel" if key[0] == LIFTED else f"new in the {key[0]}"


def _find(snap: Snapshot, key: Key) -> tuple[Module, Path, Stmt] | None:
    for module, name in ((snap.target, snap.target_names), (snap.lifted, lifted_name)):
        if module is None:
            continue
        for path, stmt in walk(module):
            if name(path) == key:
                return module, path, stmt
    return None


def _of_statement(module: Module, path: Path, stmt: Stmt, values: Values) -> list[str]:
    lines: list[str] = []
    function = module.function(str(path[0]))
    scope = scope_before(module, function, path, values)
    typer = _typer(module)
    for call in _calls(stmt):
        spec = OPS.get(call.fn)
        if spec is not None:
            lines.append(f"does       {call.fn}: {spec.doc.split('. ')[0].rstrip('.')}")
        flops = _flops(call, scope, typer)
        if flops:
            lines.append(f"FLOPs      {flops}")
    if isinstance(stmt, Assign):
        kind = _type(typer, stmt.value, scope)
        lines += [f"type       {words(kind)}", *_storage(kind)]
    for name in sorted(_names(stmt)):
        operand = scope.get(name)
        if isinstance(operand, TileType | SharedType):
            lines.append(f"operand    {name}: {words(operand)}")
    guard = _guard(function, path)
    if guard:
        lines.append(f"guard      {guard}")
    return lines


def words(kind: Type) -> str:
    """A type as a person reads it."""
    if isinstance(kind, TileType | SharedType):
        return str(kind)
    return "not known before the run" if isinstance(kind, Unknown) else describe(kind)


def _storage(kind: Type) -> list[str]:
    match kind:
        case TileType(layout, dtype):
            size, threads = DTYPES[dtype].size, 32 * _warps(layout)
            held = elements_a_thread(layout)
            whole = layout.rows * layout.cols
            copies = held * threads // whole
            each = f", {copies} copies of each value" if copies > 1 else ""
            return [
                f"lives      in registers, {held * size} bytes a thread of {threads}, "
                f"{whole * size} bytes of values{each}"
            ]
        case SharedType(offset=offset, stages=stages):
            size = kind.tile_bytes * (stages or 1)
            at = f" at byte {offset}" if offset is not None else ""
            return [f"lives      in shared memory{at}, {size} bytes"]
    return []


def _warps(layout: Layout) -> int:
    return layout.warps or (layout.base.warps if layout.base is not None else None) or 4


def elements_a_thread(layout: Layout) -> int:
    """How many elements of a register tile one thread holds (`SIZE` of the headers' layouts).

    The four lanes of a quad share rows, so each has the row vector's values of its rows; every
    warp has all columns, and of each eight of them a thread has two.
    """
    match layout.role:
        case "row":
            return layout.rows // (8 * _warps(layout))
        case "col":
            return layout.cols // 4
    return layout.rows * layout.cols // (32 * _warps(layout))


def _flops(call: Call, scope: Mapping[str, Type], typer: Typer) -> str:
    if call.fn not in MATMULS or len(call.args) != 3:
        return ""
    acc, left = (_type(typer, a, dict(scope)) for a in call.args[:2])
    if not isinstance(acc, TileType):
        return ""
    match left:
        case SharedType():
            inner = left.cols if not left.transposed else left.rows
        case TileType(layout, _):
            inner = layout.cols
        case _:
            return ""
    rows, cols = acc.layout.rows, acc.layout.cols
    return f"{2 * rows * cols * inner} = 2 x {rows} x {cols} x {inner} each time (2 M N K)"


def _guard(function: Function, path: Path) -> str:
    """The last wait or barrier before the statement in its own block, or in one around it."""
    for depth in range(len(path), 1, -2):
        block, index = path[: depth - 1], path[depth - 1]
        body = _body(function, block)
        assert isinstance(index, int)
        for stmt in reversed(body[:index]):
            if isinstance(stmt, Do) and stmt.call.fn in ORDERS:
                return f"{print_expr(stmt.call)} before it"
    return ""


def _body(function: Function, block: Path) -> tuple[Stmt, ...]:
    body = function.body
    for i in range(1, len(block), 2):
        index, branch = block[i], block[i + 1]
        assert isinstance(index, int)
        body = dict(blocks(body[index]))[str(branch)]
    return body


# --- types ---------------------------------------------------------------------------------------


def _typer(module: Module) -> Typer:
    name = arch_name(module) or "sm_80"
    return Typer(module, RuleContext(arch_facts(name)), {}, lambda *_: Scalar("i32"))


def _type(typer: Typer, expr: Expr, scope: dict[str, Type] | Mapping[str, Type]) -> Type:
    try:
        return typer.type(expr, dict(scope))
    except (Mismatch, CuBridgeError, KeyError, ValueError, TypeError, AssertionError):
        return Unknown()


def scope_before(module: Module, function: Function, upto: Path, values: Values) -> dict[str, Type]:
    """The types of the names that are known where a statement stands."""
    typer = _typer(module)
    typer.kind = function.kind
    scope: dict[str, Type] = {p.name: Scalar(p.type) for p in function.params if p.type}
    for name, value in values.get(function.name, {}).items():
        if isinstance(value, str):
            scope[name] = DTypeValue(DTYPES[value]) if value in DTYPES else Unknown()
        else:
            kind = "bool" if isinstance(value, bool) else "i32"
            scope[name] = Scalar("f32" if isinstance(value, float) else kind, value)
    for path, stmt in walk(module):
        if path[0] != function.name:
            continue
        if path == upto:
            break
        if isinstance(stmt, For):
            scope[stmt.var] = Scalar("i32")
        elif isinstance(stmt, Assign):
            scope[stmt.target] = _type(typer, stmt.value, scope)
    return scope


def _expressions(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Assign(_, value):
            return (value,)
        case Do(call):
            return (call,)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case If(cond, _, _):
            return (cond,)
        case Return(value) if value is not None:
            return (value,)
    return ()


def _calls(stmt: Stmt) -> list[Call]:
    found = [e for expr in _expressions(stmt) for e in walk_expr(expr) if isinstance(e, Call)]
    return [c for c in found if c.fn in OPS]


def _names(stmt: Stmt) -> set[str]:
    return {e.id for expr in _expressions(stmt) for e in walk_expr(expr) if isinstance(e, Name)}


# --- where it is, and why it is there ------------------------------------------------------------


def _proposed(snap: Snapshot, row: Row) -> str:
    """What became of the hunk that proposes an op which is in no text."""
    decision = snap.decision(row.hunk)
    return f"proposed by {row.hunk}, {decision.kind.value if decision else 'undecided'}"


def _where(snap: Snapshot, key: Key, row: Row) -> list[str]:
    out = []
    proposed = bool(row.hunk) and _find(snap, key) is None
    for stage in (Stage.SOURCE, Stage.LIFTED, Stage.TARGET, Stage.LOWERED):
        line = snap.links.first_line(stage, key)
        stale = snap.links.stale.get(stage, "")
        place = f"line {line}" if line is not None else "not there"
        if proposed and stage is Stage.TARGET and line is None:
            place = _proposed(snap, row)
        out.append(f"{stage.value:<10} {place}" + (f"  ({stale})" if stale else ""))
    return out


def _cause(snap: Snapshot, row: Row, stage: Stage) -> list[str]:
    found = snap.hunk(row.hunk) if row.hunk else None
    if found is None:
        return [f"origin     {row.origin or 'expert'}"]
    proposal, hunk = found
    about = snap.explained.get(row.hunk, NOTHING)
    decision = snap.decision(row.hunk)
    state = decision.kind.value if decision is not None else "undecided"
    lines = [
        f"origin     {row.origin or hunk.origin.value}",
        f"hunk       {hunk.id} of proposal {proposal.id}, {state}: {hunk.title}",
        *(f"  {line}" for line in lines_of(hunk, about, snap.cost(row.hunk))),
    ]
    said = snap.state.comment(proposal.id, hunk.id)
    if said is not None:
        lines.append(f"comment    {said.text} ({said.by})")
    return lines
