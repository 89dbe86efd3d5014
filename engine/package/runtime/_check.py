"""The kernel beside the spec on this machine's GPU: `python -c "import NAME; NAME.check()"`.

Every element is held to FlashAttention's rule: the error against the spec in float32 is at most
twice that of the spec in the kernel's own type, plus rounding. LSE is compared with the recipe's;
where no rule reads the spec there is none, and LSE is compared with nothing. A quick look: gate G4
has more cases, and exact tests of masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from ._checks import DTYPES
from ._expr import NotAnExpression, evaluate
from ._op import Operator
from ._spec import for_kernel

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
PEAK = 10.0
Case = tuple[dict[str, int], torch.dtype, bool]


class NotForTheseSizes(ValueError):
    """Sizes that the spec is not for, so that nothing can be compared there."""


def check(operator: Operator, say: Callable[[str], None] | None = print) -> bool:
    """Whether the kernel agrees with the spec on all cases; `say` is given a line for each.

    RuntimeError where there is no GPU that torch can use.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("there is no GPU here that torch can use")
    say = say or (lambda line: None)
    rows = run_deck(operator, say=lambda row: say(line_of(row)))
    ran = [row for row in rows if "passed" in row]
    passed = bool(ran) and all(row["passed"] for row in ran)
    none = "" if ran else ", for the spec takes none of the sizes that were tried"
    device = torch.cuda.get_device_name()
    say(f"{'passed' if passed else 'FAILED'}: {len(ran)} cases on {device}{none}")
    return passed


def run_deck(
    operator: Operator, device: str = "cuda",
    say: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of all cases: of each specialisation as many as make `LEAST` of a package, and four
    at least, unless the spec takes none of the first `TRIES` that it is given."""
    rows: list[dict[str, Any]] = []
    decks = deck(operator.info)
    wanted = max(4, -(-LEAST // len(decks)))
    for cases in decks:
        ran = 0
        for sizes, dtype, peaked in cases[:TRIES]:
            if ran == wanted:
                break
            try:
                row = run_case(operator, sizes, dtype, peaked, len(rows), device)
            except NotForTheseSizes as error:
                row = {"sizes": sizes, "skipped": str(error)}
            except (TypeError, ValueError) as error:  # the package refuses what the spec takes
                row = {"sizes": sizes, "passed": False, "refused": str(error)}
            ran += "passed" in row
            rows.append(row)
            say(row)
    return rows


def run_case(
    operator: Operator, sizes: dict[str, int], dtype: torch.dtype, peaked: bool, seed: int,
    device: str = "cuda",
) -> dict[str, Any]:  # fmt: skip
    """One case: its largest error, what is allowed, and whether it passes."""
    given = draw(operator.info, sizes, dtype, peaked, seed)
    value = next(i["name"] for i in operator.info["inputs"] if i["role"] == "v")
    if (columns := given[value].shape[-1]) != sizes["Dv"]:
        raise NotForTheseSizes(
            f"the spec's values have {columns} columns there, this specialisation's {sizes['Dv']}"
        )
    given = {name: t.to(device) for name, t in given.items()}
    wide = {n: t.float() if t.dtype == dtype else t for n, t in given.items()}
    spec = operator.spec
    try:  # the spec comes first: where it does not run, nothing of the kernel's is wrong
        expected, low = spec.output(wide, sizes).double(), spec.output(given, sizes).double()
    except Exception as error:  # whatever a user's function may raise
        raise NotForTheseSizes(
            f"the spec's function does not run there: {type(error).__name__}: {error}"
        ) from None
    kinds = {i["name"]: i["dtype"] for i in operator.info["inputs"]}
    results = operator.call_named({n: for_kernel(n, t, kinds[n]) for n, t in given.items()})
    made = operator.tables_of(given) if any(i["derive"] for i in operator.info["inputs"]) else {}
    kept, lse = spec.rows({**wide, **made}, sizes, expected)
    # Rows without a kept key: ours are O = 0 and LSE = -inf, whatever the spec writes there.
    expected, low = expected.where(kept, 0.0), low.where(kept, 0.0)
    got = results["O"].double()
    # Where low precision itself gives no number it allows nothing: the others say what it may cost.
    of_low = _largest(torch.where(low.isfinite(), low - expected, 0.0))
    rounded = expected.to(dtype)
    rounding = _largest((rounded + 0.3 - 0.3).double() - rounded.double())
    off, allowed = _largest(got - expected), 2 * of_low + 2 * rounding
    lse_error, lse_allowed = 0.0, 0.0
    compared = lse is not None and "LSE" in results
    if lse is not None and compared:
        got_lse, finite = results["LSE"].double(), ~torch.isneginf(lse)
        lse_error = _largest(torch.where(finite, got_lse - lse, 0.0))
        lse_allowed = 1e-3 * (1.0 + _largest(lse[finite]))
        asked = operator.info["recipe"]
        if asked.get("q") or asked.get("k"):  # as for O: what their rounding moves
            low_lse = spec.rows({**wide, **made}, sizes, expected, dtype)[1]
            assert low_lse is not None
            moved = low_lse - lse
            lse_allowed += 2 * _largest(torch.where(finite & moved.isfinite(), moved, 0.0))
        if bool((torch.isneginf(got_lse) == finite).any()):
            lse_error = float("inf")
    return {
        "sizes": sizes,
        "dtype": str(dtype).removeprefix("torch."),
        "values": "peaked" if peaked else "random",
        "error": off,
        "allowed": allowed,
        "lse_error": lse_error if compared else None,
        "elements": got.numel(),
        "passed": off <= allowed and lse_error <= lse_allowed,  # false for NaN too
    }


def draw(
    info: dict[str, Any], sizes: dict[str, int], dtype: torch.dtype, peaked: bool, seed: int
) -> dict[str, torch.Tensor]:
    """Inputs on the CPU: document numbers over rows, lengths up to all keys, normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    names = dict(sizes)
    out: dict[str, torch.Tensor] = {}
    for item in info["inputs"]:
        if item["derive"]:
            continue
        for dim in item["dims"]:
            if dim.isidentifier():  # a size of the spec's own: any row and any key has a place
                names.setdefault(dim, 11 + sizes["Nk"])
        shape = [evaluate(dim, names) for dim in item["dims"]]
        kind = dtype if item["dtype"] == "T" else DTYPES[item["dtype"]]
        if item["dtype"] == "bool":
            value = torch.rand(shape, generator=generator) < 0.8
        elif item["dtype"] in ("i32", "i64"):
            if {"Nq", "Nk"} & set(item["dims"]):
                value = (torch.rand(shape, generator=generator) < 0.05).long().cumsum(-1)
            else:
                value = torch.randint(1, sizes["Nk"] + 1, shape, generator=generator)
        else:
            value = torch.randn(shape, generator=generator)
            if item["role"] == "q" and peaked:
                value = value * PEAK
        out[item["name"]] = value.to(kind)
    return out


def deck(info: dict[str, Any]) -> list[list[Case]]:
    """For each specialisation the cases that the spec's constraints allow, the plain ones first."""
    out = []
    for key, binding in info["specialisations"].items():
        dtype, columns = DTYPES[binding["T"]], int(binding["D"])
        fixed = {"D": columns, "Dv": info["value_columns"].get(key, columns)}
        cases: list[Case] = []
        for at, case in enumerate(_lengths_and_heads()):
            sizes = dict(zip(("B", "Hq", "Hkv", "Nq", "Nk"), case, strict=True)) | fixed
            if _allowed(info, sizes):
                cases.append((sizes, dtype, bool(at % 2)))
        out.append(cases)
    return out


def _allowed(info: dict[str, Any], sizes: dict[str, int]) -> bool:
    """Whether the spec's constraints hold; those of other dimensions are left to its inputs."""
    for text in info["constraints"]:
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


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0


def line_of(row: dict[str, Any]) -> str:
    """What is printed of a case."""
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
