"""Calls of a module's own functions, as their code at each call (PTX ISA, "Function declarations
and definitions"). nvcc leaves a call where it does not inline; which it is changes no value.

A function's registers, labels and variables get names of their own at each call; its parameters,
and what it returns, are the variables that the caller passes, in each thread's own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from engine.errors import InputError
from engine.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Location,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)


@dataclass(frozen=True, slots=True)
class Body:
    """What stands between the braces of a kernel or a function.

    Args:
        formal: what a function returns, then its parameters, by name.
    """

    registers: Mapping[str, str]
    variables: tuple[Variable, ...]
    code: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]]
    formal: tuple[str, ...] = ()


Functions = Callable[[str], Body | None]


def inlined(body: Body, functions: Functions) -> Body:
    """A kernel's body without calls of functions that are known by name.

    Raises:
        InputError: a function calls itself, or is not given variables for its parameters.
    """
    if not any(_called(at, functions) for at in body.code):
        return body
    out = _Inlined(functions)
    out.put(body, {}, None, ())
    return Body(out.registers, tuple(out.variables.values()), tuple(out.code), out.labels,
                out.tables)  # fmt: skip


def _called(at: Instruction, functions: Functions) -> tuple[str, Body] | None:
    """The function that an instruction calls, with its name."""
    if at.name == "call":
        for operand in at.operands:
            if isinstance(operand, Symbol) and (body := functions(operand.name)) is not None:
                return operand.name, body
    return None


@dataclass(slots=True)
class _Inlined:
    functions: Functions
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: int = 0

    def put(
        self, body: Body, names: Mapping[str, str], call: Instruction | None,
        within: tuple[str, ...], end: str = "",
    ) -> None:  # fmt: skip
        """Appends a body under other names, whose function ends where `end` stands."""
        self.registers |= {names.get(r, r): type for r, type in body.registers.items()}
        passed = set(_passed(body, self.functions))
        for variable in body.variables:
            name = names.get(variable.name, variable.name)
            space = "local" if variable.name in passed else variable.space
            self.variables[name] = replace(variable, name=name, space=space)
        sources: dict[Location | None, Location | None] = {}
        starts: list[int] = []
        for at in body.code:
            starts.append(len(self.code))
            if at.source not in sources:
                sources[at.source] = _at_call(at.source, call)
            made = _renamed(at, names, sources[at.source]) if call is not None else at
            found = _called(made, self.functions)
            if found is not None:
                self.call(made, *found, within)
            elif end and made.name == "ret":
                self.code.append(replace(made, name="bra", operands=(Symbol(end),)))
            else:
                self.code.append(self.moved(made, call is not None))
        starts.append(len(self.code))
        self.labels |= {names.get(n, n): starts[k] for n, k in body.labels.items()}
        self.tables |= {
            names.get(n, n): tuple(names.get(t, t) for t in row) for n, row in body.tables.items()
        }

    def call(self, at: Instruction, name: str, body: Body, within: tuple[str, ...]) -> None:
        if name in within:
            raise InputError(f"{at.source or at}: {name} calls itself, which is not executed yet")
        given = [i for o in at.operands if isinstance(o, Vector) for i in o.items]
        if len(given) != len(body.formal) or not all(isinstance(i, Symbol) for i in given):
            raise InputError(f"{at.source or at}: {name} is given what are no variables, which is "
                             "not executed yet")  # fmt: skip
        self.calls += 1
        own = f"@{self.calls}"
        end = f"return{own}"
        names = {n: n + own for n in (*body.registers, *body.labels, *body.tables)}
        names |= {v.name: v.name + own for v in body.variables if v.space != "shared"}
        names |= {f: i.name for f, i in zip(body.formal, given, strict=True)
                  if isinstance(i, Symbol)}  # fmt: skip
        if at.guard is not None:
            skip = replace(at.guard, negated=not at.guard.negated)
            self.code.append(
                replace(at, name="bra", modifiers=(), operands=(Symbol(end),), guard=skip)
            )
        self.put(body, names, at, (*within, name), end)
        self.labels[end] = len(self.code)

    def moved(self, at: Instruction, inside: bool) -> Instruction:
        """An access of a parameter of a call, as one of the thread's own memory."""
        if at.name not in ("ld", "st") or not {"param", "param::func"} & set(at.modifiers):
            return at
        base = next((o.base for o in at.operands if isinstance(o, Address)), None)
        held = self.variables.get(base.name) if isinstance(base, Symbol) else None
        if (held is None or held.space != "local") and not (inside and isinstance(base, Register)):
            return at
        kinds = tuple("local" if m.startswith("param") else m for m in at.modifiers)
        return replace(at, modifiers=kinds)


def _passed(body: Body, functions: Functions) -> Iterator[str]:
    """The variables that a body gives to functions that are known."""
    for at in body.code:
        if _called(at, functions):
            for operand in at.operands:
                if isinstance(operand, Vector):
                    yield from (i.name for i in operand.items if isinstance(i, Symbol))


def _at_call(source: Location | None, call: Instruction | None) -> Location | None:
    """A function's line, with the line of the call as the last that it is inlined at."""
    if source is None or call is None:
        return source if call is None else call.source
    return replace(source, inlined_at=_at_call(source.inlined_at, call))


def _renamed(at: Instruction, names: Mapping[str, str], source: Location | None) -> Instruction:
    guard = at.guard and replace(at.guard, name=names.get(at.guard.name, at.guard.name))
    operands = tuple(_operand(o, names) for o in at.operands)
    return replace(at, operands=operands, guard=guard, source=source)


def _operand(operand: Operand, names: Mapping[str, str]) -> Operand:
    match operand:
        case Register(name) | Symbol(name):
            return replace(operand, name=names.get(name, name))
        case Vector(items):
            return Vector(tuple(_operand(i, names) for i in items))
        case Pair(first, second):
            return Pair(_operand(first, names), _operand(second, names))
        case Address(base, _, coordinates):
            at = _operand(base, names)
            assert isinstance(at, Register | Symbol | Immediate)
            inside = tuple(_operand(c, names) for c in coordinates)
            return replace(operand, base=at, coordinates=inside)
    return operand
