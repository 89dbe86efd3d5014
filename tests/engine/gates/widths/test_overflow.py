"""Whole numbers that leave their type beyond every deck are refused; right ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.cuir.printer import print_module
from engine.cuir.static.legal_sizes import USUAL, LegalSizes
from engine.gates.g1_g2.arch_choices import judge_choices
from engine.gates.g1_g2.judge import judge_json
from engine.gates.widths.overflow import overflow
from tests.engine.gates.g1_g2.test_arch_choices import asked
from tests.engine.gates.g1_g2.test_judge import edited, subject_of

KERNELS = [("flash_fwd_sm80", "bf16_64"), ("flash_fwd_sm90", "bf16_128")]
ROW = "q0 = block % q_tiles * BM"
KEEP = "lambda i, j: j < args.Nk"
SCALE = "    scale_log2 = args.scale * LOG2E\n"
FAR = "    more = far * 1000003\n"
LATE = "    l = row_reduce(l)\n"
NEXT = "    more = next * 4000037\n"
DOUBLED = "\n    ".join([
    "r0 = block % q_tiles * BM",
    *(f"r{n + 1} = r{n} + r{n}" for n in range(20)),
    "q0 = r20 // 1048576",
])  # fmt: skip
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
    "a sum twenty times": [(ROW, DOUBLED)],
    "a sum in a loop": [
        (ROW, f"{ROW}\n    far = q0\n    for near in range(20):\n        far = far + far\n"
              "    q0 = far // 1048576"),
    ],
    "a step in a loop": [
        (SCALE, f"{SCALE}    far = args.Nk\n    for near in range(40):\n"
                "        far = far + 100000000\n"),
    ],
    "a counter of as many rounds as pairs": [
        (SCALE, f"{SCALE}    far = 0\n    for near in range(args.Nk):\n"
                "        for more in range(args.Nk):\n            far = far + 1\n"),
    ],
    "a shift there and back": [(ROW, f"{ROW} + (block_id(0) << 30 >> 30)")],
    "a shift of a row": [(ROW, f"{ROW} << 15 >> 15")],
    "a shift by more than there is": [(SCALE, f"{SCALE}    far = 1 << args.Nk\n")],
    "a product there and back": [
        (KEEP, "lambda i, j: (j + 1) * 1073741824 // 1073741824 - 1 < args.Nk"),
    ],
    "a difference": [(SCALE, f"{SCALE}    far = 0 - 2147483647 - args.Nk\n")],
    "a negation": [(SCALE, f"{SCALE}    far = -(0 - 2147483647 - 1)\n")],
    "a magnitude": [(SCALE, f"{SCALE}    far = abs(args.Nk - 2147483647 - 1)\n")],
    "a quotient rounded up": [
        (SCALE, f"{SCALE}    far = ceil_div(2147483647 - BM, args.Nk + BM)\n"),
    ],
    "a conversion": [(ROW, "q0 = i32(i64(block % q_tiles * BM) * 65536 // 65536 * 1000003)")],
    "a wide product of wide numbers": [
        (SCALE, f"{SCALE}    far = i64(args.Nk) * args.Nk * args.Nk * args.Nk\n"),
    ],
    "a parameter that may become 0": [
        ("    return step\n", "    if step > 900:\n        step = 0\n    return step * 40000000\n"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_number_that_leaves_its_type_is_found(name: str) -> None:
    right = wrong = subject_of("full")
    for old, new in WRONG[name]:
        wrong = edited(wrong, old, new)
    found = overflow(wrong.module, right.module)
    assert found is not None and "i64(..)" in found.message


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
        (KEEP, "lambda i, j: (j < args.Nk) | (i * 9 < j * 5) | (j == i)"),
        (KEEP, "lambda i, j: (j < args.Nk) & (i * 9 < j * 5) ^ (j == i)"),
        (SCALE, f"{SCALE}    far = block % q_tiles * q_tiles * 100\n"),
        (SCALE, f"{SCALE}    far = block // q_tiles * q_tiles\n"),
        (SCALE, f"{SCALE}    far = 0\n    for near in range(args.Nk):\n        far = far + 9\n"),
        (SCALE, f"{SCALE}    far = block_id(0) >> 3 << 3\n"),
        (SCALE, f"{SCALE}    far = i32(i64(args.Nk) * args.Nk // 131072)\n"),
    ],
)
def test_products_that_32_or_64_bits_hold_pass(old: str, new: str) -> None:
    right = subject_of("full")
    assert overflow(edited(right, old, new).module, right.module) is None


@pytest.mark.parametrize(("kernel", "key"), KERNELS)
@pytest.mark.parametrize("spec", ["full", "causal", "causal_document"])
def test_nothing_that_the_rules_and_the_expert_write_is_found(
    kernel: str, key: str, spec: str
) -> None:
    """Kernels and launchers as they stand: nothing of them is taken on trust."""
    found = overflow(subject_of(spec, kernel, key).module)
    assert found is None, found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first_key = n * BN", "first_key = n * BN * 65536 // 65536"),
        ("    return step\n", "    return step * 65537 * 65537 // 65537 // 65537\n"),
    ],
    ids=["in a kernel", "in a function that a lambda calls"],
)
def test_what_only_a_lambda_hands_on_is_bounded(old: str, new: str) -> None:
    right = subject_of("document")
    assert overflow(right.module) is None
    found = overflow(edited(right, old, new).module)
    assert found is not None and "i64(..)" in found.message


def test_numbers_are_bounded_by_the_sizes_that_the_kernel_declares() -> None:
    right = subject_of("full")
    squared = edited(right, SCALE, f"{SCALE}    far = args.Nk * args.Nk\n").module
    found = overflow(squared)
    assert found is not None and "131072 keys" in found.message
    fewer = LegalSizes({**USUAL.most, "Nq": 40_000, "Nk": 40_000})
    assert overflow(squared, None, fewer) is None


def test_a_wrong_order_of_work_shows_its_sizes() -> None:
    right = subject_of("full", *KERNELS[1])
    old = "first = work // (section * row_blocks) * section"
    wrong = edited(right, old, "first = work // section * section")
    found = overflow(wrong.module, right.module)
    assert found is not None and found.path[0] in ("work_head", "work_row")


@pytest.mark.parametrize("less", [0, 1])
def test_without_keys_no_block_comes_where_blocks_of_keys_do(less: int) -> None:
    """Only there is a number of keys to divide by; one block earlier there may be none."""
    right = subject_of("full")
    blocks = "ceil_div(args.Nq, BM) * args.Hq * args.B"
    more = edited(right, f"blocks = {blocks}", f"blocks = {blocks} + args.Nk")
    far = f"    if block >= q_tiles * args.Hq * args.B - {less}:\n"
    far += "        far = block // args.Nk * args.Nk\n"
    found = overflow(edited(more, SCALE, SCALE + far).module, right.module)
    assert (found is None) == (less == 0)
    assert found is None or "block // args.Nk * args.Nk" in found.message
    assert found is None or "a divisor in it may be 0 or less" in found.message


def test_what_was_not_looked_at_is_not_what_is_found() -> None:
    """The solver stops after two; the expert's order of work came first in the text."""
    right = subject_of("full", *KERNELS[1])
    far = "".join(f"    far_{n} = works // args.Nk * args.Nk + {n}\n" for n in range(2))
    scale = "        scale_log2 = args.scale * LOG2E\n"
    wrong = edited(right, scale, scale + far.replace("    far", "        far"))
    found = overflow(wrong.module, right.module)
    assert found is not None and found.path[0] == "flash_fwd" and "args.Nk" in found.message
