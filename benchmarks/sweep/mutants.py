"""Mutants drawn by operator, through what a session asks of them: G1 for a kernel's source, G2 and
the text checks of G3 for a target. What nothing kills is asked for a reason why it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tree_sitter_cuda
from tree_sitter import Language, Parser

from benchmarks.sweep import compiling
from benchmarks.sweep.alike import alike
from benchmarks.sweep.gate import Found, passed, target
from benchmarks.sweep.tasks import Original
from engine.cuir.canonical import canonical
from engine.cuir.nodes import (
    Assign,
    Call,
    Function,
    If,
    Module,
    Num,
    Stmt,
    map_stmt_exprs,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.rewrite import map_blocks, substitute
from engine.cuir.static.host_constants import constants_of, host_constants
from engine.errors import CuBridgeError
from engine.foreign.functions import functions_of, name_of
from engine.gates.runs.subject import Subject
from engine.gates.schedules.schedule_calls import asked_schedule
from engine.gates.schedules.schedule_goals import LISTS, ORDER, SCHEDULE
from engine.gates.schedules.work_pieces import asked_work
from engine.lift import lift, lift_source, load_package
from engine.lower.lower import lower
from engine.lower.spans import allowed_spans, verify_spans
from engine.resources import spec_path
from engine.spec.read import read_recipe
from engine.transfer.rules import plan
from tests.engine.lift.mutations import sample
from tests.engine.lower.relift import verify_relift
from tests.mutants.cuir_mutants import drawn
from tests.mutants.reviewed import reason_for

SEED = 12
MOST = 40  # of one original; they are drawn together

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: where, and what it changes; its module, and its text where it is a source's."""

    operator: str
    function: str
    statement: str
    change: str
    module: Callable[[], Module]
    source: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """An original as the gates judge it, and its mutants in the order drawn."""

    subject: Subject
    mutants: tuple[Mutant, ...]


def judge_mutants(original: Original, numbers: tuple[int, ...]) -> Iterator[tuple[int, Line]]:
    """What became of the mutants of these numbers."""
    ready = _ready(original)
    for number in numbers:
        if number >= len(ready.mutants):
            yield number, {"outcome": "none", "why": "no such fault is left"}
            continue
        one = ready.mutants[number]
        told = {"operator": one.operator, "function": one.function, "statement": one.statement,
                "change": one.change}  # fmt: skip
        outcome, why = _fate(original, ready.subject, one)
        yield number, told | {"outcome": outcome, "why": why}


def _fate(original: Original, subject: Subject, one: Mutant) -> tuple[str, str]:
    """refused, same, killed (by what), survived (why that is right), or open."""
    gate = "G1" if original.spec is None else "G2"
    try:
        module = one.module()
        if canonical(module) == canonical(subject.module):
            return "same", "the same module"
        archs = load_package(original.kernel).archs
        found = passed(replace(subject, module=module), archs)
    except CuBridgeError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "internal", f"{type(error).__name__}: {error}"
    if found.by:
        return "killed", f"{gate}, {found.by}: {found.why}"
    return _survivor(original, subject, module, found, one)


def _survivor(
    original: Original, subject: Subject, module: Module, found: Found, one: Mutant
) -> tuple[str, str]:
    package = load_package(original.kernel)
    if original.spec is None:
        assert one.source is not None
        text, right = one.source, package.source
    else:
        lifted = lift(package, original.key, original.arch)
        right = lower(lifted, subject.module).source
        try:
            text = lower(lifted, module).source
        except CuBridgeError as error:
            return "refused", f"{type(error).__name__}: {error}"
        offence = verify_spans(lifted.source, text, allowed_spans(lifted, module))
        wrong = offence or verify_relift(text, [module])
        if wrong is not None:
            return "killed", f"G3, the text: {wrong}"
    for about, without in ((SCHEDULE, _schedule), (ORDER, _order), (LISTS, _classes)):
        if not found.is_proven(about):
            continue
        if canonical(without(subject.module)) == canonical(without(module)):
            return "survived", f"a proof: only {about} differs, whose goals are all proven"
    if alike(subject.module, module):
        return "survived", "a proof: the same program in another order"
    launched = _launched(subject.module, module)
    if launched:
        return "survived", launched
    reason = reason_for(original.kernel, one.function, one.statement, one.operator, one.change)
    if reason is not None:
        return "survived", f"reviewed: {reason}"
    made, was = (compiling.ptx(original.arch, original.key, t) for t in (text, right))
    if made is None:
        return "killed", "G3, nvcc: it does not compile"
    if made == was and _hosts(subject.module) == _hosts(module):
        return "survived", "identical PTX"
    return "open", "no reason"


def _launched(right: Module, mutant: Module) -> str:
    """Why launchers whose compile-time numbers alone differ are no fault; empty where more does."""

    def rest(module: Module, *, names: bool) -> Module:
        """Without what the numbers are made of, and with the numbers where `names` do not stay."""
        found = {} if names else host_constants(module)
        known = constants_of(module)
        numbers = {n: Num(value) for n, value in found.items()}

        def plain(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            kept = (s for s in block if not (isinstance(s, Assign) and s.target in known))
            return tuple(map_stmt_exprs(s, lambda e: substitute(e, numbers)) for s in kept)

        def without(one: Function) -> Function:
            return replace(one, body=map_blocks(one.body, plain)) if one.kind == "host" else one

        return replace(module, functions=tuple(map(without, module.functions)))

    if canonical(rest(right, names=False)) == canonical(rest(mutant, names=False)):
        return "a proof: the launcher has the same numbers"
    if canonical(rest(right, names=True)) == canonical(rest(mutant, names=True)):
        return "judged on each arch: other tiles, stages or shared memory"
    return ""


def _hosts(module: Module) -> tuple[Function, ...]:
    return tuple(f for f in module.functions if f.kind == "host")


def _classes(module: Module) -> Module:
    """Without what the kernel that classes tiles asks: what class a tile has, and not where it is
    put."""

    def classes(one: Function) -> bool:
        parts = (part for _, stmt in walk_block(one.body, ()) for part in stmt_exprs(stmt))
        return any(isinstance(e, Call) and e.fn == "class_of" for p in parts for e in walk_expr(p))

    def unasked(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(replace(s, cond=Num(True)) if isinstance(s, If) else s for s in block)

    return replace(
        module,
        functions=tuple(
            replace(f, body=map_blocks(f.body, unasked)) if classes(f) else f
            for f in module.functions
        ),
    )


def _schedule(module: Module) -> Module:
    """Without the functions of the tile schedule."""
    asked = asked_schedule(module)
    return _without(module, {asked.count, asked.index, asked.full, asked.lead, asked.tail})


def _order(module: Module) -> Module:
    """Without the functions that say which block of rows a piece of work is."""
    device = {f.name for f in module.functions if f.kind == "device"}
    parts = [e for o in asked_work(module) for e in (o.batch, o.head, o.row)]
    called = {e.fn for part in parts for e in walk_expr(part) if isinstance(e, Call)}
    return _without(module, called & device)


def _without(module: Module, names: Set[str | None]) -> Module:
    kept = tuple(f for f in module.functions if f.name not in names)
    return replace(module, functions=kept)


@lru_cache(maxsize=2)
def _ready(original: Original) -> Ready:
    return _source(original) if original.spec is None else _target(original, original.spec)


def _source(original: Original) -> Ready:
    package = load_package(original.kernel)
    binding = package.specialisation(original.key)
    module = lift(package, original.key, original.arch).module
    assert package.reference is not None
    recipe = read_recipe(package.reference, {})
    subject = Subject(module, recipe, plan(module, recipe).binding, package.reference, {})
    lines = package.source.decode().splitlines()

    def mutant(one: Any) -> Mutant:
        def make() -> Module:
            return lift_source(one.source, binding, original.arch, entry=package.entry).module

        statement = lines[one.line - 1].strip()
        function = function_at(package.source, one.line)
        return Mutant(one.kind, function, statement, one.words, make, one.source)

    return Ready(subject, tuple(map(mutant, sample(package.source, MOST, SEED))))


def function_at(source: bytes, line: int) -> str:
    """The function of a CUDA source that a line is in; empty where it is in none."""
    root = Parser(Language(tree_sitter_cuda.language())).parse(source).root_node
    inside = (f for f in functions_of(root) if f.start_point[0] < line <= f.end_point[0] + 1)
    return next(map(name_of, inside), "")


def _target(original: Original, spec: str) -> Ready:
    base = lift(load_package(original.kernel), original.key, original.arch).module
    recipe = read_recipe(spec_path(spec), {})
    subject = target(base, recipe, spec_path(spec))

    def mutant(one: Any) -> Mutant:
        return Mutant(
            one.operator, one.function, one.statement, one.words, lambda: parse_module(one.text)
        )

    return Ready(subject, tuple(map(mutant, drawn(print_module(subject.module), MOST, SEED))))
