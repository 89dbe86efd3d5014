"""Errors as pictures: |error| over query rows and columns, and a wrong row's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

GLYPHS = " ···░░▒▒▓█"  # by the digits of `engine.spec.reference.error_grid`
LEGEND = "█ largest, or no number   ▓ less than a tenth   ▒ a hundredth   ░ a 10^-4th   · a 10^-6th"
OVER = {"O": ("O", "d"), "weights": ("the weights", "j")}


def picture_lines(details: Mapping[str, Any]) -> list[str]:
    """The pictures that a verdict holds, and the wrong row's weights, as lines to read."""
    example = details.get("counterexample")
    lines: list[str] = []
    place = example if isinstance(example, Mapping) else {}
    errors = details.get("errors")
    for check in details.get("checks") or ():  # G4's: the first check that drew some
        notes = check.get("notes") if isinstance(check, Mapping) else None
        if not errors and isinstance(notes, Mapping) and notes.get("errors"):
            errors = notes["errors"]
            place = errors if isinstance(errors, Mapping) else {}
    if isinstance(errors, Mapping):
        for name, (what, column) in OVER.items():
            grid = errors.get(name)
            drawn = _picture(grid, what, column, place) if isinstance(grid, Mapping) else []
            lines += [*drawn, ""] if drawn else []
    if lines:
        lines = [*lines[:-1], f"{'':8}{LEGEND}", ""]
    return [*(lines if _weights(place) else lines[:-1]), *_weights(place)]


def _picture(
    grid: Mapping[str, Any], what: str, column: str, place: Mapping[str, Any]
) -> list[str]:
    try:
        high, wide, first = int(grid["high"]), int(grid["wide"]), int(grid["first"])
        cells = [str(row) for row in grid["cells"]]
        top, last = float(grid["top"]), first + int(grid["columns"]) - 1
    except (KeyError, TypeError, ValueError):
        return []  # of another version
    where = ", ".join(f"{n} {place[n]}" for n in ("b", "h", "case") if n in place)
    several = f"{high} row{'s' * (high > 1)} x {wide} column{'s' * (wide > 1)}"
    each = several if high * wide > 1 else "one element"
    lines = [
        f"|error| of {what} over (i, {column}), {where}: {_most(top, place)}, a mark is {each}",
        f"{'':8}{column}={first:<{max(len(cells[0]) - len(str(last)) - 2, 1)}}{last}",
    ]
    row = place.get("i")
    for number, digits in enumerate(cells):
        begin = number * high
        here = isinstance(row, int) and begin <= row < begin + high
        drawn = "".join(GLYPHS[int(d)] if d.isdecimal() else "?" for d in digits)
        lines.append(f"{'▶' if here else ' '}i={begin:<5}{drawn.rstrip()}")
    return lines


def _most(top: float, place: Mapping[str, Any]) -> str:
    """The largest error, which is that of numbers alone: where there is none it says nothing."""
    try:
        number = math.isfinite(float(place.get("got", 0.0)))
    except (TypeError, ValueError):
        number = False
    return f"{top:.3g} at most" if number else f"no number in places, {top:.3g} at most elsewhere"


def _weights(place: Mapping[str, Any]) -> list[str]:
    """The keys of the wrong row whose weights differ."""
    keys = [k for k in place.get("keys") or () if isinstance(k, Mapping)]
    if not keys:
        return []
    count = place.get("wrong_keys", len(keys))
    lines = [
        f"weights of row i={place.get('i')} that differ: {count}" +
        (f", the first {len(keys)}" if count != len(keys) else ""),
        f"{'j':>8}  {'the spec':<14}the target",
    ]  # fmt: skip
    for key in keys:
        spec, ours = (_weight(key.get(name)) for name in ("expected", "got"))
        lines.append(f"{key.get('j')!s:>8}  {spec:<14}{ours}")
    return lines


def _weight(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return "0 (masked)" if value == 0 else f"{value:.6g}"
