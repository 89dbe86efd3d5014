"""From one spec to readings at several sizes, and from those to one set of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from engine.cuir.nodes import Expr, Index, Name, Num, walk_expr
from engine.cuir.parser import parse_expr
from engine.errors import SpecError
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.kinds import Kind
from engine.scalar_algebra.rewrite import rename
from engine.spec.attention.clauses import lines_by_kind, lines_of
from engine.spec.attention.flags import refuse_factors, with_masks
from engine.spec.attention.parts import parts_of
from engine.spec.attention.prologue import COLUMN, Unprepared
from engine.spec.attention.refusals import Reason, reason_of, unread_op
from engine.spec.attention.roles import Reading, read_output
from engine.spec.attention.weights import NotAttention
from engine.spec.expressions.fit import Mismatch, NoForm, unify
from engine.spec.python.dimension_sizes import TRACE_SIZES, Domain, dimension_values, slots
from engine.spec.python.program import Program, broadcast_mods, varied_name
from engine.spec.python.size_values import SizesByName, symbolic_math
from engine.spec.python.spec_file import TensorParameter, roles_by_place
from engine.spec.reference.oracle import vmapped_mods
from engine.spec.tracing.folding import Tables
from engine.spec.tracing.symbolic import size_name
from engine.spec.tracing.trace import AtenMode, PythonMode, Trace, kind_of_dtype

_DTYPE = {
    "T": torch.float64,
    "f32": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}


@dataclass(slots=True)
class Traced:
    """One run: its trace, its reading, and the value of every dimension name."""

    trace: Trace
    reading: Reading
    dims: dict[str, int]
    sizes: dict[str, int]
    lines: dict[str, tuple[int, ...]]


def random_inputs(
    tensors: tuple[TensorParameter, ...], dims: Mapping[str, int], seed: int, most: int = 3
) -> dict[str, torch.Tensor]:
    """Small inputs: floats from a normal, integers sorted and below `most`, truth mostly true."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for t in tensors:
        shape = [int(d) if d.isdigit() else dims[d] for d in t.dims]
        dtype = _DTYPE[t.dtype]
        if dtype.is_floating_point:
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
        elif dtype == torch.bool:
            value = torch.rand(shape, generator=generator, dtype=torch.float64) < 0.7
        else:
            value = torch.randint(0, most, shape, generator=generator).to(dtype)
            if t.between is not None:
                low, high = (int(evaluate(parse_expr(e), dims)) for e in t.between)
                value = torch.randint(low, max(low, high) + 1, shape, generator=generator).to(dtype)
            if value.dim():
                value = value.sort(-1).values
        out[t.name] = value
    return out


def trace_once(
    program: Program,
    sizes: Mapping[str, int],
    seed: int,
    tables: Tables = Tables.FORMULAS,
    *,
    symbolic: bool = True,
    vmapped: bool = False,
) -> Traced:
    """Run and read the spec at one size. Call it inside `load.surroundings`.

    With `symbolic`, what the spec computes from sizes in Python stays an expression of them. Mods
    of FlexAttention are given indices that broadcast; with `vmapped` numbers, as in PyTorch.
    """
    slot = slots(program.tensors)
    dims = dimension_values(list(slot), slot, sizes)
    # Sizes are whole numbers, those that an extra input alone has among them.
    kinds: dict[str, Kind] = dict.fromkeys(dims, "int")
    kinds |= {t.name: kind_of_dtype(_DTYPE[t.dtype]) for t in program.tensors}
    plain = frozenset(roles_by_place(program.tensors)) if tables is Tables.WHOLE else frozenset()
    trace = Trace(program.source.path, kinds, tables=tables, plain=plain)
    inputs = random_inputs(program.tensors, dims, seed)
    for name, tensor in inputs.items():
        trace.input(name, tensor)
    sizes_known: AbstractContextManager[object] = nullcontext()
    if symbolic:
        sizes_known = SizesByName(program.tensors, inputs, dims, None, size_name)
        trace.kinds |= {size_name(d): "int" for d in dims}
    try:
        with symbolic_math(), sizes_known, PythonMode(trace), AtenMode(trace):
            out = program.run(inputs, vmapped_mods if vmapped else broadcast_mods)
    except SpecError as error:
        if error.__cause__ is None:
            raise
        if symbolic:
            # A library may refuse integers that are not plain.
            return trace_once(program, sizes, seed, tables, symbolic=False, vmapped=vmapped)
        if not vmapped and program.source.kind == "flex":
            # A mod may take its indices for the numbers that they are to PyTorch.
            return trace_once(program, sizes, seed, tables, vmapped=True)
        raise
    _check_declared(program, tuple(out.shape), dims)
    sym = trace.sym(out)
    trace.refuse_random(sym.deps)
    outputs = output_names(len(sym.shape))
    for name, extent in zip(outputs, sym.shape, strict=True):
        trace.ranged(name, extent)
    floats = frozenset(
        t.name for t in program.tensors if _DTYPE[t.dtype].is_floating_point and t.dims
    )
    expr = with_masks(sym.read(tuple(map(Name, outputs))), _flags(program))
    try:
        named = {t.name: t.dims for t in program.tensors}
        reading = read_output(expr, outputs, named, floats, _sizes(program, dims))
        refuse_factors(reading.score)
    except NotAttention as problem:
        raise explain(program, trace, problem, expr) from None
    _check_widths(program, reading)
    found = {load.base for load in (reading.q, reading.k, reading.v)}
    if plain and {Name(name) for name in plain} != found:
        raise _varies(program, "q, k and v are not the first three inputs")
    operands = frozenset((reading.q.base, reading.k.base))
    lines = lines_by_kind(expr, trace.lines, floats, operands)
    for role, side in zip("qk", reading.sides, strict=True):
        lines[role] = lines_of(side, trace.lines)
    reading = _by_roles(program, reading, dims)
    return Traced(trace, reading, dims, role_sizes(program, reading, dims), lines)


MOST_FLAGS = 16


def _flags(program: Program) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of the inputs that have a few of them."""
    found = {t.name: (0, 1) for t in program.tensors if t.dtype == "bool"}
    for t in program.tensors:
        ends = t.between or ("", "")
        if all(end.lstrip("-").isdigit() for end in ends):
            low, high = map(int, ends)
            if 0 <= high - low < MOST_FLAGS:
                found[t.name] = low, high
    return found


def _sizes(program: Program, dims: Mapping[str, int]) -> frozenset[int]:
    """The sizes that a row of scores may have: of all dimensions but those that are columns alone,
    which may be one more than there are keys."""
    deep = [t.dims for t in program.tensors if len(t.dims) > 2]
    columns = {d[-1] for d in deep} - {name for d in deep for name in d[:-1]}
    names = {name for t in program.tensors for name in t.dims} - columns
    return frozenset(int(n) if n.isdigit() else dims[n] for n in names)


def _check_widths(program: Program, reading: Reading) -> None:
    """The product runs over all columns of what is multiplied. Raises `SpecError`."""
    by_name = {t.name: t for t in program.tensors}
    for load, made in ((reading.q, reading.made_q), (reading.k, reading.made_k)):
        assert isinstance(load.base, Name)
        name = load.base.id
        width = by_name[name].dims[load.index.index(Name(COLUMN))]
        if not width.isdigit() and parts_of(made):
            raise program.source.error(
                f"{name} is a part of what is multiplied, and the number of its columns is {width}",
                by_name[name].line,
                'give the parts of the head dimension as numbers, as in "B H N 128" and "B H N 64"',
            )
        if width.isdigit() and int(width) != reading.columns and not parts_of(made):
            raise program.source.error(
                f"the product reads {reading.columns} of the {width} columns of {name}",
                program.source.line, "pass the columns that are multiplied",
            )  # fmt: skip


def _by_roles(program: Program, reading: Reading, dims: Mapping[str, int]) -> Reading:
    """The reading with the sizes of dimensions called by their roles."""
    roles = roles_by_name(program, reading)
    known = {size_name(d): Name(roles.get(d, d)) for d in dims}

    def called(expr: Expr) -> Expr:
        return rename(expr, known)

    return replace(
        reading,
        score=called(reading.score),
        keep=called(reading.keep),
        late_masks=tuple(map(called, reading.late_masks)),
        late=None if reading.late is None else called(reading.late),
        weight=None if reading.weight is None else called(reading.weight),
        sink=None if reading.sink is None else called(reading.sink),
        after=called(reading.after),
        kv_head=called(reading.kv_head),
        made_q=None if reading.made_q is None else called(reading.made_q),
        made_k=None if reading.made_k is None else called(reading.made_k),
        other=reading.other and replace(reading.other, value=called(reading.other.value)),
    )


def roles_by_name(program: Program, reading: Reading) -> dict[str, str]:
    """Annotated names as roles; of two roles for one name, rows are keys and heads are q's."""
    out: dict[str, str] = {}
    for name, role in role_names(program, reading):
        if name in out and (out[name], role) in (("D", "Dv"), ("Hq", "Hkv")):
            continue
        out[name] = role
    return out


def _check_declared(program: Program, shape: tuple[int, ...], dims: Mapping[str, int]) -> None:
    """The output has the dimensions that its annotation declares, where it has one."""
    declared = program.source.returns
    if declared is None:
        return
    wanted = [int(d) if d.isdigit() else dims.get(d) for d in declared]
    if len(wanted) != len(shape) or any(
        w not in (None, n) for w, n in zip(wanted, shape, strict=True)
    ):
        names = {size: name for name, size in dims.items()}
        given = " ".join(names.get(n, str(n)) for n in shape)
        raise program.source.error(
            f"the output is [{given}], its annotation says [{' '.join(declared)}]",
            program.source.line, "correct the annotation, or what is returned",
        )  # fmt: skip


def explain(program: Program, trace: Trace, problem: NotAttention, whole: Expr) -> SpecError:
    """A `NotAttention` with the op and line behind it; unread ops are named first."""
    about = problem.about or whole
    for e in walk_expr(about):
        if isinstance(e, (Index, Name)):
            name = (
                e.base.id
                if isinstance(e, Index) and isinstance(e.base, Name)
                else getattr(e, "id", "")
            )
            leaf = trace.leaves.get(name)
            if leaf is not None and leaf.deps & trace.floats:
                reason = unread_op(leaf.op, leaf.deps)
                return trace.error(reason.words, leaf.line, reason.fix)
    known = None if isinstance(problem, Unprepared) else reason_of(whole, trace.floats)
    reason = known or Reason(problem.message, problem.fix, about)
    lines = lines_of(reason.part or about, trace.lines) or (program.source.line,)
    return trace.error(reason.words, lines[-1], reason.fix)


def role_sizes(program: Program, reading: Reading, dims: Mapping[str, int]) -> dict[str, int]:
    """B, Hq, Hkv, Nq, Nk, D, Dv at this size, by the roles that the reading found."""
    names = role_names(program, reading)
    out = {role: dims[name] if not name.isdigit() else int(name) for name, role in names}
    for name in dims:  # other dimensions keep their own names
        if name not in dict(names) and name not in out:
            out[name] = dims[name]
    return out


def role_names(program: Program, reading: Reading) -> list[tuple[str, str]]:
    """(annotated name, role) for the dimensions of q, k and v."""
    by_name = {t.name: t for t in program.tensors}
    out: list[tuple[str, str]] = []
    variables = {"b": "B", "h": "Hq", "i": "Nq"}
    where = dict(zip(output_names(len(reading.output)), reading.output, strict=True))
    for n, e in enumerate(reading.q.index):
        assert isinstance(reading.q.base, Name)
        name = by_name[reading.q.base.id].dims[n]
        if isinstance(e, Name) and e.id == "dd":
            out.append((_of_whole(name, reading), "D"))
        elif isinstance(e, Name):
            out.append((name, variables[where[e.id]]))
    for load, last in ((reading.k, "D"), (reading.v, "Dv")):
        assert isinstance(load.base, Name)
        for n, e in enumerate(load.index):
            name = by_name[load.base.id].dims[n]
            if isinstance(e, Name) and (e.id == "dd" or where.get(e.id) == "d"):
                out.append((_of_whole(name, reading) if e.id == "dd" else name, last))
            elif isinstance(e, Name) and e.id not in where:
                out.append((name, "Nk"))
            elif isinstance(e, Name) and where[e.id] == "b":
                continue
            elif not isinstance(e, Num):
                out.append((name, "Hkv"))
    for load in (reading.q, reading.k, reading.v):
        assert isinstance(load.base, Name)
        heads = "Hq" if load is reading.q else "Hkv"
        dims = by_name[load.base.id].dims
        here = {role for name, role in out if name in dims}
        for n, e in enumerate(load.index):
            if isinstance(e, Num) and dims[n] == "1":
                wanted = ("B", "Hq", "Nq") if load is reading.q else ("B", heads)
                missing = [r for r in wanted if r not in here]
                out += [("1", role) for role in missing[:1]]
                here |= set(missing[:1])
    return list(dict.fromkeys(out))


def _of_whole(name: str, reading: Reading) -> str:
    """The columns of q or k, of which an input with the columns `name` may be a part."""
    return str(reading.columns) if name.isdigit() else name


def output_names(rank: int) -> tuple[str, ...]:
    """The index variables of the output; no Python name can clash with them."""
    return tuple(f"%o{n}" for n in range(rank))


@dataclass(frozen=True, slots=True)
class Read:
    """Readings of all sizes as one: expressions over size names."""

    traced: tuple[Traced, ...]
    sizes: tuple[Mapping[str, int], ...]  # of each trace, varied scalars included
    bound: Mapping[str, Expr]  # the values of varied integers
    score: Expr
    keep: Expr
    late_masks: tuple[Expr, ...]
    late: Expr | None
    weight: Expr | None
    sink: Expr | None
    after: Expr
    kv_head: Expr
    made_q: Expr | None
    made_k: Expr | None
    together: Expr | None  # what the elements of two attentions become


def read_all(
    program: Program,
    domain: Domain,
    varied: Sequence[Program] = (),
    tables: Tables = Tables.FORMULAS,
) -> Read:
    """Trace at every size of `TRACE_SIZES`, moved into `domain`, and unify. Raises `SpecError`."""
    programs = varied or [program] * len(TRACE_SIZES)
    traced = tuple(
        trace_once(at, domain.within(sizes), seed, tables)
        for seed, (at, sizes) in enumerate(zip(programs, TRACE_SIZES, strict=True))
    )
    readings = [t.reading for t in traced]
    sizes = [
        {**t.sizes, **{varied_name(v): other for v, other in at.varied.items()}}
        for t, at in zip(traced, programs, strict=True)
    ]
    bound = {varied_name(v): Num(v) for v in programs[0].varied}
    first = readings[0]
    for other in readings[1:]:
        if (
            (other.q.base, other.k.base, other.v.base, other.output)
            != (first.q.base, first.k.base, first.v.base, first.output)
            or _lacking(other) != _lacking(first)
            or len(other.late_masks) != len(first.late_masks)
        ):
            raise _varies(program, "the spec computes something else at another size")

    def one(part: str, forms: list[Expr]) -> Expr:
        try:
            return rename(unify(forms, sizes), bound)
        except Mismatch as problem:
            shown = " and ".join(problem.texts[:2])
            raise _varies(
                program, f"the {part} takes another form at another size: {shown}"
            ) from None
        except NoForm as problem:
            raise _varies(
                program, f"in the {part}, {problem}, which is no known form of them"
            ) from None

    def any_one(part: str, forms: list[Expr | None]) -> Expr | None:
        there = [form for form in forms if form is not None]
        return one(part, there) if there else None

    return Read(
        traced,
        tuple(sizes),
        bound,
        one("score", [r.score for r in readings]),
        one("mask", [r.keep for r in readings]),
        tuple(one("mask", list(c)) for c in zip(*(r.late_masks for r in readings), strict=True)),
        any_one("weight", [r.late for r in readings]),
        any_one("weight", [r.weight for r in readings]),
        any_one("sink", [r.sink for r in readings]),
        one("output", [r.after for r in readings]),
        one("head of k and v", [r.kv_head for r in readings]),
        any_one("change of q", [r.made_q for r in readings]),
        any_one("change of k", [r.made_k for r in readings]),
        any_one("output", [None if r.other is None else r.other.value for r in readings]),
    )  # fmt: skip


def _lacking(reading: Reading) -> tuple[bool, ...]:
    """Which of the parts that not every spec has are none."""
    parts = (
        reading.weight, reading.late, reading.sink, reading.made_q, reading.made_k, reading.other,
    )  # fmt: skip
    return tuple(part is None for part in parts)


def _varies(program: Program, message: str) -> SpecError:
    return program.source.error(
        message,
        program.source.line,
        "compute it from the sizes with one formula, without branches on them",
    )
