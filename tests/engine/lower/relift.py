"""The lowered text, lifted again, must be the target: for every specialisation that is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cuir.canonical import Difference, first_difference
from engine.cuir.nodes import Module
from engine.errors import LiftError
from engine.lift.files.lifter import lift_source
from engine.lower.lower import specialisation_of
from engine.lower.spelling.legal import legal


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
