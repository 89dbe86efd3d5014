"""The card and its software, as a result names them, and TFLOP/s as they may be shown on it.

A rate is work over time, and the work is counted, not measured: where the count is wrong it can
pass what the card is able to, and such a figure is refused wherever it would stand.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.worker.orchestration import smi
from engine.worker.orchestration.checklist import ALL_PAIRS
from engine.worker.orchestration.children import last_line
from engine.worker.orchestration.manifest import JobError


def describe_device() -> dict[str, Any]:
    """The card and its software, from a child that imports torch.

    Raises:
        JobError: no torch, or no GPU that it can use.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        said = last_line(done.stderr)
        if "No module named 'torch'" in said:
            raise JobError(
                f"{sys.executable} has no torch: start the job with a Python that has it"
            )
        raise JobError(f"torch finds no GPU here: {said}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    card = found.pop("uuid")
    found["driver"] = smi.asked(card, "driver_version") or "unknown"
    found["power_limit"] = smi.asked(card, "power.limit") or "unknown"
    found["clocks_max_sm"] = smi.asked(card, "clocks.max.sm") or "unknown"
    found["python"] = platform.python_version()
    found["when"] = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    return found


def peak_here() -> float | None:
    """TFLOP/s that this card's matmuls cannot pass; None where nothing says."""
    import torch

    card = torch.cuda.get_device_properties(0)
    return peak_tflops({
        "capability": (card.major, card.minor), "multiprocessors": card.multi_processor_count,
        "clocks_max_sm": smi.asked(smi.named(card), "clocks.max.sm"),
    })  # fmt: skip


_PROBE = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({
    "name": p.name, "capability": [p.major, p.minor], "multiprocessors": p.multi_processor_count,
    "memory_bytes": p.total_memory, "l2_bytes": getattr(p, "L2_cache_size", 0),
    "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    "uuid": f"GPU-{p.uuid}",
}))
"""


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
