"""TFLOP/s as they may be shown: of counted pairs, and of what the card can do.

A rate is work over time, and the work is counted, not measured: where the count is wrong the rate
can pass what the card is able to. Such a figure is refused wherever it would stand, and one above
the large matmul that was measured beside it is marked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.worker.orchestration.checklist import ALL_PAIRS

# Dense f16 and bf16 FLOP per multiprocessor and clock, by compute capability. Source: NVIDIA's
# datasheets (A100 312 TFLOP/s at 1410 MHz, L40S 362 at 2520, H100 989 at 1830, B200 2250 at 1850).
FLOP_PER_CLOCK = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192}


@dataclass(frozen=True, slots=True)
class Rate:
    """TFLOP/s, or None where none may be shown; `note` says what is to be known of it."""

    tflops: float | None
    note: str = ""


def rate_of(
    row: Mapping[str, Any], device: Mapping[str, Any], matmul_tflops: float | None = None
) -> Rate:
    """The rate of a timed row on a device, as its result names it."""
    value = row.get("tflops")
    if row.get("mask") == ALL_PAIRS:  # results of earlier versions hold a rate of pairs not kept
        return Rate(None, "no TFLOP/s: nothing says which pairs are kept")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return Rate(None)
    peak = peak_tflops(device)
    if peak is not None and value > peak:
        return Rate(None, f"refused: {value:,.0f} TFLOP/s, and the card's most is {peak:,.0f}")
    if matmul_tflops and value > matmul_tflops:
        return Rate(float(value), f"above the measured matmul ({matmul_tflops:,.0f})")
    return Rate(float(value))


def peak_tflops(device: Mapping[str, Any]) -> float | None:
    """Multiprocessors x FLOP per clock x highest clock; None where the device does not say."""
    capability, count = device.get("capability"), device.get("multiprocessors")
    clock = re.match(r"\s*(\d+)\s*MHz", str(device.get("clocks_max_sm", "")))
    if not isinstance(capability, list | tuple) or not isinstance(count, int) or not clock:
        return None
    flop = FLOP_PER_CLOCK.get(tuple(capability))
    return flop * count * int(clock[1]) * 1e-6 if flop else None


def matmul_of(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The matmul rate that was measured beside the rows of one case."""
    found = (row.get("matmul_tflops") for row in rows)
    return next((float(rate) for rate in found if isinstance(rate, int | float) and rate), None)
