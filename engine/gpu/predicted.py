"""The cost model's prediction beside every time of ours: from the CuIR that the job brought along.

The one number that it takes from the run is the card's own matmul rate, measured there, which gives
the clock that the power limit leaves. Nothing of ours that was measured goes into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.cost.card import Card, card_of_device
from engine.cost.model import predict
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.errors import CuBridgeError

OURS = "CuBridge"
HELD = "CuBridge, lists held"


def with_predictions(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with a `prediction` in each timed row of ours.

    A prediction is `Prediction.to_json()`, or {"reason": why there is none}.
    """
    out = dict(result)
    text = str(result.get("cuir") or "")
    device = result.get("device")
    device = device if isinstance(device, Mapping) else {}
    card = card_of_device(str(device.get("name", "")))
    rows = [dict(row) for row in result["times"]]
    rates = {
        str(row.get("case")): row["matmul_tflops"]
        for row in rows
        if isinstance(row.get("matmul_tflops"), int | float)
    }
    module: Module | None = None
    reason = "" if text else "the job brought no CuIR along"
    if text and card is None:
        reason = f"no data on the card {device.get('name')}"
    elif text:
        try:
            module = parse_module(text, "module.cuir")
        except CuBridgeError as error:
            reason = error.message
    for row in rows:
        if row.get("name") not in (OURS, HELD) or not isinstance(row.get("ms"), int | float):
            continue
        if module is None or card is None:
            row["prediction"] = {"reason": reason}
            continue
        arch = str(device["arch"]) if device.get("arch") else None
        row["prediction"] = _prediction(module, row, card, arch, rates.get(str(row.get("case"))))
    out["times"] = rows
    return out


def _prediction(
    module: Module, row: Mapping[str, Any], card: Card, arch: str | None, rate: float | None
) -> dict[str, Any]:
    sizes = row.get("sizes")
    if not isinstance(sizes, Mapping):
        return {"reason": "the row names no sizes"}
    args: dict[str, int | float] = {
        name: value for name, value in sizes.items() if isinstance(value, int)
    }
    args["scale"] = float(args.get("D", 64)) ** -0.5
    args["planned"] = 1 if row.get("name") == HELD else 0
    flops = row.get("flops")
    try:
        found = predict(
            module, args, card, flops=float(flops) if isinstance(flops, int | float) else None,
            on_arch=arch, matmul_tflops=rate,
        )  # fmt: skip
    except CuBridgeError as error:
        return {"reason": error.message}
    return found.to_json()


def resources_of(result: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Registers per thread and spilled bytes of the timed specialisation, as ptxas gave them."""
    primary = result.get("primary")
    for check in result.get("checks", ()):
        if check.get("check") != "build":
            continue
        for found in (check.get("notes") or {}).get("resources", ()):
            if primary is None or found.get("specialisation") == primary:
                spilled = int(found.get("spill_stores", 0)) + int(found.get("spill_loads", 0))
                registers = found.get("registers")
                return (int(registers) if registers is not None else None), spilled
    return None, None
