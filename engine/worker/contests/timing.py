"""Times of several contestants, call by call in turn, each from a cold L2."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.worker.orchestration import smi

WARM_UP = 3
HELD = 1_000_000  # cycles that the card waits before each timed call, at least
MOST_HELD = 20_000_000
CYCLES = 2e9  # a second, at the highest clock of the cards that there are
MOST_SECONDS = 8.0


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one contestant: median, interquartile range, number of timed calls."""

    median: float
    iqr: float
    samples: int


def interleaved(
    calls: Mapping[str, Sequence[Callable[[], object]]], samples: int, l2_bytes: int
) -> dict[str, Timing]:
    """Median times; each contestant is a sequence of calls, one per input set, used in rotation.

    Before every timed call a buffer of four times the L2 is rewritten with other values, and the
    card is held for half a millisecond, or for as long as the call was seen to take on the CPU and
    half as long again, so that a call that takes long to be launched is not slower for it. A
    contestant whose calls take so long that `samples` of them would pass the time limit gets fewer,
    never under five.
    """
    device = torch.device("cuda")
    flush = torch.empty(max(4 * l2_bytes, 128 << 20) // 4, dtype=torch.float32, device=device)
    for sets in calls.values():
        for number in range(WARM_UP):
            sets[number % len(sets)]()
    torch.cuda.synchronize()
    held = {name: _held(sets[0]) for name, sets in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    for number in range(samples):
        for name, sets in calls.items():
            if spent[name] > MOST_SECONDS and len(times[name]) >= 5:
                continue
            begin = time.perf_counter()
            start, stop = _event(), _event()
            flush.fill_(float(number + 1))
            torch.cuda._sleep(held[name])  # type: ignore[no-untyped-call]
            start.record()
            sets[number % len(sets)]()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop))
            spent[name] += time.perf_counter() - begin
    out: dict[str, Timing] = {}
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4)
        out[name] = Timing(statistics.median(values), quartiles[2] - quartiles[0], len(values))
    return out


@dataclass(frozen=True)
class Ceilings:
    """What this card was measured to do: dense matmul TFLOP/s and copy GB/s (read + written)."""

    matmul_tflops: float
    copy_gbs: float


def measure_ceilings(dtype: torch.dtype) -> Ceilings:
    """One large matmul by the vendor's library on random data, and one large device copy."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    c = torch.empty(n, n, device="cuda", dtype=dtype)
    matmul = _median(lambda: torch.mm(a, b, out=c))
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = _median(lambda: target.copy_(source))
    return Ceilings(2.0 * n**3 / matmul * 1e-9, 2 * source.numel() / copy * 1e-6)


def _held(call: Callable[[], object]) -> int:
    """Cycles for which the card waits, so that a call is queued whole before it begins."""
    longest = 0.0
    for _ in range(3):
        torch.cuda._sleep(MOST_HELD)  # type: ignore[no-untyped-call]
        begin = time.perf_counter()
        call()
        longest = max(longest, time.perf_counter() - begin)
        torch.cuda.synchronize()
    return min(MOST_HELD, max(HELD, int(1.5 * longest * CYCLES)))


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _median(call: Callable[[], object]) -> float:
    values: list[float] = []
    for number in range(13):
        start, stop = _event(), _event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        if number >= 3:
            values.append(start.elapsed_time(stop))
    return statistics.median(values)


class ClockWatch:
    """A card's SM clock and power draw while a block runs, by nvidia-smi five times a second.

    `seen()` is empty where nvidia-smi does not answer.
    """

    def __init__(self, card: str) -> None:
        self._card = card
        self._process: subprocess.Popen[str] | None = None
        self._seen: dict[str, float] = {}

    def __enter__(self) -> ClockWatch:
        fields = "clocks.sm,power.draw"
        command = smi.query(self._card, fields, "--format=csv,noheader,nounits", "-lms", "200")
        if command:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True,
                )  # fmt: skip
            except OSError:
                self._process = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            text = self._process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            self._process.kill()
            text = self._process.communicate()[0]
        self._seen = clock_medians(text)

    def seen(self) -> dict[str, float]:
        """`sm_mhz` and `power_w`, medians over the block."""
        return dict(self._seen)


def clock_medians(text: str) -> dict[str, float]:
    """Medians of lines `clock, power`; lines that are not two numbers are passed over."""
    rows: list[tuple[float, float]] = []
    for line in text.splitlines():
        words = line.split(",")
        with contextlib.suppress(ValueError, IndexError):
            rows.append((float(words[0]), float(words[1])))
    if not rows:
        return {}
    return {
        "sm_mhz": statistics.median(clock for clock, _ in rows),
        "power_w": statistics.median(power for _, power in rows),
    }


def clocks(card: str) -> str:
    """SM and memory clock, power draw and temperature now; empty where nvidia-smi has no answer."""
    return smi.asked(card, "clocks.sm,clocks.mem,power.draw,temperature.gpu")
