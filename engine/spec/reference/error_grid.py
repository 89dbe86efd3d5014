"""A matrix of errors made small enough to keep and to draw: one digit for each of its parts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

ROWS, COLUMNS = 32, 64
DECADES = 9


def error_grid(got: Tensor, want: Tensor, first: int = 0) -> dict[str, Any]:
    """|got - want| [rows, columns] in at most 32 by 64 parts, as JSON.

    `cells` holds a row of digits for each row of parts: 9 where the part's largest error is within
    a tenth of the largest of all (or no number), one less for each power of ten, 0 for less than
    that and for none. `top` is that largest, `first` the number of the first column.
    """
    error = (got.double() - want.double()).abs()
    rows, columns = error.shape
    wild = ~error.isfinite()
    top = float(error.masked_fill(wild, 0.0).max()) if error.numel() else 0.0
    error = error.masked_fill(wild, math.inf)
    high, wide = max(-(-rows // ROWS), 1), max(-(-columns // COLUMNS), 1)
    cells = [
        "".join(_digit(float(part.max()), top) for part in torch.split(band, wide, 1))
        for band in torch.split(error, high, 0)
    ]
    return {
        "rows": rows, "columns": columns, "first": first, "high": high, "wide": wide, "top": top,
        "cells": cells,
    }  # fmt: skip


def _digit(error: float, top: float) -> str:
    if not math.isfinite(error):
        return str(DECADES)
    if error <= 0.0 or top <= 0.0:
        return "0"
    return str(max(DECADES + math.ceil(math.log10(error / top) - 1e-12), 0))
