"""The lowered text, lifted again, must be the target: for every specialisation that is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cuir.canonical import Difference, first_difference
from engine.cuir.nodes import Module, Name, Num, Str
from engine.cuir.printer import print_expr
from engine.errors import LiftError, LowerError
from engine.lift.lifter import lift_source
from engine.lift.provenance import Lifted
from engine.lower.legal import legal
from engine.lower.lower import Lowered, changed_lines, lower


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A specialisation of the lowered text that is not its target.

    `difference` is the first differing op (left: the target, right: the text), or None when the
    text cannot be lifted at all.
    """

    specialisation: str
    difference: Difference | None
    message: str

    def __str__(self) -> str:
        return f"{self.specialisation}: {self.message}"


def specialisation_of(module: Module) -> tuple[str, dict[str, str]]:
    """The arch and the template arguments that a module is for, as the lifter takes them."""
    values: dict[str, str] = {}
    for name, value in module.spec:
        match value:
            case Name(id):
                values[name] = id
            case Str(text):
                values[name] = text
            case Num(bool() as truth):
                values[name] = "true" if truth else "false"
            case Num(number):
                values[name] = str(number)
            case _:
                raise LowerError(f"specialisation: {name}={print_expr(value)} is no plain value")
    arch = values.pop("arch", None)
    if arch is None:
        raise LowerError("the module names no arch", fix="write specialisation(arch='sm_80', ...)")
    return arch, values


def lift_for(
    source: bytes, module: Module, *, file: str = "lowered.cu", entry: str = "launch"
) -> Lifted:
    """`source` under the specialisation of `module`."""
    arch, values = specialisation_of(module)
    return lift_source(source, values, arch, file=file, entry=entry)


def verify_relift(
    lowered: bytes, targets: Sequence[Module], *, file: str = "lowered.cu", entry: str = "launch"
) -> Mismatch | None:
    """None when every target is what its specialisation of `lowered` lifts to.

    Each target names its own arch and template arguments.
    """
    for target in targets:
        arch, values = specialisation_of(target)
        words = ", ".join(f"{k}={v}" for k, v in [("arch", arch), *values.items()])
        try:
            again = lift_source(lowered, values, arch, file=file, entry=entry)
        except LiftError as error:
            return Mismatch(words, None, f"the lowered text cannot be lifted: {error}")
        found = first_difference(legal(target), again.module)
        if found is not None:
            return Mismatch(words, found, found.message)
    return None


def lower_all(lifted: Sequence[Lifted], targets: Sequence[Module]) -> Lowered:
    """One text for several specialisations of one source, in the order given.

    The first is lowered; each further one is lifted from the text so far and its own edits, if
    any are left, are made to it. Raises `LowerError` when the targets contradict each other.
    """
    if not lifted or len(lifted) != len(targets):
        raise ValueError("one target for each lifted specialisation, and at least one")
    if any(item.source != lifted[0].source for item in lifted):
        raise ValueError("all specialisations must be of one source")
    done = lower(lifted[0], targets[0])
    text, places = done.source, done.provenance
    for target in targets[1:]:
        again = lift_for(text, target, file=lifted[0].file)
        if first_difference(legal(target), again.module) is not None:
            text = lower(again, target).source
            places = {}
    mismatch = verify_relift(text, targets, file=lifted[0].file)
    if mismatch is not None and len(targets) > 1:
        raise LowerError(
            f"no one text serves all specialisations: {mismatch}",
            fix="make the same edit for each, or adapt them one by one",
        )
    if not places:
        first = lift_for(text, targets[0], file=lifted[0].file)
        places = {path: span.range for path, span in first.provenance.items()}
    source = lifted[0].source
    changed = changed_lines(source, text)
    return Lowered(text, done.target, places, changed, done.total_lines)
