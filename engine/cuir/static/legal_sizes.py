"""The sizes that a kernel is for: what is said of its whole numbers is said of these.

A package declares them (`[domain]` in kernel.toml); heads share key heads evenly besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")
PRODUCT, STRIDES = "B * Hq", "strides"
COLUMNS = 256  # of a row of q, k, v or o: no kernel is built for more
KEYS = (*SIZES, PRODUCT, STRIDES)


@dataclass(frozen=True, slots=True)
class LegalSizes:
    """The largest of each size, of all batches' heads, and of a stride either way, in elements."""

    most: Mapping[str, int]

    @property
    def length(self) -> int:
        """Of rows and keys, and of every other size that is no number of heads."""
        return max(self.most["Nq"], self.most["Nk"])

    @property
    def heads(self) -> int:
        return max(self.most["Hq"], self.most["Hkv"])

    @property
    def pairs(self) -> int:
        """Heads of all batches."""
        return self.most[PRODUCT]

    def __str__(self) -> str:
        of = self.most
        return (
            f"{of['Nq']} rows, {of['Nk']} keys, {self.heads} heads, {of['B']} batches and "
            f"{self.pairs} heads of all batches"
        )


USUAL = LegalSizes(
    {
        **dict.fromkeys(("B", "Hq", "Hkv"), 4096), **dict.fromkeys(("Nq", "Nk"), 131_072),
        PRODUCT: 65_536, STRIDES: 2**62,
    }
)  # fmt: skip
"""Of a package that declares none."""
