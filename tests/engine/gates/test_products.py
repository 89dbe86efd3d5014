"""Products that wrap beyond every deck are seen in the text; right ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.cuir.printer import print_module
from engine.gates.choices import judge_choices
from engine.gates.judge import judge_json
from engine.gates.products import wide_product
from engine.lift import lift, load_package
from engine.resources import list_specs
from tests.engine.gates.test_choices import asked
from tests.engine.gates.test_judge import edited, subject_of

KERNELS = [("flash_fwd_sm80", "bf16_64"), ("flash_fwd_sm90", "bf16_128")]
ROW = "q0 = block % q_tiles * BM"
KEEP = "lambda i, j: j < args.Nk"
SCALE = "    scale_log2 = args.scale * LOG2E\n"
FAR = "    more = far * 1000003\n"
LATE = "    l = row_reduce(l)\n"
NEXT = "    more = next * 4000037\n"
WRONG = {
    "a block's number": [(ROW, "q0 = block * 1000003 % (q_tiles * 1000003) // 1000003 * BM")],
    "a row": [(ROW, f"{ROW} * 90001 // 90001")],
    "a key by a name": [
        (SCALE, f"{SCALE}    wide = BM * BM * 8\n"),
        (KEEP, "lambda i, j: j * wide < args.Nk * wide"),
    ],
    "a tile's number": [("(n + 1) * BN <= args.Nk", "(n + 1) * BN * 65536 <= args.Nk * 65536")],
    "a head's number": [(ROW, f"{ROW} + h * h * h // (h * h * h + 1)")],
    "a name that is 0 first": [(SCALE, f"{SCALE}    far = 0\n    far = args.Nk\n{FAR}")],
    "what hangs on a name that is 0 first": [
        (SCALE, f"{SCALE}    late = 0\n    late = late + args.Nk\n    far = late + 1\n{FAR}"),
    ],
    "a name that is 0 on one way": [
        (SCALE, f"{SCALE}    far = 0\n    if args.Nq > 9:\n        far = args.Nk\n{FAR}"),
    ],
    "a count of tiles to load": [(SCALE, f"{SCALE}    next = 0\n"), (LATE, f"{LATE}{NEXT}")],
    "a loop that counts down": [
        (SCALE, f"{SCALE}    for far in range(args.Nk - 1, -1, -1):\n    {FAR}"),
    ],
    "a loop that begins below 0": [
        (SCALE, f"{SCALE}    for far in range(-args.Nk, 1):\n    {FAR}"),
    ],
    "a step that a run knows": [
        (SCALE, f"{SCALE}    for far in range(args.Nk, 0, args.Nk - args.Nq):\n    {FAR}"),
    ],
    "a parameter that may become 0": [
        ("    return step\n", "    if step > 900:\n        step = 0\n    return step * 40000000\n"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_product_that_wraps_is_found(name: str) -> None:
    right = wrong = subject_of("full")
    for old, new in WRONG[name]:
        wrong = edited(wrong, old, new)
    found = wide_product(wrong.module, right.module)
    assert found is not None and "*" in found.message and "i64(..)" in found.message


@pytest.mark.parametrize("ask", [judge_json, judge_choices])
def test_it_fails_g2_before_anything_runs(
    ask: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]],
) -> None:
    right = subject_of("full")
    wrong = edited(right, *WRONG["a block's number"][0])
    payload = asked(wrong) | {"base": print_module(right.module)}
    verdict = ask(payload, lambda _: None)
    assert not verdict["ok"] and "i64(..)" in verdict["reason"]
    assert verdict["details"]["op"].startswith("flash_fwd/")
    assert not verdict["details"]["runs"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ROW, "q0 = block % q_tiles * BM * 3 // 3"),
        ("h // (args.Hq // args.Hkv)", "h * args.Hkv // args.Hq"),
        (KEEP, "lambda i, j: i64(j) * 1000003 < i64(args.Nk) * 1000003"),
        (SCALE, f"{SCALE}    far = 0\n    far = 2\n{FAR}"),
        (SCALE, f"{SCALE}    for far in range(9, -1, -1):\n    {FAR}"),
        (SCALE, f"{SCALE}    for far in range(block_id(0), 9, grid_dim(0)):\n    {FAR}"),
    ],
)
def test_products_that_32_or_64_bits_hold_pass(old: str, new: str) -> None:
    right = subject_of("full")
    assert wide_product(edited(right, old, new).module, right.module) is None


@pytest.mark.parametrize(("kernel", "key"), KERNELS)
def test_nothing_that_the_rules_write_is_found(kernel: str, key: str) -> None:
    """As if somebody had written it, against the expert's kernel."""
    package = load_package(kernel)
    base = lift(package, key, package.archs[0]).module
    for spec in list_specs():
        found = wide_product(subject_of(spec, kernel, key).module, base)
        assert found is None, f"{spec}: {found}"
