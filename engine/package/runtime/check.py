"""Run the kernel beside the spec on this machine's GPU: `python -m PACKAGE.check`.

Every element is held to FlashAttention's rule: the error against the spec in float64 is at most
twice that of the spec in low precision, plus rounding. LSE is compared with the recipe's; where no
rule reads the spec there is none, and LSE is compared with nothing. A quick look: gate G4 has more
cases, and exact tests of masks.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch

from . import _spec
from ._op import operator
from .build import package

# B, Hq, Hkv, Nq, Nk: on and off tile edges, decoding, more queries than keys, no keys.
CASES = (
    (2, 4, 2, 128, 128), (1, 4, 4, 257, 300), (2, 2, 1, 70, 33), (1, 4, 2, 1, 513), (1, 2, 2, 5, 0),
)  # fmt: skip


def run_case(
    sizes: dict[str, int], dtype: torch.dtype, kind: str, seed: int, device: str = "cuda"
) -> dict[str, Any]:
    """One case: its largest error, what is allowed, and whether it passes."""
    given = _spec.make_inputs(sizes, seed, kind, dtype)
    if (columns := _value_columns(given)) != sizes["Dv"]:
        raise _spec.NotForTheseSizes(
            f"the spec's values have {columns} columns there, this specialisation's {sizes['Dv']}"
        )
    kinds = {i["name"]: i["dtype"] for i in package()["inputs"]}
    on_device = {
        name: _spec.for_kernel(name, t, kinds.get(name, "T")).to(device)
        for name, t in given.items()
    }
    results = operator().call_named(on_device)
    torch.cuda.synchronize()
    if _spec.unread() and not sizes["Nk"]:
        wide = low = torch.zeros(results["O"].shape, dtype=torch.float64)
    else:
        wide, low = _spec.in_float64(given), _spec.in_low_precision(given).double()
    # Rows without a kept key: ours are O = 0 and LSE = -inf, whatever the spec writes there.
    empty, lse = _spec.empty_rows_and_lse(given, wide)
    wide, low = wide.masked_fill(empty, 0.0), low.masked_fill(empty, 0.0)
    got = results["O"].double().cpu()
    # Where low precision itself gives no number it allows nothing: the others say what it may cost.
    of_low = _largest(torch.where(low.isfinite(), low - wide, 0.0))
    rounded = wide.to(dtype)
    rounding = _largest((rounded + 0.3 - 0.3).double() - rounded.double())
    error, allowed = _largest(got - wide), 2 * of_low + 2 * rounding
    lse_error, lse_allowed = 0.0, 0.0
    if lse is not None and "LSE" in results:
        got_lse, kept = results["LSE"].double().cpu(), ~torch.isneginf(lse)
        lse_error = _largest(torch.where(kept, got_lse - lse, 0.0))
        lse_allowed = 1e-3 * (1.0 + _largest(lse[kept]))
        if bool((torch.isneginf(got_lse) == kept).any()):
            lse_error = float("inf")
    return {
        "sizes": sizes,
        "dtype": str(dtype).removeprefix("torch."),
        "values": kind,
        "error": error,
        "allowed": allowed,
        "lse_error": lse_error if lse is not None and "LSE" in results else None,
        "elements": got.numel(),
        "passed": error <= allowed and lse_error <= lse_allowed,  # false for NaN too
    }


def _value_columns(given: dict[str, torch.Tensor]) -> int:
    """Dv of the values that were drawn: a spec may have one name for both head sizes."""
    return given[next(i["name"] for i in package()["inputs"] if i["role"] == "v")].shape[-1]


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0


def deck() -> list[tuple[dict[str, int], torch.dtype, str]]:
    """The cases that the spec's constraints allow."""
    out = []
    names = {"f16": torch.float16, "bf16": torch.bfloat16}
    for key, binding in package()["specialisations"].items():
        dtype, columns = names[binding["T"]], int(binding["D"])
        for at, (b, hq, hkv, nq, nk) in enumerate(CASES):
            sizes = {"B": b, "Hq": hq, "Hkv": hkv, "Nq": nq, "Nk": nk, "D": columns}
            sizes["Dv"] = package()["value_columns"].get(key, columns)
            out.append((sizes, dtype, "peaked" if at % 2 else "random"))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here that torch can use", file=sys.stderr)
        return 3
    rows = []
    for seed, (sizes, dtype, kind) in enumerate(deck()):
        try:
            rows.append(run_case(sizes, dtype, kind, seed))
        except _spec.NotForTheseSizes as error:
            rows.append({"sizes": sizes, "skipped": str(error)})
        except (TypeError, ValueError) as error:  # the package refuses what the spec takes
            rows.append({"sizes": sizes, "passed": False, "refused": str(error)})
        if not arguments.json:
            print(_line(rows[-1]), flush=True)
    ran = [row for row in rows if "passed" in row]
    passed = bool(ran) and all(row["passed"] for row in ran)
    name = torch.cuda.get_device_name()
    if arguments.json:
        print(
            json.dumps({"package": package()["op"], "device": name, "passed": passed, "rows": rows})
        )
    else:
        print(f"{'passed' if passed else 'FAILED'}: {len(ran)} cases on {name}")
    return 0 if passed else 1


def _line(row: dict[str, Any]) -> str:
    sizes = " ".join(f"{k} {v}" for k, v in row["sizes"].items())
    if "skipped" in row:
        return f"skipped  {sizes}: {row['skipped']}"
    if "refused" in row:
        return f"FAIL  {sizes}: {row['refused']}"
    word = "pass" if row["passed"] else "FAIL"
    of_lse = row["lse_error"]
    lse = "LSE not compared" if of_lse is None else f"of LSE {of_lse:.1e}"
    return (
        f"{word}  {row['dtype']:9} {row['values']:7} {sizes}: "
        f"error {row['error']:.2e}, allowed {row['allowed']:.2e}; {lse}"
    )


if __name__ == "__main__":
    sys.exit(main())
