"""Run the kernel beside the spec on this machine's GPU: `python -m PACKAGE.check`.

Every element is held to FlashAttention's rule: the error against the spec in float64 is at most
twice that of the spec in low precision, plus rounding. LSE is compared with the recipe's; where no
rule reads the spec there is none, and LSE is compared with nothing. A quick look: gate G4 has more
cases, and exact tests of masks.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from . import _spec
from ._expr import NotAnExpression, evaluate
from ._op import operator
from .build import package

# B, Hq, Hkv, Nq, Nk: on and off tile edges, decoding, more queries than keys, squares.
CASES = (
    (2, 4, 2, 128, 128), (1, 4, 4, 257, 300), (2, 2, 1, 70, 33), (1, 4, 2, 1, 513),
    (1, 2, 2, 191, 191), (2, 4, 1, 64, 333), (1, 2, 1, 5, 5), (1, 8, 2, 300, 300),
)  # fmt: skip
# What a spec for other sizes alone may take: the first of these that it does.
LENGTHS = (256, 384, 512, 64, 128, 96, 48, 100, 250, 1, 16, 1000)
HEADS = ((4, 2), (4, 4), (8, 1), (8, 8), (12, 12), (16, 4), (1, 1), (6, 3))
LEAST = 8  # cases of a package
TRIES = 60  # cases that a spec is given, of those that its constraints allow


def run_case(
    sizes: dict[str, int], dtype: torch.dtype, kind: str, seed: int, device: str = "cuda"
) -> dict[str, Any]:
    """One case: its largest error, what is allowed, and whether it passes."""
    given = _spec.make_inputs(sizes, seed, kind, dtype)
    if (columns := _value_columns(given)) != sizes["Dv"]:
        raise _spec.NotForTheseSizes(
            f"the spec's values have {columns} columns there, this specialisation's {sizes['Dv']}"
        )
    # The spec comes first: where it does not run, nothing of the kernel's is wrong.
    wide, low = _spec_outputs(given)
    kinds = {i["name"]: i["dtype"] for i in package()["inputs"]}
    on_device = {
        name: _spec.for_kernel(name, t, kinds.get(name, "T")).to(device)
        for name, t in given.items()
    }
    results = operator().call_named(on_device)
    torch.cuda.synchronize()
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


def _spec_outputs(given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The spec's output in float64 and in low precision, both as float64; `NotForTheseSizes` where
    its function does not run."""
    try:
        return _spec.in_float64(given), _spec.in_low_precision(given).double()
    except Exception as error:  # whatever a user's function may raise
        raise _spec.NotForTheseSizes(
            f"the spec's function does not run there: {type(error).__name__}: {error}"
        ) from None


Case = tuple[dict[str, int], torch.dtype, str]


def deck() -> list[list[Case]]:
    """For each specialisation the cases that the spec's constraints allow, the plain ones first."""
    names = {"f16": torch.float16, "bf16": torch.bfloat16}
    found = (re.fullmatch(r"(B|Hq|Hkv|Nq|Nk) == (\d+)", c) for c in package()["constraints"])
    declared = {m[1]: int(m[2]) for m in found if m is not None}
    out = []
    for key, binding in package()["specialisations"].items():
        dtype, columns = names[binding["T"]], int(binding["D"])
        fixed = {"D": columns, "Dv": package()["value_columns"].get(key, columns)}
        cases: list[Case] = []
        for at, case in enumerate(_lengths_and_heads()):
            sizes = dict(zip(("B", "Hq", "Hkv", "Nq", "Nk"), case, strict=True)) | fixed | declared
            if _allowed(sizes):
                cases.append((sizes, dtype, "peaked" if at % 2 else "random"))
        out.append(cases)
    return out


def _allowed(sizes: dict[str, int]) -> bool:
    """Whether the spec's constraints hold; those of other dimensions are left to its inputs."""
    for text in package()["constraints"]:
        with suppress(NotAnExpression):
            if not evaluate(text, sizes):
                return False
    return True


def _lengths_and_heads() -> Iterator[tuple[int, ...]]:
    yield from CASES
    pairs = [(n, n) for n in LENGTHS] + [(n, m) for n in LENGTHS for m in LENGTHS if n != m]
    for at, (rows, keys) in enumerate(pairs):
        yield (1 + at % 2, *HEADS[at % len(HEADS)], rows, keys)
    for heads, kv_heads in HEADS:
        yield from ((1, heads, kv_heads, rows, keys) for rows, keys in pairs)


def run_deck(
    device: str = "cuda", say: Callable[[dict[str, Any]], None] = lambda row: None
) -> list[dict[str, Any]]:
    """The rows of all cases: of each specialisation as many as make `LEAST` of a package, and four
    at least, unless the spec takes none of the first `TRIES` that it is given."""
    rows: list[dict[str, Any]] = []
    decks = deck()
    wanted = max(4, -(-LEAST // len(decks)))
    for cases in decks:
        ran = 0
        for sizes, dtype, kind in cases[:TRIES]:
            if ran == wanted:
                break
            try:
                row = run_case(sizes, dtype, kind, len(rows), device)
            except _spec.NotForTheseSizes as error:
                row = {"sizes": sizes, "skipped": str(error)}
            except (TypeError, ValueError) as error:  # the package refuses what the spec takes
                row = {"sizes": sizes, "passed": False, "refused": str(error)}
            ran += "passed" in row
            rows.append(row)
            say(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here that torch can use", file=sys.stderr)
        return 3
    rows = run_deck(say=lambda row: None if arguments.json else print(_line(row), flush=True))
    ran = [row for row in rows if "passed" in row]
    passed = bool(ran) and all(row["passed"] for row in ran)
    name = torch.cuda.get_device_name()
    if arguments.json:
        print(
            json.dumps({"package": package()["op"], "device": name, "passed": passed, "rows": rows})
        )
    else:
        none = "" if ran else ", for the spec takes none of the sizes that were tried"
        print(f"{'passed' if passed else 'FAILED'}: {len(ran)} cases on {name}{none}")
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
