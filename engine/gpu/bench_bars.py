"""Timed rows as groups of bars, with a line where the prediction is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.gpu.predicted import HELD, OURS
from engine.report.bars import Bar, Group
from engine.worker.orchestration.device import matmul_of, rate_of

FLOPS = "TFLOP/s = 2 (D + Dv) x kept pairs / time. The line across a bar of ours: the prediction."


def groups_of(
    times: Sequence[Mapping[str, Any]], device: Mapping[str, Any], prefix: str = ""
) -> list[Group]:
    """One group per case: ours first, then the rivals by speed, then what took no part."""
    out = []
    for case in dict.fromkeys(str(row.get("case")) for row in times):
        rows = [row for row in times if str(row.get("case")) == case]
        bars = [_bar(row, device, matmul_of(rows)) for row in rows]
        bars.sort(key=lambda bar: (bool(bar.reason), not bar.ours, -bar.value))
        out.append(Group(f"{prefix}{case}", tuple(bars)))
    return out


def notes_of(device: Mapping[str, Any], method: str) -> list[str]:
    """Where and how it was measured, and by which formula."""
    parts = [str(device.get("name") or "an unnamed card")]
    parts += [f"{name} {device[name]}" for name in ("driver", "torch") if device.get(name)]
    return [f"measured on {', '.join(parts)}", FLOPS, *([method] if method else [])]


def _bar(row: Mapping[str, Any], device: Mapping[str, Any], matmul: float | None) -> Bar:
    name, found = str(row.get("name")), rate_of(row, device, matmul)
    if not isinstance(row.get("ms"), int | float):
        return Bar(name, reason=str(row.get("reason") or "not timed"))
    if found.tflops is None:  # bars are rates: the time stands in words
        return Bar(name, reason=f"{float(row['ms']):,.3f} ms {found.note}".rstrip())
    ours = name in (OURS, HELD)
    beside = "" if ours or "ours_is" not in row else f"  ours is {float(row['ours_is']):.2f} x"
    made = row.get("prediction")
    mark = made.get("tflops") if isinstance(made, Mapping) else None
    text = f"{found.tflops:,.0f} TFLOP/s  {float(row['ms']):,.3f} ms{beside}"
    text += f"  {found.note}" if found.note else ""
    return Bar(
        name, found.tflops, text, ours,
        mark=float(mark) if isinstance(mark, int | float) else None,
    )  # fmt: skip
