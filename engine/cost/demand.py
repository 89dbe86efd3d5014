"""What a piece of work asks of a multiprocessor's units, and how many cycles each takes for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from engine.cost.card import Card

UNITS = {
    "tensor": "tensor cores",
    "mufu": "special functions",
    "vector": "FMA, ALU and issue slots",
    "shared": "shared memory",
    "memory": "load, store and shuffle lanes",
}


@dataclass(frozen=True, slots=True)
class Demand:
    """Amounts, independent of a card. Lanes are operations of single threads.

    `wgmma`, `mma`: FLOP by instruction. `operands`: shared bytes that wgmma reads itself.
    `mufu`, `fp32`, `alu`, `memory`: lanes. `shared`: bytes. `l2`: bytes from or to L2, `dram`:
    those of them that no other block asks for.
    `other`: lanes of instructions that ask no unit but the issue slots. `arithmetic`, `special`,
    `loads`, `near` and `far` (loads from L2, L1 and DRAM), `shuffles`, `barriers`, `matmuls`:
    instructions on the critical path, which cost a latency each. `branches`: slow paths that an
    element may take.
    """

    wgmma: float = 0.0
    mma: float = 0.0
    operands: float = 0.0
    mufu: float = 0.0
    fp32: float = 0.0
    alu: float = 0.0
    memory: float = 0.0
    other: float = 0.0
    shared: float = 0.0
    l2: float = 0.0
    dram: float = 0.0
    arithmetic: float = 0.0
    special: float = 0.0
    loads: float = 0.0
    near: float = 0.0
    far: float = 0.0
    shuffles: float = 0.0
    barriers: float = 0.0
    matmuls: float = 0.0
    branches: float = 0.0

    def __add__(self, other: Demand) -> Demand:
        return Demand(*(getattr(self, n) + getattr(other, n) for n in _NAMES))

    def times(self, factor: float) -> Demand:
        return Demand(*(getattr(self, n) * factor for n in _NAMES))

    @property
    def flops(self) -> float:
        return self.wgmma + self.mma

    def cycles(self, card: Card) -> dict[str, float]:
        """Cycles of each unit of one multiprocessor, were it alone.

        wgmma reads its operands while it multiplies, so it takes the longer of the two; issue slots
        are shared by all instructions, and the ALU takes two cycles for a warp.
        """
        issued = self.fp32 + self.alu + self.mufu + self.memory + self.other
        return {
            "tensor": max(self.wgmma / card.wgmma_flops, self.operands / card.shared_bytes)
            + self.mma / card.mma_flops,
            "mufu": self.mufu / card.mufu,
            "vector": max(issued / card.issue, self.fp32 / card.fp32, self.alu / card.alu),
            "shared": self.shared / card.shared_bytes,
            "memory": self.memory / card.memory_lanes,
        }

    def latency(self, card: Card) -> float:
        """Cycles of waiting for results on the critical path."""
        return (
            self.arithmetic * card.latency_arithmetic
            + self.special * card.latency_mufu
            + self.loads * card.latency_l2
            + self.near * card.latency_shared
            + self.far * card.latency_dram
            + self.shuffles * card.latency_shuffle
            + self.barriers * card.latency_barrier
            + self.matmuls * card.latency_matmul
        )


_NAMES = tuple(f.name for f in fields(Demand))


def total(demands: Iterable[Demand]) -> Demand:
    """The sum."""
    out = Demand()
    for demand in demands:
        out = out + demand
    return out
