"""Cards: what their units do per cycle, read from cards.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.errors import InputError

TABLE = Path(__file__).with_name("cards.toml")


@dataclass(frozen=True, slots=True)
class Card:
    """One card. Rates are per multiprocessor and cycle, `_card` rates for the whole card.

    `mufu`, `fp32`, `alu`, `issue` and `memory_lanes` count lanes (operations), `shared_bytes` and
    `l2_bytes_card` bytes; latencies are cycles.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    archs: tuple[str, ...]
    multiprocessors: int
    wgmma_flops: float
    mma_flops: float
    mufu: float
    fp32: float
    alu: float
    issue: float
    memory_lanes: float
    shared_bytes: float
    l2_bytes_card: float
    dram_gbs: float
    clock_mhz: float
    matmul_tflops: float
    launch_us: float
    latency_arithmetic: float
    latency_mufu: float
    latency_shuffle: float
    latency_barrier: float
    latency_matmul: float
    latency_shared: float
    latency_l2: float
    latency_dram: float

    @property
    def flops_cycle(self) -> float:
        """The faster matrix instruction's FLOP per multiprocessor and cycle."""
        return max(self.wgmma_flops, self.mma_flops)

    @property
    def l2_bytes(self) -> float:
        """L2 bytes per multiprocessor and cycle when all draw at once."""
        return self.l2_bytes_card / self.multiprocessors

    def clock(self, busy: float, matmul_tflops: float | None = None) -> float:
        """MHz that the power limit leaves when the tensor cores do `busy` of their most per cycle.

        A large matmul keeps them busy all the time and runs at the power limit, so its measured
        rate gives the clock for busy = 1. Power goes with busy x clock x voltage squared and
        voltage with the clock, so the clock goes with busy to the power -1/3, up to the highest.
        """
        full = (matmul_tflops or self.matmul_tflops) * 1e6
        full /= self.multiprocessors * self.flops_cycle
        return float(min(self.clock_mhz, full * max(busy, 1e-9) ** (-1 / 3)))


@cache
def cards() -> Mapping[str, Card]:
    """Every card of the table, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    out = {}
    for name, row in table.items():
        facts: dict[str, Any] = {f.name: row[f.name] for f in fields(Card) if f.name != "name"}
        lists = {key: tuple(facts[key]) for key in ("devices", "archs")}
        out[name] = Card(name, **{**facts, **lists})
    return MappingProxyType(out)


def card(name: str) -> Card:
    """A card by name. Raises `InputError` for one that is not in the table."""
    found = cards().get(name.lower())
    if found is None:
        raise InputError(f"no data on card {name!r}", fix=f"one of {', '.join(cards())}")
    return found


def card_of_arch(arch: str) -> Card | None:
    """The card that code of this arch is written for: of those that run it, the one with the fewest
    other archs. The command line and the app predict for it where nobody names another."""
    fit = [c for c in cards().values() if arch in c.archs]
    return min(fit, key=lambda c: len(c.archs), default=None)


def card_of_device(device: str) -> Card | None:
    """The card that a device's own name (`NVIDIA H100 80GB HBM3`) means, None where unknown."""
    return next((c for c in cards().values() if any(d in device for d in c.devices)), None)
