"""What a GPU said, as a table, as bars for a terminal, and as a picture file.

Everything shown comes from the rows of a G4 verdict: the device, the method and the FLOP formula
stand beside every number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from engine.report.bars import Bar, Group
from engine.report.bars import bars as picture_of_bars
from engine.report.picture import Picture
from engine.types import Verdict
from engine.worker.orchestration.device import matmul_of, rate_of

OURS = "CuBridge"
FLOPS = "TFLOP/s = 2 (D + Dv) x kept pairs / time"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NAME = 24
_NUMBERS = 44  # cells right of a bar


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows with their spans of style, line by line."""

    rows: tuple[Row, ...]
    spans: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One timed row; `reason` says why there is no time."""

    case: str
    name: str
    ms: float = 0.0
    iqr: float = 0.0
    tflops: float | None = None  # None: it may not be shown, and `note` says why
    ours_is: float | None = None
    of_floor: float | None = None
    note: str = ""
    reason: str = ""

    @property
    def ours(self) -> bool:
        return self.name == OURS


def contestants(details: Mapping[str, Any]) -> dict[str, list[Contestant]]:
    """Timed rows by case, ours first, then the fastest rival; untimed ones last."""
    out: dict[str, list[Contestant]] = {}
    times, device = _rows(details, "times"), details.get("device")
    device = device if isinstance(device, Mapping) else {}
    for row in times:
        case, name = str(row.get("case", "")), str(row.get("name", ""))
        ms = _number(row.get("ms"))
        beside = [other for other in times if str(other.get("case", "")) == case]
        rate = rate_of(row, device, matmul_of(beside))
        if ms is None:
            found = Contestant(case, name, reason=str(row.get("reason") or "not timed"))
        else:
            found = Contestant(
                case, name, ms, _number(row.get("iqr_ms")) or 0.0, rate.tflops,
                _number(row.get("ours_is")), _number(row.get("of_floor")),
                "; ".join(filter(None, (rate.note, str(row.get("note") or "")))),
            )  # fmt: skip
        out.setdefault(case, []).append(found)
    for rows in out.values():
        rows.sort(key=lambda c: (bool(c.reason), not c.ours, c.ms))
    return out


def measured_on(details: Mapping[str, Any]) -> str:
    """Which card, driver and versions the numbers come from."""
    device = details.get("device")
    if not isinstance(device, Mapping):
        return "no device is named"
    parts = [str(device.get("name") or "an unnamed card"), str(device.get("arch") or "")]
    parts += [f"{n} {device[n]}" for n in ("driver", "torch") if device.get(n)]
    parts += [str(device["compiler"])] if device.get("compiler") else []
    return ", ".join(p for p in parts if p)


NOT_RUN = (
    "G4 has not run on these bytes. What it will prove, for each specialisation:",
    "accuracy     O by FlashAttention's rule against PyTorch running your function; LSE",
    "keep sets    with one-hot V: exactly the pairs that your function keeps",
    "memory       no byte outside O and LSE written, every element written; sanitizer",
    "layouts      views, slices, odd offsets, batches 2^31 elements apart",
    "stability    20 launches give the same bits; graphs; no other kernel runs",
    "then times   beside the best rivals, each rival checked before it is timed",
    "The machine with the GPU needs python3, torch and nvcc; the job brings the rest.",
)

UNTIMED = "nothing was timed: bars of TFLOP/s beside the rivals stand here after a run with times"


def table(verdict: Verdict | None) -> Chart:
    """G4's checks as a table."""
    if verdict is None:
        styles = ("not_run", *["dim"] * (len(NOT_RUN) - 1))
        told = [(Span(0, len(t), s),) for t, s in zip(NOT_RUN, styles, strict=True)]
        return Chart(tuple(map(Row, NOT_RUN)), tuple(told))
    details = verdict.details
    kind = verdict.kind.value
    lines: list[tuple[str, str]] = [(f"G4 {kind.replace('_', ' ')}: {verdict.reason}", kind)]
    if "device" in details:
        lines += [(f"measured on {measured_on(details)}", "dim")]
    if details.get("state") not in (None, "complete"):
        lines.append((f"the job did not end: {details['state']}", "stale"))
    checks = _rows(details, "checks")
    if checks:
        lines += [
            ("", ""),
            (f"{'':9}{'specialisation':<16}{'check':<24}cases  measured", "heading"),
        ]
    for row in checks:
        worst = _number(row.get("worst"))
        measured = f"{worst:.2g} of what is allowed" if worst is not None else ""
        failures = row.get("failures")
        first = str(failures[0]) if isinstance(failures, list) and failures else ""
        why = str(row.get("reason") or first)
        verdict_word = str(row.get("verdict"))
        text = (
            f"{verdict_word:<9}{row.get('specialisation', '')!s:<16}{row.get('check')!s:<24}"
            f"{row.get('cases', 0)!s:>5}  {measured}  {why}"
        )
        lines.append((text.rstrip(), verdict_word))
    for row in _rows(details, "self_test"):
        word = str(row.get("verdict"))
        lines.append((f"{word:<9}self-test: mutant {row.get('mutant')}: {row.get('reason')}", word))
    rows, spans = [], []
    for text, style in lines:
        text = one_line(text)
        # In a check's line the verdict alone is coloured, so that a long table stays calm.
        end = len(text) if style in ("dim", "heading", "stale") or text.startswith("G4") else 9
        rows.append(Row(text))
        spans.append((Span(0, min(end, len(text)), style),) if style and text else ())
    return Chart(tuple(rows), tuple(spans))


def bars(details: Mapping[str, Any], width: int) -> Chart:
    """Throughput as bars, one block of lines per case; ours is solid, rivals are hatched."""
    rows: list[Row] = []
    spans: list[tuple[Span, ...]] = []

    def add(text: str, *styles: Span, kind: RowKind = RowKind.SAME) -> None:
        rows.append(Row(one_line(text), kind))
        spans.append(styles)

    found = contestants(details)
    if not found:
        add(UNTIMED)
        return Chart(tuple(rows), tuple(spans))
    room = max(width - _NAME - _NUMBERS, 8)
    for case, members in found.items():
        if rows:
            add("")
        add(case, kind=RowKind.HEAD)
        top = max((m.tflops or 0.0 for m in members), default=0.0)
        for member in members:
            name = one_line(member.name, _NAME - 2)
            if member.reason:
                text = f"{name:<{_NAME}}– {one_line(member.reason)}"
                add(text, Span(_NAME, len(text), "not_run"))
                continue
            bar = "" if member.tflops is None else bar_of(member.tflops / top, room, member.ours)
            style = "bar.ours" if member.ours else "bar.rival"
            text = f"{name:<{_NAME}}{bar:<{room}} {_numbers(member)}"
            add(text, Span(0, len(name), style), Span(_NAME, _NAME + len(bar), style))
            if member.note:
                text = f"{'':<{_NAME}}{member.note}"
                add(text, Span(_NAME, len(text), "dim"))
    add("")
    for words in (f"measured on {measured_on(details)}", FLOPS, str(details.get("method") or "")):
        if words:
            add(words, Span(0, len(one_line(words)), "dim"))
    return Chart(tuple(rows), tuple(spans))


def bar_of(share: float, room: int, ours: bool) -> str:
    """A share of `room` cells; solid for ours, hatched for what it is beside."""
    eighths = round(max(min(share, 1.0), 0.0) * room * 8)
    if not ours:
        return "▒" * max(round(eighths / 8), 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "") or "▏"


def _numbers(member: Contestant) -> str:
    beside = ""
    if member.ours:
        if member.of_floor is not None:
            beside = f"{100 * member.of_floor:.0f}% of the floor"
    elif member.ours_is is not None:
        beside = f"ours is {member.ours_is:.2f} x"
    rate = f"{'':15} " if member.tflops is None else f"{member.tflops:7.1f} TFLOP/s "
    return f"{rate}{member.ms:8.3f} ms  {beside}".rstrip()


def _untold(member: Contestant) -> str:
    """What stands where there is no bar: why nothing was timed, or the time alone."""
    return member.reason or f"{member.ms:,.3f} ms {member.note}".rstrip()


# --- a picture file --------------------------------------------------------------------------


def picture(title: str, details: Mapping[str, Any]) -> Picture:
    """The bars as a picture, with the device, the formula and the method under them."""
    groups = [
        Group(
            one_line(case),
            tuple(
                Bar(one_line(m.name), m.tflops, one_line(_numbers(m)), m.ours)
                if m.tflops is not None
                else Bar(one_line(m.name), reason=one_line(_untold(m)))
                for m in members
            ),
        )
        for case, members in contestants(details).items()
    ]
    notes = (f"measured on {measured_on(details)}", FLOPS, str(details.get("method") or ""))
    return picture_of_bars(one_line(title), groups, [one_line(n) for n in notes if n])


def _rows(details: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = details.get(name)
    return [r for r in found if isinstance(r, Mapping)] if isinstance(found, list | tuple) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
