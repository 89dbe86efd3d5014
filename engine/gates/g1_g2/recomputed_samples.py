"""The samples of a GPU's result, computed again: the inputs from their seed, what the spec's own
function makes of them, and whether the outputs that the result carries are that.

The rule is G4's own. The spec runs in a process of its own. Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.child.spec_process import SpecProcess
from engine.errors import CuBridgeError
from engine.gates.runs.subject import Report
from engine.spec.python.signature import Asked, recipe_of, signature_from_json, signature_of
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.spec.reference.oracle import expected, output_as_bhnd, rounding_of_lse
from engine.worker.launches.samples import TYPES, decoded, digest, sample_inputs
from engine.worker.verification.tolerances import FACTOR, FACTOR_TANH, judge_lse, judge_output

SAME, DIFFERS, NOT_RUN = "same", "differs", "not_run"


def recompute(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """{"spec", "options", "recipe" or "signature", "fast_tanh", "samples"} -> {"rows"}: for each
    sample what was found (`SAME`, `DIFFERS`, `NOT_RUN`) and why."""
    asked: Asked
    if payload.get("recipe") is not None:
        asked = recipe_from_json(payload["recipe"])
    else:
        asked = signature_from_json(payload["signature"])
    rows = []
    with SpecProcess(Path(payload["spec"]), payload.get("options") or {}) as spec:
        for number, sample in enumerate(payload["samples"], 1):
            report(f"computing sample {number} of {len(payload['samples'])} again")
            try:
                found, why = _compared(asked, spec, sample, bool(payload.get("fast_tanh")))
            except (CuBridgeError, ValueError, KeyError) as error:
                found, why = NOT_RUN, str(error)
            rows.append({"sample": number, "found": found, "reason": why})
    return {"rows": rows}


def _compared(
    asked: Asked, spec: SpecProcess, sample: Mapping[str, Any], fast_tanh: bool
) -> tuple[str, str]:
    sizes, dtype = dict(sample["sizes"]), TYPES[sample["dtype"]]
    inputs = sample_inputs(asked, sizes, int(sample["seed"]), int(sample["turn"]), dtype)
    if {name: digest(tensor) for name, tensor in inputs.items()} != dict(sample["inputs"]):
        return NOT_RUN, "other inputs are drawn from its seed here (another PyTorch)"
    recipe = recipe_of(asked)
    if recipe is not None:
        inputs |= spec.derived(recipe, inputs)
    signature = signature_of(asked)

    def wide(given: Mapping[str, Tensor]) -> Tensor:
        return output_as_bhnd(signature, spec.wide(given))

    exact = wide(inputs)
    low = output_as_bhnd(signature, spec.low(inputs))
    outputs = {name: decoded(data) for name, data in sample["outputs"].items()}
    o = output_as_bhnd(signature, outputs["O"])
    if o.shape != exact.shape:
        return DIFFERS, f"O is {list(o.shape)}, the spec gives {list(exact.shape)}"
    v = signature.role("v").name
    positive = {**inputs, v: inputs[v].abs()}
    want = None
    if recipe is None:
        live = ~exact.isnan().all(-1)
        magnitude = torch.maximum(wide(positive).abs().nan_to_num(), exact.abs().nan_to_num())
    else:
        want = expected(recipe, inputs)
        live = ~want.empty
        magnitude = expected(recipe, positive).o.abs()
    if bool((o[~live] != 0).any()):
        return DIFFERS, "a row without a key is not 0"
    factor = FACTOR_TANH if fast_tanh else FACTOR
    judged = judge_output(o, exact, low, magnitude, live, factor)
    share = max(judged.share, judged.row_share)
    if recipe is not None and want is not None and want.lse is not None and "LSE" in outputs:
        largest = float(want.lse[live].abs().max()) if bool(live.any()) else 0.0
        rounding = rounding_of_lse(recipe, inputs, want.lse, live)
        found = judge_lse(outputs["LSE"], want.lse, live, largest, fast_tanh, rounding)
        share = max(share, found)
    if not share <= 1.0:
        size = "without bound" if math.isinf(share) else f"{share:.3g} times what is allowed"
        return DIFFERS, f"its error is {size}"
    return SAME, f"its error is {share:.2g} of what is allowed"
