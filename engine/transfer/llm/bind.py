"""How a model's target is filled from the spec's inputs: the base kernel's own fields by role, new
fields by name or by what the answer's `bind` block says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Field,
    Module,
    Name,
    Num,
    Select,
    Unary,
    free_names,
    walk_expr,
)
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.errors import CuirError
from engine.spec.python.declarations import Declared
from engine.spec.recipes.recipe import Input
from engine.transfer.binding import (
    SIZES,
    Binding,
    ScalarField,
    Scratch,
    SizeField,
    TensorField,
    own_tensors,
)
from engine.transfer.llm.answer import AnswerError, AnswerRefused
from engine.transfer.llm.guards import written
from engine.transfer.match import find_attention

DEFAULT_SCALE = "rsqrt(f32(D))"


@dataclass(frozen=True, slots=True)
class Interface:
    """What the spec offers to bind: from its recipe where there is one, else as declared."""

    inputs: tuple[Input, ...]
    output_dims: tuple[str, ...]
    scalars: tuple[tuple[str, int | float | bool], ...]

    @staticmethod
    def of(
        declared: Declared, inputs: Sequence[Input] | None, output: tuple[str, ...] | None
    ) -> Interface:
        return Interface(
            declared.inputs if inputs is None else tuple(inputs),
            declared.output_dims if output is None else output,
            declared.scalars,
        )

    @property
    def extra(self) -> tuple[Input, ...]:
        return tuple(i for i in self.inputs if i.role == "extra")

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Every named size."""
        named = [d for i in self.inputs for d in i.dims if not d.isdigit()]
        return tuple(dict.fromkeys((*SIZES, *named)))


def bind(
    base: Module, proposed: Module, interface: Interface, pairs: Sequence[tuple[str, str]]
) -> Binding:
    """The binding of a proposed module.

    Raises:
        AnswerError: a field that nothing fills, or a line that names what is not there.
        AnswerRefused: a line that would fill q, k, v or the outputs with something else.
    """
    roles = find_attention(base).fields
    by_role = {role: field for role, field in roles.items() if role != "scale"}
    given = dict(pairs)
    fields = {f.name: f for f in proposed.fields}
    for name in given:
        if name not in fields:
            raise AnswerError(f"bind: class Args has no field {name!r}")
        if name in by_role.values():
            raise AnswerRefused(f"bind: {name} is the kernel's own and stays as it is filled")
    for role in [i.role for i in interface.inputs if i.role != "extra"]:
        if by_role[role] not in fields:
            raise AnswerError(f"class Args lost the field {by_role[role]!r}, which holds {role}")
    if by_role["o"] not in fields:
        raise AnswerError(
            f"class Args lost the field {by_role['o']!r}, which the output is written to"
        )
    lse = by_role.get("lse") in fields
    if lse and by_role["lse"] not in written(proposed):
        raise AnswerError(
            f"nothing writes the output {by_role['lse']!r}: write it, or where the variant has "
            "no log-sum-exp delete its view and its field in class Args"
        )
    tensors = own_tensors(by_role, interface.inputs, interface.output_dims, lse)
    own = {f.name for f in base.fields}
    scratch = scratch_of(pairs, interface)
    for asked in scratch:
        if fields[asked.field].type != "tensor":
            raise AnswerError(
                f"bind: {asked.field} is {fields[asked.field].type} in class Args: what one kernel "
                "fills for another is a field of type tensor"
            )
    sizes: list[SizeField] = []
    scalars: list[ScalarField] = []
    for extra in proposed.fields:
        if extra.name in by_role.values() or extra.name in {s.field for s in scratch}:
            continue
        source = given.get(extra.name)
        if extra.type == "tensor":
            tensors.append(_tensor(extra, source, interface))
        elif source is None and extra.name == roles.get("scale") and extra.name in own:
            if extra.name in {n for n, _ in interface.scalars} | {i.name for i in interface.extra}:
                raise AnswerError(
                    f"args.{extra.name} is the kernel's factor of q.k, and the spec has a "
                    f"{extra.name} of its own: say which it is in a ```bind line "
                    f"(`{extra.name} = {extra.name}` for the spec's, or `{extra.name} = "
                    f"{DEFAULT_SCALE}`)"
                )
            scalars.append(ScalarField(extra.name, parse_expr(DEFAULT_SCALE)))
        elif extra.type in ("i32", "i64"):
            sizes.append(SizeField(extra.name, print_expr(_number(extra, source, interface))))
        else:
            scalars.append(ScalarField(extra.name, _number(extra, source, interface)))
    return Binding(tuple(tensors), tuple(sizes), tuple(scalars), scratch=scratch)


def scratch_of(pairs: Sequence[tuple[str, str]], interface: Interface) -> tuple[Scratch, ...]:
    """What a `bind` block asks the caller to allocate, as in `q_ready = scratch[T](B, Hq, Nq, D)`:
    one kernel fills it for another.

    Raises:
        AnswerError: its type or one of its sizes is none.
    """
    out = []
    for field, source in pairs:
        try:
            asked = parse_expr(source, f"bind {field}")
        except CuirError as error:
            raise AnswerError(str(error)) from None
        if not isinstance(asked, Call) or asked.fn != "scratch":
            continue
        match asked:
            case Call("scratch", args, (), (Name("T" | "f32" as dtype),)) if 0 < len(args) <= 4:
                dims = tuple(print_expr(e) for e in args)
            case _:
                raise AnswerError(
                    f"bind: {field} = {source} is no tensor to be allocated: write "
                    "`scratch[T](B, Hq, Nq, D)`, with T or f32 and at most four sizes"
                )
        unknown = [d for d in dims if d not in interface.dimensions and not d.isdecimal()]
        if unknown:
            there = ", ".join(interface.dimensions)
            raise AnswerError(f"bind: {field} has no size {unknown[0]!r}: there are {there}")
        out.append(Scratch(field, dims, dtype))
    return tuple(out)


def _tensor(field: Field, source: str | None, interface: Interface) -> TensorField:
    name = source or field.name
    item = next((i for i in interface.extra if i.name == name and i.dims), None)
    if item is None:
        there = ", ".join(i.name for i in interface.extra if i.dims) or "none"
        raise AnswerError(
            f"nothing fills the tensor field {field.name!r}: the spec's extra tensors are {there}; "
            "give the field an input's name, or a ```bind line `field = input`"
        )
    if len(item.dims) > 4:
        raise AnswerError(f"input {name} has {len(item.dims)} dimensions; a field has at most 4")
    return TensorField(field.name, item.name, item.dims, item.dims, item.dtype)


def _number(field: Field, source: str | None, interface: Interface) -> Expr:
    """A number field as an expression over sizes and scalar inputs."""
    constants = dict(interface.scalars)
    inputs = {i.name for i in interface.extra if not i.dims}
    if source is None:
        if field.name in constants:
            return Num(constants[field.name])
        if field.name in interface.dimensions or field.name in inputs:
            return Name(field.name)
        raise AnswerError(
            f"nothing fills the field {field.name!r}: give it the name of a size "
            f"({', '.join(interface.dimensions)}) or of a scalar of the spec, or a ```bind line "
            "`field = expression`"
        )
    try:
        expr = parse_expr(source, f"bind {field.name}")
    except CuirError as error:
        raise AnswerError(str(error)) from None
    steps = [n for n in walk_expr(expr) if _has_a_step(n)]
    if steps:
        raise AnswerRefused(
            f"bind: {field.name} = {print_expr(steps[0])} is one thing at some sizes and another "
            "at others: conditions belong in the kernel's text, where each side is tested"
        )
    unknown = free_names(expr) - set(interface.dimensions) - inputs - set(constants)
    if unknown:
        raise AnswerError(f"bind: {field.name} is made of {min(unknown)!r}, which the spec lacks")
    from engine.cuir.rewrite import substitute

    return substitute(expr, {n: Num(v) for n, v in constants.items()})


def _has_a_step(expr: Expr) -> bool:
    """Whether an operation is a condition, or arithmetic with one in it. Quotients of sizes alone
    (the heads of a group) are none."""
    match expr:
        case Select() | Compare() | Bool() | Unary("not", _):
            return True
        case Binary("//" | "%", _, right) | Call(
            "floor_div" | "floor_mod" | "ceil_div", (_, right)
        ):
            return any(isinstance(n, Num) for n in walk_expr(right))
        case Binary("&" | "|" | "^" | ">>" | "<<", _, _):
            return True
        case Call("min" | "max" | "abs" | "floor" | "ceil" | "int" | "i32" | "i64" | "bool", _):
            return True
    return False
