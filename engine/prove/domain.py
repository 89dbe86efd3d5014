"""The domain: the sizes of which something is proven, as terms with what is assumed of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import z3

from engine.cuir.nodes import Expr
from engine.prove.solver import Condition, Whole
from engine.prove.terms import Terms

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")


@dataclass(frozen=True, slots=True)
class Domain:
    """Sizes by name, and what holds of legal ones."""

    sizes: Mapping[str, Whole]
    given: tuple[Condition, ...]

    @property
    def smallest(self) -> tuple[Whole, ...]:
        """What makes a witness the smaller one: both lengths, heads and batches, then each."""
        size = self.sizes
        return (size["Nq"] + size["Nk"], size["B"] + size["Hq"], *size.values())


def domain_of(legal: Iterable[Expr], columns: Mapping[str, int]) -> Domain:
    """All sizes with at least one row, one head and one batch, where query heads share key heads
    evenly and `legal` holds: what the kernel declares and what the spec asks for.

    `columns` are the head sizes of a specialisation (D, Dv). Without rows nothing is launched.
    Raises `NotWhole` for a condition that is none on sizes.
    """
    sizes = {name: z3.Int(name) for name in SIZES}
    group = z3.Int("group")  # query heads of one key head
    given = [sizes[name] >= (0 if name == "Nk" else 1) for name in SIZES]
    given += [group >= 1, sizes["Hq"] == group * sizes["Hkv"]]
    terms = Terms({}, columns)
    given += [terms.truth(condition, sizes) for condition in legal]
    return Domain(sizes, tuple(given))
