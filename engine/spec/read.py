"""`read_recipe`: a spec file becomes a recipe, proven against the spec's own function."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from engine.cuir.nodes import Compare, Expr, Name, Num, Select, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.static.kernel_names import meaning_of
from engine.errors import SpecError
from engine.prove.same import same_predicate
from engine.prove.solver import Witness
from engine.scalar_algebra.canonical import canonical, canonical_predicate
from engine.scalar_algebra.given import simplified_where
from engine.scalar_algebra.kinds import Kinds
from engine.scalar_algebra.rewrite import load_names, rename
from engine.spec.attention.clauses import clauses_of
from engine.spec.attention.parts import parts_of
from engine.spec.attention.refusals import unread_op
from engine.spec.expressions import build
from engine.spec.expressions.cancelling_multiples import grouped
from engine.spec.expressions.closed_forms import Form, closed_form, with_forms
from engine.spec.expressions.divisors import nonzero_divisors
from engine.spec.expressions.fit import NoForm, fit
from engine.spec.python.declarations import check_dims
from engine.spec.python.dimension_sizes import CHECK_SIZES, Domain
from engine.spec.python.load import surroundings
from engine.spec.python.modes import OnCpu, Widen
from engine.spec.python.program import Program, program_of, variations
from engine.spec.python.spec_file import EXAMPLE, OWN_NAMES, TensorParameter, read_source
from engine.spec.readings.derived_inputs import derived_values
from engine.spec.readings.size_readings import (
    Read,
    output_names,
    random_inputs,
    read_all,
    role_names,
    roles_by_name,
)
from engine.spec.recipes.recipe import Input, Other, Recipe
from engine.spec.reference.oracle import expected, vmapped_mods, wide_outputs, widened
from engine.spec.reference.row_sums import base_and_order
from engine.spec.tracing.folding import Tables, is_of_angle
from engine.spec.tracing.trace import Leaf
from engine.spec.validation.run_comparison import dims_at
from engine.spec.validation.validate import validate_recipe

_OUTPUT_NAMES = {"b": "B", "h": "Hq", "i": "Nq"}
HeadSizes = Sequence[tuple[int, int]]
_TABLE_DTYPE = {"float": "f32", "int": "i32", "bool": "bool"}


def read_recipe(
    path: Path,
    options: Mapping[str, object] | None = None,
    head_sizes: HeadSizes = (),
) -> Recipe:
    """The recipe of the spec at `path`, with its scalars overridden by `options`.

    It is held against the spec's own function at (D, Dv) of `head_sizes` too, beside those that
    kernels usually have.

    Runs the user's code: call it in a child process only. Raises `SpecError`.
    """
    source = read_source(Path(path), options or {})
    program = program_of(source)
    with surroundings(source), _one_thread():
        return _within_some_domain(program, head_sizes)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors of a trace are tiny: waking threads costs more than it brings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _within_some_domain(program: Program, head_sizes: HeadSizes) -> Recipe:
    """Read for any lengths; where the spec itself fails there, for Nq <= Nk, then for Nq == Nk."""
    failure: SpecError | None = None
    for domain in Domain:
        try:
            return _read_or_vary(program, domain, head_sizes)
        except SpecError as error:
            if error.__cause__ is None:  # not raised by the user's code
                raise failure or error from None
            failure = failure or error
    assert failure is not None
    raise failure


def _read_or_vary(program: Program, domain: Domain, head_sizes: HeadSizes) -> Recipe:
    """The recipe with the smallest tables, of all ways to read the spec.

    First with its large integers varied beside the sizes, then as it stands; with formulas for what
    reads no input wherever there are some, then with tables for more of it. The first recipe whose
    tables are vectors at most is taken.
    """
    best: tuple[int, Recipe] | None = None
    failure: SpecError | None = None
    last: tuple[Read, Recipe, Sequence[Program]] | None = None  # where there is no other way
    ways: list[tuple[Tables, bool, Sequence[Program]]]
    ways = [(Tables.FORMULAS, True, varied) for varied in variations(program)]
    ways += [(tables, True, ()) for tables in Tables]
    # A formula that was found for a table was none.
    ways += [(Tables.EARLY, False, ()), (Tables.WHOLE, False, ())]
    for tables, closed, varied in ways:
        try:
            read = read_all(program, domain, varied, tables)
            recipe = _recipe(program, read, domain, closed)
            if _computes_angles(recipe):
                last = last or (read, recipe, varied)
                continue
            rank = _largest_table(recipe)
            if best is not None and best[0] <= rank:
                continue
            best = rank, _validated(program, read, recipe, domain, head_sizes, varied)
        except SpecError as error:
            if not varied:
                failure = failure or error
                if error.__cause__ is not None:  # raised by the user's code
                    break
            continue
        if rank <= 1:
            break
    if best is None and last is not None:
        read, recipe, varied = last
        return _validated(program, read, recipe, domain, head_sizes, varied)
    if best is None:
        assert failure is not None
        raise failure
    return best[1]


def _largest_table(recipe: Recipe) -> int:
    """The dimensions of the largest table that the spec builds."""
    return max((len(i.dims) for i in recipe.inputs if i.derive is not None), default=0)


def _computes_angles(recipe: Recipe) -> bool:
    """Whether q or k is multiplied by sines or cosines of no input for each element: any table of
    them is better."""
    made = (recipe.q, recipe.k)
    return any(
        is_of_angle(e) and not load_names(e)
        for part in made if part is not None
        for e in walk_expr(part)
    )  # fmt: skip


def _validated(
    program: Program,
    read: Read,
    recipe: Recipe,
    domain: Domain,
    head_sizes: HeadSizes,
    varied: Sequence[Program],
) -> Recipe:
    integers = frozenset(v for at in varied for v in at.varied)
    recipe = _with_lse(program, recipe, domain)
    looked = any(t.trace.seen for t in read.traced)
    outcome = validate_recipe(program, recipe, domain, integers, head_sizes, looked)
    recipe = dataclasses.replace(recipe, empty_rows=outcome.empty_rows)
    first = read.traced[0]
    clauses = clauses_of(recipe, first.lines, first.trace.kinds, outcome.rounded)
    return dataclasses.replace(recipe, clauses=clauses)


def _with_lse(program: Program, recipe: Recipe, domain: Domain) -> Recipe:
    """The recipe with what the spec's second output is, where it has one."""
    dims = dims_at(program, domain.within(CHECK_SIZES[0]))
    inputs = random_inputs(program.tensors, dims, 99)
    given = {t.name: widened(inputs[t.name]) for t in program.tensors}
    second = wide_outputs(program, given)[1]
    if second is None:
        return recipe
    ours = expected(recipe, {**inputs, **derived_values(program, recipe, inputs)})
    base, order = base_and_order(program, recipe, second, ours.lse)
    return dataclasses.replace(recipe, lse=base, lse_dims=order)


def _merges(program: Program, domain: Domain) -> bool:
    """Whether the output comes with heads and columns as one dimension, declared or not."""
    if program.source.returns is not None:
        return program.source.merged
    dims = dims_at(program, domain.within(CHECK_SIZES[0]))
    given = random_inputs(program.tensors, dims, 99)
    with OnCpu(), Widen():  # type: ignore[no-untyped-call]
        return program.merges({n: widened(t) for n, t in given.items()}, vmapped_mods)


def _simplified(keep: Expr, kinds: Kinds) -> Expr:
    """A mask's canonical form; the mask as it was read where the solver tells the two apart."""
    simple = canonical_predicate(keep, kinds)
    truths = frozenset(name for name, kind in kinds.items() if kind == "bool")
    differs = isinstance(same_predicate(keep, simple, truths), Witness)
    return keep if differs else simple


def _recipe(program: Program, read: Read, domain: Domain, closed: bool) -> Recipe:
    forms, tables = _tables(program, read, closed)
    kinds: Kinds = read.traced[0].trace.kinds  # with those of the tables

    def clean(expr: Expr) -> Expr:
        return canonical(with_forms(expr, forms), kinds)

    keep = _simplified(with_forms(read.keep, forms), kinds)
    late = None if read.late is None else clean(read.late)
    for mask in read.late_masks:
        kept = with_forms(mask, forms)
        if canonical_predicate(build.both(keep, kept), kinds) != keep:
            late = Select(_simplified(kept, kinds), late or Num(1.0), Num(0.0))
    score = grouped(canonical(simplified_where(keep, clean(read.score), kinds), kinds))
    weight = None if read.weight is None else clean(read.weight)
    sink = None if read.sink is None else clean(read.sink)
    output = clean(read.after)
    kv_head = clean(read.kv_head)
    made_q, made_k = (
        None if e is None else with_forms(e, forms) for e in (read.made_q, read.made_k)
    )
    other = _other(read, clean)
    together = None if other is None else other.value
    read_by = (keep, score, late, sink, output, kv_head, made_q, made_k, together)
    used = frozenset().union(*(load_names(e) for e in read_by if e is not None))
    return Recipe(
        source=program.source.kind,
        inputs=(*_inputs(program, read), *(t for t in tables if t.name in used)),
        score=score,
        keep=keep,
        weight=weight,
        late=late,
        kv_head=kv_head,
        output_dims=_output_dims(program, read),
        empty_rows="never",
        q=made_q,
        k=made_k,
        sink=sink,
        output=output,
        other=other,
        merged=_merges(program, domain),
        constraints=(
            *_constraints(program, read, domain),
            *nonzero_divisors([score, keep, weight, late, sink, output, together], kinds),
        ),
    )


def _other(read: Read, clean: Callable[[Expr], Expr]) -> Other | None:
    """The attention beside the one that was read."""
    found = read.traced[0].reading.other
    if found is None or read.together is None:
        return None
    assert isinstance(found.q.base, Name) and isinstance(found.k.base, Name)
    return Other(found.q.base.id, found.k.base.id, clean(read.together))


# --- tables --------------------------------------------------------------------------------------


def _tables(program: Program, read: Read, closed: bool) -> tuple[dict[str, Form], list[Input]]:
    """Closed forms of constant tables, where wanted, and an input for each table without one."""
    parts = (
        read.score, read.keep, read.sink, read.after, read.kv_head, read.made_q, read.made_k,
        read.together, read.late, *read.late_masks,
    )  # fmt: skip
    names = sorted(frozenset().union(*(load_names(e) for e in parts if e is not None)))
    sizes = read.sizes
    forms: dict[str, Form] = {}
    inputs: list[Input] = []
    plain = {i.name for i in _inputs(program, read) if i.role != "extra"}
    taken = {t.name for t in program.tensors} | set(OWN_NAMES)
    for name in names:
        leaves = [t.trace.leaves[name] for t in read.traced if name in t.trace.leaves]
        if len(leaves) != len(read.traced):
            continue
        first = leaves[0]
        if any(leaf.key != first.key for leaf in leaves) or first.deps & plain:
            raise _unread(program, first)
        form = None
        if closed and not first.deps:
            form = closed_form([leaf.value for leaf in leaves], sizes)
        if form is not None:
            forms[name] = form.bound_to(read.bound)
            continue
        kind = read.traced[0].trace.kinds[name]
        given = _named_at(program, first.line)
        if given is not None and given not in taken and meaning_of(given) is None:
            taken.add(given)
            forms[name] = Form(partial(build.load, given))
            read.traced[0].trace.kinds[given] = kind
            name = given
        dims = _table_dims(program, leaves, read)
        inputs.append(Input(name, "extra", _TABLE_DTYPE[kind], dims, first.key))
    return forms, inputs


def _named_at(program: Program, line: int | None) -> str | None:
    """The variable that the spec assigns at `line`, to call the table by."""
    for node in ast.walk(program.source.tree):
        match node:
            case ast.Assign([ast.Name(name)]) if line and node.lineno <= line <= (
                node.end_lineno or 0
            ):
                return name
    return None


def _table_dims(program: Program, leaves: list[Leaf], read: Read) -> tuple[str, ...]:
    sizes = read.sizes
    dims = []
    for column in zip(*(leaf.value.shape for leaf in leaves), strict=True):
        try:
            dims.append(print_expr(rename(fit([int(c) for c in column], sizes), read.bound)))
        except NoForm:
            raise _unread(program, leaves[0]) from None
    return tuple(dims)


def _unread(program: Program, leaf: Leaf) -> Exception:
    reason = unread_op(leaf.op, leaf.deps or frozenset(("a constant",)))
    return program.source.error(reason.words, leaf.line or program.source.line, reason.fix)


# --- inputs and dimensions -----------------------------------------------------------------------


def _inputs(program: Program, read: Read) -> tuple[Input, ...]:
    """The spec's tensors with their roles, and dimension names by role."""
    reading = read.traced[0].reading
    roles = {reading.q.base: "q", reading.k.base: "k", reading.v.base: "v"}
    other = reading.other
    if other is not None:
        roles |= {other.q.base: "q", other.k.base: "k"}
    renamed = roles_by_name(program, read.traced[0].reading)
    outputs = dict(zip(reading.output, output_names(len(reading.output)), strict=True))
    parts = (*parts_of(reading.made_q), *parts_of(reading.made_k))
    out = []
    for t in program.tensors:
        role = roles.get(Name(t.name), "extra")
        own = role == "extra" or Name(t.name) in (reading.q.base, reading.k.base, reading.v.base)
        dims = [renamed.get(d, d) for d in t.dims]
        if t.name in parts:  # which may be as wide as v by chance
            dims = [n if d == "Dv" else d for n, d in zip(t.dims, dims, strict=True)]
        if role == "extra":
            check_dims(program.source, t.name, dims, t.line)
        else:
            _check_dims(program, t)
            dims = _with_ones(dims, ("B", "Hq", "Nq") if role == "q" else ("B", "Hkv"))
        if role == "q":
            # One name for both lengths or head counts: q's own dimensions keep the query's.
            for variable, called in (("i", "Nq"), ("h", "Hq")):
                place = Name(outputs.get(variable, ""))
                index = reading.q.index if other is None or own else other.q.index
                if place in index:
                    dims[index.index(place)] = called
        role = role if own else "extra"
        between = None
        if t.between is not None:
            sizes = {name: Name(called) for name, called in renamed.items()}
            low, high = (print_expr(rename(parse_expr(end), sizes)) for end in t.between)
            between = low, high
        out.append(
            Input(t.name, role, t.dtype, tuple(dims), None, between)  # type: ignore[arg-type]
        )
    return tuple(out)


def _with_ones(dims: list[str], parts: Sequence[str]) -> list[str]:
    """The dimensions of q, k or v with a batch, a head or a query of one called by its part."""
    missing = [d for d in parts if d not in dims]
    return [missing.pop(0) if d == "1" and missing else d for d in dims]


def _check_dims(program: Program, tensor: TensorParameter) -> None:
    """Each dimension of q, k and v plays a part of its own, so it needs a name of its own."""
    named = [d for d in tensor.dims if not d.isdigit()]
    twice = next((d for d in named if named.count(d) > 1), None)
    if twice is not None:
        raise program.source.error(
            f"two dimensions of {tensor.name} are called {twice}", tensor.line,
            f'give each its own name, as in {EXAMPLE}; lengths that are equal belong to two inputs',
        )  # fmt: skip


def _constraints(program: Program, read: Read, domain: Domain) -> tuple[Expr, ...]:
    """Sizes that share one name are equal, numbers are what they are, a batch or a head that no
    input has is one, and the lengths that the spec runs at."""
    roles: dict[str, list[str]] = {}
    for name, role in role_names(program, read.traced[0].reading):
        roles.setdefault(name, []).append(role)
    found = [
        Compare("==", Name(names[0]), Name(other))
        for names in roles.values()
        for other in names[1:]
        if (names[0], other) != ("D", "Dv") and (names[0], other) != ("B", "Hkv")
    ]
    found += [
        Compare("==", Name(role), Num(int(name)))
        for name, named in roles.items()
        for role in named
        if name.isdigit()
    ]
    there = {role for named in roles.values() for role in named}
    alone = (*(() if "B" in there else ("B",)), *(() if "Hq" in there else ("Hq", "Hkv")))
    found += [Compare("==", Name(role), Num(1)) for role in alone]
    lengths = Name("Nq"), Name("Nk")
    if domain is not Domain.ANY and Compare("==", *lengths) not in found:
        found.append(Compare("==" if domain is Domain.EQUAL else "<=", *lengths))
    return tuple(found)


def _output_dims(program: Program, read: Read) -> tuple[str, ...]:
    columns = next(n for n, role in role_names(program, read.traced[0].reading) if role == "Dv")
    last = roles_by_name(program, read.traced[0].reading)[columns]
    return tuple(_OUTPUT_NAMES.get(role, last) for role in read.traced[0].reading.output)
