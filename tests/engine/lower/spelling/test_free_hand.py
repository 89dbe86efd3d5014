"""What a free hand writes is written as the primitives have it, and only that."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.lift import lift, load_package
from engine.lower.spelling.free_hand import spelled
from tests.engine.gates.g1_g2.test_judge import subject_of
from tests.engine.gates.widths.test_overflow import KERNELS

LINES = "lines[16, D, 4]"
LOAD = f"x = load_lines[{LINES}](Q[0:], 0)"


def module(*lines: str) -> Module:
    body = "".join(f"    {line}\n" for line in lines)
    return parse_module(
        "specialisation(arch='sm_90', T=bf16, D=64)\n\n\n"
        "class Args:\n    q: tensor\n    B: i32\n\n\n"
        "@kernel(threads=128)\ndef norm(args, *, T, D):\n"
        f"    Q = gmem[T](args.q, args.B, D)\n{body}"
    )


def body(found: Module) -> list[str]:
    text = print_module(found).split("args.B, D)\n")[1].strip()
    return [line.strip() for line in text.split("\n")]


def test_rows_that_go_on_by_their_name_get_one_of_their_own() -> None:
    found = spelled(module(
        LOAD, "t = map(x, lambda x: x * x)", "if args.B > 1:", "    t = map(x, t, lambda a, b: a)",
        "x = map(x, t, lambda e, a: e * a)", "store(Q[0:], x)",
    ))  # fmt: skip
    assert body(found) == [
        f"x_read = load_lines[{LINES}](Q[0:], 0)", "t = map(x_read, lambda x: x * x)",
        "if args.B > 1:", "t = map(x_read, t, lambda a, b: a)",
        "x = map(x_read, t, lambda e, a: e * a)", "store(Q[0:], x)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        (LOAD, "y = map(x, lambda a: a)", "store(Q[0:], y)"),
        (LOAD, f"x = load_lines[{LINES}](Q[1:], 0)", "store(Q[0:], x)"),
        (LOAD, "if args.B > 1:", "    x = map(x, lambda a: a)", "x = map(x, lambda a: a)"),
        (LOAD, "for x in range(3):", "    sync()", "x = map(x, lambda a: a)"),
        (f"x = zeros({LINES})", "x = map(x, lambda a: a)"),
    ],
)
def test_what_means_one_thing_already_or_two_stays(lines: tuple[str, ...]) -> None:
    assert spelled(module(*lines)) == module(*lines)


def test_a_vector_is_loaded_by_the_layout_of_its_tile() -> None:
    found = spelled(module(
        f"w = load_cols[col_of[{LINES}]](Q[0:])", f"r = load_rows[row_of[{LINES}]](Q[0:])",
        f"c = load_cols[row_of[{LINES}]](Q[0:])", f"t = zeros(row_of[{LINES}])",
    ))  # fmt: skip
    assert body(found) == [
        f"w = load_cols[{LINES}](Q[0:])", f"r = load_rows[{LINES}](Q[0:])",
        f"c = load_cols[row_of[{LINES}]](Q[0:])", f"t = zeros(row_of[{LINES}])",
    ]  # fmt: skip


@pytest.mark.parametrize(("kernel", "key"), KERNELS)
def test_kernels_and_what_the_rules_write_stay(kernel: str, key: str) -> None:
    package = load_package(kernel)
    lifted = lift(package, key, package.archs[0]).module
    assert spelled(lifted) == lifted
    for spec in ("qk_norm_rope_causal", "gated_causal"):
        written = subject_of(spec, kernel, key).module
        assert spelled(written) == written
